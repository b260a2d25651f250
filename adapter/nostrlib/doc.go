// Package nostrlib connects graspsync to fiatjaf.com/nostr, called nostrlib below.
//
//	event, err := nostrlib.FromEvent(theirs)                  // nostr.Event to graspsync.Event
//	theirs, err := nostrlib.ToEvent(event)                    // and back
//	store, err := nostrlib.NewStore(db, nostrlib.Config{})    // eventstore.Store to relaysync.Store
//
// # Events
//
// For events with control characters other than tab, newline and carriage return, the ids of nostrlib
// differ from NIP-01 and go-nostr.
//
// # Stores
//
// A [Store] uses package adapter/eventstore, and works around these properties of nostrlib backends:
//
//   - Queries return no error. A count, which does, confirms empty answers.
//   - Queries for replaceable kinds return one version of each address.
//   - Indexes contain only a part of ids and tag values.
//   - boltdb and lmdb lose some events whose tags exceed 64 KiB together. The Store refuses such events.
//   - lmdb misses events that name an address if another event hides them. The Store reads all events of
//     the kinds or authors in the filter instead, so prefer boltdb.
//   - ReplaceEvent misses versions without identifier or with a long one.
//   - slicestore excludes events at since, and cannot be read while it is written.
//
// Supported backends are boltdb, lmdb, slicestore, and structs that embed one. For another database
// implement relaysync.Store and test it with package storetest.
package nostrlib
