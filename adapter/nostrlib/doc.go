// Package nostrlib connects graspsync to fiatjaf.com/nostr, called nostrlib below, the library of
// newer Go relays. It is a separate module, so that other users do not depend on that library.
//
//	event, err := nostrlib.FromEvent(theirs)                  // nostr.Event to graspsync.Event
//	theirs, err := nostrlib.ToEvent(event)                    // and back
//	store, err := nostrlib.NewStore(db, nostrlib.Config{})    // eventstore.Store to relaysync.Store
//
// # Events
//
// The libraries compute different ids for events with control characters other than tab, newline and
// carriage return. go-nostr follows NIP-01.
//
// # Stores
//
// A [Store] uses package adapter/eventstore, which documents completeness, write order and crash
// safety. It works around these properties of nostrlib backends:
//
//   - Queries return no error. A count, which does, confirms empty answers.
//   - Queries have a maximum number of events, which the Store raises for a second with thousands of events.
//   - Queries for replaceable kinds return one version of each address, even if more are stored.
//   - Indexes contain only a part of ids and tag values. The Store filters out other matches.
//   - The binary encoding of boltdb and lmdb loses some events whose tags exceed 64 KiB together. The
//     Store refuses these events.
//   - lmdb misses events that name an address if another event hides them. Instead, the Store reads
//     all events of the kinds or authors in the filter, which is slow, so prefer boltdb. Queries of
//     clients still use the index.
//   - ReplaceEvent misses versions without identifier or with a long identifier. The Store does not
//     use it.
//   - slicestore excludes events at since, and cannot be read while it is written. The Store
//     serializes its calls.
//
// Supported backends are boltdb, lmdb, slicestore, and structs that embed one. For another database
// implement relaysync.Store and test it with package storetest.
package nostrlib
