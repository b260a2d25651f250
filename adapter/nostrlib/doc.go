// Package nostrlib joins graspsync to fiatjaf.com/nostr, which its users call nostrlib: the library
// that today's Go relays are written against. It is a module of its own, so that nobody else has that
// library among what they depend on.
//
//	event, err := nostrlib.FromEvent(theirs)                  // a graspsync.Event of a nostr.Event
//	theirs, err := nostrlib.ToEvent(event)                    // and back
//	store, err := nostrlib.NewStore(db, nostrlib.Config{})    // a relaysync.Store of an eventstore.Store
//
// Package adapter/nostrlib/khatru embeds graspsync in a relay on its khatru, package
// adapter/nostrlib/grasp gives a server on its khatru/grasp what GRASP-02 asks for.
//
// # Events
//
// nostrlib has ids, keys and signatures as bytes, go-nostr as text, and a [graspsync.Event] ids and keys as
// both: an event is handed over without being read again. The two libraries have different
// ids for an event with control characters other than tab, newline and carriage return;
// that of NIP-01 is go-nostr's.
//
// # Stores
//
// A [Store] stands on package adapter/eventstore, which says what is complete, what is written in which
// order, and what holds after a crash. It is told what a backend of nostrlib's is like:
//
//   - A query gives no error. An empty answer is confirmed by a count, which does.
//   - A query is told how many events it may give, so that a second with thousands of them can be read.
//   - For kinds of which there is one version of each address, it gives one for each, be there more.
//   - Ids and tags are found by a part of them, and what only looks alike is left out again.
//   - The binary form of boltdb and lmdb loses some of the events whose tags have more than 64 KiB
//     together: those are refused.
//   - lmdb does not find all events that name an address, because others
//     hide them. A Store looks through all of the other kinds or authors that it is asked for instead, which takes
//     its time where there are many events: boltdb is the better choice. What a client asks goes by
//     the backend's index all the same.
//   - ReplaceEvent misses versions without or with a long identifier. It is not used.
//   - slicestore takes since for exclusive, and can't be read while it is written. Its calls are serialised.
//
// Supported are boltdb, lmdb and slicestore, and structs that embed one of these. For any other database implement
// relaysync.Store and test it with package storetest.
package nostrlib
