// Package state stores records that must survive a restart: the health of relays, the
// checkpoints of their histories, events that wait for git data, rules, journals.
//
// [Store] is a key-value store of four methods:
//
//	err := store.Put(ctx, state.Record{Key: "example/a", Value: a}, state.Record{Key: "example/b", Value: b})
//	value, err := store.Get(ctx, "example/a") // wraps state.ErrNotFound if there is none
//	for record, err := range store.Each(ctx, "example/") {
//		...
//	}
//	err = store.Delete(ctx, "example/a", "example/b")
//
// [Open] returns a [DB], a Store in a folder. [Memory] is the smallest Store: it is empty after
// a restart, and meant for tests. Package statetest is the suite that every Store must pass.
//
// # Keys
//
// A key starts with the name of the package that owns the record and a slash, such as
// "sync/health/wss://relay.example.com". Each key has one writer: a record is replaced by the
// last Put, whoever called it.
package state
