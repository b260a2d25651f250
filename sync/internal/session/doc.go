// Package session is the protocol state machine of one connection to one relay. It is pure, like
// package plan: the methods of [Session] take an event and the current time and return [Action]
// values. The caller does the I/O.
//
// A live subscription (limit 0) stays open. A query of a batch fetches history once, by
// reconciliation (NIP-77) if the relay offers it, else by pages (history.begin). Live subscriptions
// open before history.
//
// A request is sent after the previous request got its first answer, because a NOTICE names no
// request. Subscription ids are never reused.
//
// [Session] passes each message to one of its parts. The parts call only downward in this list and
// append actions to a common outbox:
//
//	repair     handles refusals; bisection finds the refused part of a request
//	history    batches and their queries: pages, ids, reconciliation
//	requests   queue, slots, pace and NIP-42; subscriptions are the open requests
//	relayCaps  limits of the relay, and filters that respect them
package session
