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
// ours and which relays they list, and those whom their owners list as maintainers, connects to these through the [Transport],
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
// later than what is durable in the Store. So a restart within 15 minutes costs
// what happened in between, and what was fetched in the last minute before it: that is
// how often it is noted. Each thing that can't be kept, or read again, costs
// traffic and nothing else.
//
// # Inside
//
// One goroutine, the loop, owns what is wanted, in flight, confirmed and followed;
// it decides with the pure package internal/plan. Each connection has a goroutine
// of its own for the conversation (internal/session, pure as well). Events of all
// connections go through one pipeline, which is bounded, so that a store that is slow
// slows the reading of relays. Calls go downwards:
//
//	loop         wants (what the index says, for the plan), overview (the Status), chronicle
//	scanner      has the Store read, by storeReader
//	conn         one connection; to the pipeline it is an origin
//	ingest       the pipeline, and what is told of events that go another way:
//	  intake        known ids dropped, ids checked; waits for room, of which each relay host has a part
//	  verification  workers: stored already? signatures
//	  writer        one goroutine: judged, saved in batches
//	  retrier       what failed, until it does not; saving is what others see of that
//	  listings      what follows from who lists whom
//	  absences      what is known and not here, and waits for something; news wakes the writer
//	  flights       what is on its way, and who counts on it
//	feed         merges what the index says of changes
//	storeView    the View: what the index knows, and questions to the Store
//	storeReader  reads the Store for the index, and what descends from what is there
//	index        what is ours of what is stored, and what it changes; of its tables descent
//	             says what descends from repositories and root events
//
// # What relays may cost
//
// Cheap checks precede signature checks, and nothing unverified reaches [Policy].Judge or the Store.
// Announcements that [Policy].Lists refuses, and whose author has nothing to do with a repository of ours,
// are rejected before their signature is checked. Only their ids are remembered, which were checked: if
// the author is listed later, the announcement is requested again and verified then. So a hub full of
// repositories of other services is read as fast as it serves.
//
// Each relay host has an allowance of 8 MiB for bytes that nothing we ask can lead to: unrequested,
// repeated and forged ones. A forged event counts as a 2,000th of it. 64 KiB come back each minute. The
// relay that exceeds it is disconnected and left alone for at least an hour, as is one that has given
// three proofs of hostility within an hour. Events that were requested cost no allowance, whatever becomes
// of them.
//
// Events on their way into the Store take bytes ([Limits.InFlight]) of which a relay host has at most a
// quarter, and a host has at most 512 events that wait for the check of their signature. Hosts take
// turns. A relay that finds no room is not read meanwhile.
//
// # While there is no room
//
// What the Policy has no room for ([graspsync.Later]) is kept whole as long as that can be, and judged again in turns, the relays
// sharing them; when there was room for one, so are all others at once. Of the rest the ids
// count as known, for an hour and longer each time; then their relay is asked for them.
//
// # While nothing can be saved
//
// Events that could not be judged or saved are tried again until they can, however often
// that fails. The first of them keep their bytes, within [Limits.InFlight]; of 10,000 more
// only the ids are kept, and asked for again. What finds no room there either is dropped,
// counted as "unsaved", and its relay counts as incomplete. As soon as something can be
// saved again, all that waited is asked for, and each relay of which something was dropped
// is asked what it has had since then. Events that the Store can't stand, or comes to no
// end with, are found out and saved apart from the others.
package sync
