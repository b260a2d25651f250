// Package eventstoreadapter makes a [relaysync.Store] of badger, lmdb or slicestore of
// github.com/fiatjaf/eventstore. For another database implement relaysync.Store and test it with
// package storetest.
//
//	db := &badger.BadgerBackend{Path: path}
//	if err := db.Init(); err != nil {
//		return err
//	}
//	store, err := eventstoreadapter.New(db, eventstoreadapter.Config{})
//
// # Complete answers
//
// Badger and lmdb omit some of the newest events of several values, index no tag value longer than 100
// bytes, and answer "repo-cli" for "repo", without an error. So the Store queries one value at a time,
// page by page back in time, and checks each event. A filter that cannot be read completely ends with
// [ErrIncomplete].
//
// New raises MaxLimitNegentropy of badger and lmdb, and MaxLimit of slicestore, to 262,144 events, the
// maximum of one second. Answers to clients keep to the original MaxLimit.
//
// # One server per database
//
// A server keeps state about its events in memory, so an lmdb has a lock, the file graspsync-lock in its
// folder. Badger has a lock of its own.
//
// # Writing
//
// Save does not use ReplaceEvent, which misses versions with empty or long identifiers. A new version, a
// deletion and a request to vanish (NIP-62) are saved before events are removed, and saving them again
// completes an interrupted removal. If a deletion names a version of an address by id, the backend
// keeps a record of kind 20005, so that older versions stay deleted. The events of one author are saved
// under one lock, so a relay must not write to the backend itself.
//
// Backends with a method Sync() error, such as badger, are synced once per Save.
package eventstoreadapter
