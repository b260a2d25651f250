// Package sync keeps a relay that hosts Git repositories (NIP-34) in sync with
// every other relay that its repositories list (GRASP-02). It is always imported
// as relaysync:
//
//	import relaysync "github.com/graspsync/graspsync/sync"
//
//	manager, err := relaysync.New(store, transport, identity, relaysync.Config{})
//	if err != nil { ... }
//	go manager.Run(ctx)        // until ctx ends
//	manager.Stored(event)      // for each event that a client submitted and that was stored
//
// A [SyncManager] finds out from the events in the [Store] which repositories are
// ours and which relays they list, connects to these through the [Transport],
// fetches what they have and we lack, follows them live, and comes back to them
// when they were down. What it receives is verified, judged by the [Policy] and
// saved.
//
// # Life cycle
//
// [New] checks its arguments and starts nothing. Run owns everything: it blocks
// until its context ends and leaves no goroutine behind. All other methods may be
// called at any time, also before and after Run, from any goroutine.
//
// # Restarts
//
// What is wanted comes from the Store each time. With [Config].State the rest survives
// as well: backoff, which is durable before the dial that it accounts for, what was
// learned about relays, and up to when what is confirmed is complete, which is never
// later than what is durable in the Store. So a restart within QuickReconnect costs
// what happened in between, and what was fetched in the last minute before it: that is
// how often it is noted. Each thing that can't be kept, or read again, costs
// traffic and nothing else.
//
// # Inside
//
// One goroutine, the loop, owns what is wanted, in flight, confirmed and followed;
// it decides with the pure package internal/plan. Each connection has a goroutine
// of its own for the conversation (internal/session, pure as well). Events of all
// connections go through one pipeline: known ids dropped, ids and signatures
// checked by a pool of workers, judged, saved in batches. The pipeline is bounded,
// and a store that is slow slows the reading of relays.
package sync
