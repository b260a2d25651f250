// Package negentropy is the set reconciliation of NIP-77, protocol version 1
// (0x61), for both sides: a [Set] of ids sealed once and shared by any number of
// sessions, a [Session] that asks, and [Answer] for the side that is asked.
//
//	set := negentropy.NewSet(items)
//	session := negentropy.NewSession(set, negentropy.Limits{})
//	msg, err := session.Open() // NEG-OPEN, as hex
//	for done := false; err == nil && !done; {
//		msg, done, err = session.Step(exchange(msg)) // NEG-MSG, as hex
//	}
//	fetch(session.Need())
//
// A Set gives the fingerprint of any range in constant time, from running sums.
// What a peer sends is decoded in place: a message can't make us allocate more
// than a small multiple of its own length, and a peer that never converges is
// stopped by a bound on rounds and ids.
//
// The package does no I/O, reads no clock and starts no goroutine. A Set may be
// used by many goroutines, a Session by one.
package negentropy
