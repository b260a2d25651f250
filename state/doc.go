// Package state stores records that survive a restart, such as the health of relays, checkpoints,
// waiting events, and rules.
//
// [Store] is a key-value store with three methods:
//
//	err := store.Put(ctx, state.Record{Key: "example/a", Value: a}, state.Record{Key: "example/b", Value: b})
//	for record, err := range store.Each(ctx, "example/") {
//		...
//	}
//	err = store.Delete(ctx, "example/a", "example/b")
//
// [Open] returns a [DB], a Store in a folder. [Memory] is a Store for tests. Package statetest is the
// suite that every Store must pass.
//
// # Keys
//
// A key starts with the name of the package that owns the record and a slash, such as
// "sync/health/wss://relay.example.com". Each key must have only one writer, because the last Put
// wins.
package state
