// Package state is where small things are kept that must survive a restart: the
// health of relays, what was learned about them, how far a relay was read, what
// waits for git data.
//
// [Store] is a key-value store of four methods. Every write is a compare-and-swap
// on the version that was read, so two writers that know nothing of each other
// can't undo each other's work:
//
//	value, version, err := store.Get(ctx, key)
//	if errors.Is(err, state.ErrNotFound) {
//		version = state.Absent // create it
//	}
//	version, err = store.CompareAndSwap(ctx, key, version, change(value))
//	if errors.Is(err, state.ErrConflict) {
//		// somebody else wrote first: read again
//	}
//
// [Memory] is the smallest Store. It keeps nothing over a restart and is meant for
// tests and for embedders who can do without. Package filestate keeps everything in a
// folder. Package statetest is the suite that
// every Store must pass.
//
// # Life cycle and concurrency
//
// A Store is safe for concurrent use. It has no Close: who opens an implementation
// that needs closing closes it, after everybody who uses it has stopped.
//
// # Keys
//
// A key starts with the name of who owns it and a slash, such as
// "sync/health/wss://relay.example.com". Nobody writes under another owner's name.
package state
