// Package eventstoreadapter makes a [relaysync.Store] of a backend of
// github.com/fiatjaf/eventstore: badger, lmdb or slicestore. For any other database implement relaysync.Store, six methods, and
// test it with package storetest.
//
//	db := &badger.BadgerBackend{Path: path}
//	if err := db.Init(); err != nil {
//		return err
//	}
//	store, err := eventstoreadapter.New(db, eventstoreadapter.Config{})
//
// # Complete answers
//
// A backend answers at most so many events to one query and does not say when it
// left some out. So the Store asks for one value at a time, and walks back in time page by page.
// A second that holds more than a page is asked for in a larger query. Every event is checked
// against the filter again, and comes once. A filter that can't be read completely ends with
// [ErrIncomplete], after all other events.
//
// New raises MaxLimitNegentropy of badger and lmdb and MaxLimit of slicestore to 262,144, the most events of one second that
// the Store can read. Answers to clients keep to the MaxLimit that was set.
//
// Badger and lmdb need particular care: their answers to a
// query with several values leave out some of the newest events once the limit is
// reached; tag values longer than 100 bytes, among them the addresses of repositories with
// long names, are in no index; a tag value that begins like the one asked for, such
// as "repo-cli", turns up among the answers for "repo" and ends the search early
// when since is given.
//
// # One server per database
//
// An lmdb has one server at a time, because what the server knows of its events and of their git data is in memory: New
// fails with [ErrInUse] and names the other process. The lock is the file graspsync-lock in its folder, and ends with the process,
// also after kill -9. badger has a lock of its own.
//
// # Writing
//
// Save does not use the backend's ReplaceEvent, which misses versions whose
// identifier is empty or long and removes events of other identifiers. A new
// version is saved first and the older ones are removed then: a crash in between
// leaves both, and the next Save of that address repairs it. Deletions are kept as
// events and looked up in the backend, so they hold after a restart too; they are
// saved before what they name is removed, and saving one again completes what a
// crash cut short; so are requests to vanish (NIP-62) that name the service of
// [Config]'s Identity, or all relays. If a deletion names a version of an address by its id, the
// backend keeps a record of the version: an event of kind 20005, which no query of the Store
// returns. It keeps older versions deleted after a restart. The versions, deletions and targets of one author are saved
// under one lock. Writes that bypass the Store are not under it: give the relay
// [Store.Backend] in place of the backend and they are.
//
// What is reported as stored is durable if the backend makes it so. Backends with
// a method Sync() error, such as badger, are synced once for every Save.
//
// # Faults of backends
//
// A panic in a call to the backend becomes an error. One in a goroutine that the
// backend started can't be caught; queries that are known to cause one are never
// made. A Store starts no goroutine of its own, except to drain a query that was
// left because its context ended; it lasts until the backend closes the channel,
// but at most 30 seconds after the backend's last event.
package eventstoreadapter
