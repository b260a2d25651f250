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
// The methods of [Session] are in these files:
//
//	session.go   calls and messages
//	repair.go    refusals and NIP-42; a bisection finds the refused part of a request
//	history.go   batches and their queries: pages and ids; reconcile.go, audit.go
//	requests.go  the queue, slots and pace; subscriptions are the open requests
package session
