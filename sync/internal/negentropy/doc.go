// Package negentropy implements the set reconciliation of NIP-77, protocol version 1 (0x61). A
// [Set] of ids is immutable and shared by sessions. A [Session] is the asking side, and [Answer] is
// the answering side.
//
//	set := negentropy.NewSet(items)
//	session := negentropy.NewSession(set, negentropy.Limits{})
//	msg, err := session.Open() // NEG-OPEN, as hex
//	for done := false; err == nil && !done; {
//		msg, done, err = session.Step(exchange(msg)) // NEG-MSG, as hex
//	}
//	fetch(session.Need())
//
// Messages of a peer are decoded in place, so a message cannot cause allocations beyond a small
// multiple of its length. Limits on rounds and ids stop a peer that never converges.
//
// A Set is safe for concurrent use, a Session is not.
package negentropy
