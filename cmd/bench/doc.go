// Command bench measures the work of GRASP sync, and prints it as tables with targets.
//
//	go run ./cmd/bench                   # everything: many minutes
//	go run ./cmd/bench -quick            # small amounts: whether it works, not how fast
//	go run ./cmd/bench -row catchup,canned -count 3
//	go run ./cmd/bench -row catchup -cpuprofile cpu.prof -memprofile mem.prof
//
// With -count what is compared is measured so many times, in turn, and the medians count.
// Profiles are of the measured work of ours alone: each work has files of its own, of the last
// time that it was measured.
//
// # First catch-ups
//
// A first catch-up is how a relay that has nothing fetches and saves all that another relay
// has. The rows catchup, larger, canned and relays10 measure it, and stores, present and memory what
// is beside it. The events are signed ones of a hub: 50 people, 8 tags and about 1,159 bytes
// an event, announcements, states, patches, pull requests, issues, and what was said about
// them; always the same, and kept in the folder -cache. Relays run in another process, so that
// the client's CPU time is known apart; they share the machine's cores with it:
//
//   - khatru, with its events in memory, indexed and ready, newest first and at most 500 an
//     answer (NIP-77 excepted), behind a proxy that counts bytes;
//   - canned: events as ready bytes, many in one write, by a websocket of its own, so that the
//     relay is not what limits.
//
// The clients catch up in turn in the same run, each time into an empty sync/memstore, which
// suits go-nostr better than the slicestore of its examples:
//
//   - ours by NIP-77 and by pages: a SyncManager with its default policy that knows one
//     bootstrap relay, with NIP-77 and without. BatchWindow is 50 ms: the default, 5 s, is
//     waited for before each layer and would be most of the time that is measured; what it
//     takes is shown beside it. All else is default.
//   - NegentropySync: nip77.NegentropySync of go-nostr.
//   - PaginatorWithInterval: SimplePool.PaginatorWithInterval of go-nostr without a pause
//     between pages.
//
// What is not equal: the BatchWindow above; 50 people, which suits a verifier that takes signatures
// of one key together; and go-nostr is built as go get has it, in pure Go, where its tag libsecp256k1
// would make it faster. All else favours the others. They are given a filter for everything, {}, on a relay
// that has nothing else. Ours works as it does in earnest: it learns from announcements which
// repositories to ask for, from what tags these which events to ask for next, and asks by tags,
// so that what tags two of them crosses the wire twice where there is no NIP-77; it judges each
// event, compares ids with content, which go-nostr leaves out, and opens live subscriptions
// besides. All check all signatures.
//
// Measured are the time until the last event is saved and until the client says that it has
// everything (ours publishes that once a second), CPU seconds of the client, user and system
// together, and bytes from and to the relay until it says so. A catch-up of go-nostr's that
// hangs or ends without some event is thrown away, made again and counted; all others ended
// with each event in the store, unchanged.
//
// The row stores says how much dearer a catch-up is than writing the same events into the same
// database, 256 at a time, which is how many a SyncManager saves at once; both include the CPU
// time of closing the database, which writes what was put off. The row present compares the
// bytes with those of one reconciliation of everything, by go-nostr's implementation on both
// sides, and of the events that are missing; live subscriptions, which no reconciliation has,
// are counted apart. The row memory has the heap collected often, and takes off what the
// Store alone would hold of the events that it has by then.
//
// On a machine that is busy otherwise the times say little, and ours, which checks signatures
// on all cores, loses most; CPU seconds and bytes hold.
package main
