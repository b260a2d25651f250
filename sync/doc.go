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
//	  intake        known ids dropped, ids checked; relevance says whose it is, and so who pays
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
// What is cheap to check is checked before signatures are, and nothing unverified reaches
// the Policy or the Store. Each relay has two allowances, of 8 MiB each; an
// event counts as a 2,000th of that at least, or as its size.
//
// One is for what proves a relay hostile or broken, since nothing that we ask can lead to
// it: what was not asked for, is repeated, malformed or forged. It refills slowly
// (64 KiB a minute) and by the size of what is stored. A relay that has used it up is
// disconnected and left alone for at least an hour, as is one that has given
// three proofs of hostility within an hour.
//
// The other is for events that were asked for and turn out to be of no use: rejected,
// superseded, deleted, or waiting for something. That is not the doing of an honest relay,
// so it is never cut for it, only paced. All of the allowance comes back in 200 s, and what
// an event took of it at once if that is stored. No more history is asked for at once than
// what is left allows, and of what was asked for all is looked at as it comes, on credit if
// its events are large: the next request waits, not what is on its way, so that a live
// event never stands behind history. What a relay sends live, or more than it was asked
// for, gets no credit: live events that are not for us are left out then, counted as
// "unread" and caught up with later; what ignores a limit is read as slowly as the
// allowance comes back. What refers to our repositories has as much of its own, and never
// waits for the rest. Of that, what comes live from authors whose last events were refused,
// or from unknown ones where such of its kind about repositories of the same owner were, is left out when that is used up; what others send has as much again, so that it
// does not wait behind them. Of unknown ones, whom nothing tells from whoever has a key for
// each event, what comes live is looked at as well for what the others leave over, above
// half of each allowance.
//
// # While there is no room
//
// What the Policy has no room for ([graspsync.Later]) costs a relay its allowance as what it rejects,
// but once: it is kept whole as long as that can be, and judged again in turns, the relays
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
