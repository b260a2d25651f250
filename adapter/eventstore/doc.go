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
// A backend returns a limited number of events per query and does not report that some are missing.
// So the Store queries one value at a time, page by page back in time, checks each event and yields
// it once. A filter that cannot be read completely ends with [ErrIncomplete].
//
// New raises MaxLimitNegentropy of badger and lmdb, and MaxLimit of slicestore, to 262,144, the
// maximum number of events of one second. Answers to clients keep to the original MaxLimit.
//
// Badger and lmdb omit some of the newest of several values, index no tag value longer than 100
// bytes, and answer "repo-cli" for "repo".
//
// # One server per database
//
// Only one server may use an lmdb, because it keeps state about its events in memory. New fails
// with [ErrInUse] and names the other process. The lock is the file graspsync-lock in the folder of
// the lmdb. Badger has a lock of its own.
//
// # Writing
//
// Save does not use ReplaceEvent, which misses versions with empty or long identifiers. A new
// version is saved before the older ones are removed; after a crash in between, the next Save
// removes them. Deletions and requests to vanish (NIP-62) are stored as events before the named
// events are removed, and saving them again completes an interrupted removal. If a deletion names a
// version of an address by id, the backend keeps a record of the version as an event of kind 20005,
// so that older versions stay deleted. The events of one author are saved under one lock, so a
// relay must not write to the backend itself.
//
// Backends with a method Sync() error, such as badger, are synced once per Save.
//
// # Faults of backends
//
// A panic in a call of the backend becomes an error. Queries that panic in a goroutine of the
// backend are never made. Goroutines of a Store only drain queries whose context has ended.
package eventstoreadapter
