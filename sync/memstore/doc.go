// Package memstore is the smallest correct [relaysync.Store]: it keeps events in
// memory and forgets them with the process. It is meant for tests, for demos, and
// as the plainest statement of what a Store must do.
//
//	store := memstore.New()
//	outcomes, err := store.Save(ctx, []graspsync.Incoming{{Event: event}})
//	for stamp, err := range store.Stamps(ctx, nostr.Filter{Kinds: []int{30617}}) {
//		...
//	}
//
// A Store is safe for concurrent use and starts no goroutine. What an iterator
// yields is the content at the moment at which the iteration began. Memory grows
// with the events and with the deletions stored, without a bound.
package memstore
