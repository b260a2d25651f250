// Package memstore is a simple [relaysync.Store] in memory, for tests, demos, and as a reference
// implementation.
//
//	store := memstore.New()
//	outcomes, err := store.Save(ctx, []graspsync.Incoming{{Event: event}})
//	for key, err := range store.Keys(ctx, nostr.Filter{Kinds: []int{30617}}) {
//		...
//	}
//
// A Store is safe for concurrent use and starts no goroutine. An iterator yields the content at the
// start of the iteration. Memory grows with stored events and deletions without a limit.
package memstore
