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
// So the Store queries one value at a time, page by page back in time. A second with more events
// than a page is queried with a larger limit. Each event is checked against the filter and yielded
// once. A filter that cannot be read completely ends with [ErrIncomplete] after the other events.
//
// New raises MaxLimitNegentropy of badger and lmdb, and MaxLimit of slicestore, to 262,144, the
// maximum number of events of one second that the Store reads. Answers to clients keep to the
// original MaxLimit.
//
// Badger and lmdb have further faults. Answers to several values omit some of the newest events.
// Tag values longer than 100 bytes, such as addresses of repositories with long names, are in no
// index. A tag value with the requested one as prefix, such as "repo-cli" for "repo", is among the
// answers and may end the search early.
//
// # One server per database
//
// Only one server may use an lmdb, because it keeps state about its events and their git data in
// memory. New fails with [ErrInUse] and names the other process. The lock is the file
// graspsync-lock in the folder of the lmdb. It ends with the process, also after kill -9. Badger
// has a lock of its own.
//
// # Writing
//
// Save does not use the backend's ReplaceEvent, which misses versions with empty or long
// identifiers and removes events of other identifiers. A new version is saved before the older ones
// are removed. After a crash in between, the next Save of the address removes them. Deletions and
// requests to vanish (NIP-62) are stored as events and looked up in the backend, so they stay in
// force after a restart. They are saved before the named events are removed, and saving them again
// completes an interrupted removal. If a deletion names a version of an address by id, the backend
// keeps a record of the version as an event of kind 20005, which no query of the Store returns. It
// keeps older versions deleted after a restart. The versions, deletions and targets of one author
// are saved under one lock, so a relay must not write to the backend itself. It calls [Store.Save],
// [Store.Query] and [Store.Count].
//
// A stored event is durable if the backend makes it so. Backends with a method Sync() error, such
// as badger, are synced once per Save.
//
// # Faults of backends
//
// A panic in a call of the backend becomes an error. A panic in a goroutine of the backend cannot
// be caught, so queries that are known to cause one are never made. A Store starts goroutines only
// to drain queries whose context has ended. They end when the backend closes the channel, at most
// 30 s after its last event.
package eventstoreadapter
