// Package session is the conversation with one relay over one connection: which
// request goes out when, what an answer means, when a silence has lasted too long.
// Like package plan it is a pure state machine. The methods of [Session] take what
// happened and the time and return [Action] values; the caller does the I/O.
//
// Two primitives are kept apart. Live subscriptions (limit 0) are opened before
// history and stay. A query of a batch fetches history once: by reconciliation
// (NIP-77) where the relay offers it, else by pages.
//
// Requests are opened one after the other, each when the one before got its first
// answer, so that a NOTICE, which names no request, can be told to belong to one.
// Subscription ids are never used twice.
//
// [Session] tells what happened to the part that it concerns. The parts call downwards
// only, and put what is to be done into one outbox:
//
//	repair      what can be done about a refusal; bisection finds out what is refused
//	history     batches and their queries: pages, ids, reconciliation
//	requests    what waits and when it goes out: slots, pace, NIP-42; subscriptions
//	            are those that are open
//	suspects    over what the relay hung up
//	terms       what the relay takes, and the form of a filter that it takes
package session
