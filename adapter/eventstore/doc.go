// Package eventstoreadapter makes a [relaysync.Store] of a backend of
// github.com/fiatjaf/eventstore: badger, lmdb or slicestore. For another database implement
// relaysync.Store, which has six methods, and test it with package storetest.
//
//	db := &badger.BadgerBackend{Path: path}
//	if err := db.Init(); err != nil {
//		return err
//	}
//	store, err := eventstoreadapter.New(db, eventstoreadapter.Config{})
//
// # Complete answers
//
// A backend does not report that events are missing in an answer. Badger and lmdb omit some of the
// newest of several values, index no tag value longer than 100 bytes, and answer "repo-cli" for
// "repo". So the Store queries one value at a time, page by page back in time, and checks each
// event. A filter that cannot be read completely ends with [ErrIncomplete].
//
// New raises MaxLimitNegentropy of badger and lmdb, and MaxLimit of slicestore, to 262,144, the
// maximum number of events of one second. Answers to clients keep to the original MaxLimit.
//
// # One server per database
//
// Only one server may use an lmdb, because it keeps state about its events in memory. The lock is
// the file graspsync-lock in the folder of the lmdb. Badger has a lock of its own.
//
// # Writing
//
// Save does not use ReplaceEvent, which misses versions with empty or long identifiers. A new
// version is saved before the older ones are removed, and a deletion or request to vanish (NIP-62)
// before the named events are removed. Saving them again completes an interrupted removal. If a
// deletion names a version of an address by id, the backend keeps a record of the version as an
// event of kind 20005, so that older versions stay deleted. The events of one author are saved under
// one lock, so a relay must not write to the backend itself.
//
// Backends with a method Sync() error, such as badger, are synced once per Save. A panic in a call of
// the backend becomes an error.
package eventstoreadapter
