// Command bench measures a catch-up: how long a relay that has nothing takes to
// fetch and save all that another relay has, and what that costs. It holds
// benchmarks only.
//
//	go test -bench CatchUp -benchtime 3x ./internal/bench
//
// The other relay is khatru with its events in memory, indexed and ready, newest
// first and at most 500 an answer (NIP-77 excepted). It has 20,000 signed events of
// a hub: 50 people, 8 tags and about 1,159 bytes an event, announcements, states,
// patches, pull requests, issues, and what was said about them. It and the proxy in
// front of it that counts bytes run in another process, so that the client's CPU time
// is known apart; they share the machine's cores with it.
//
// Four clients catch up in turn in the same run, as often as -benchtime says, each
// time from an empty sync/memstore, which suits go-nostr better than the slicestore
// of its examples:
//
//   - ours/nip77 and ours/pages: a SyncManager with its default policy that knows
//     one bootstrap relay, with NIP-77 and without. BatchWindow is short: the
//     default, 5 s, would be most of the time that is measured. AllowPlaintext and
//     egress.Config.Allow let it reach the loopback address. All else is default.
//   - gonostr/NegentropySync: nip77.NegentropySync of go-nostr.
//   - gonostr/Paginator: SimplePool.PaginatorWithInterval of go-nostr without a
//     pause between pages.
//
// What is not equal favours the others. They are given a filter for everything,
// {}, on a relay that has nothing else. Ours works as it does in earnest: it learns
// from announcements which repositories to ask for, from what tags these which
// events to ask for next, and asks by tags, so that what tags two of them crosses
// the wire twice where there is no NIP-77; it judges each event, compares ids with
// content, which go-nostr leaves out, and opens live subscriptions besides. All
// check all signatures.
//
// Reported are, as medians per catch-up, the time until the last event is saved
// (ns/op) and until the client says that it has everything (done-s/op; ours publishes
// that once a second), CPU seconds of the client and of relay and proxy, user and
// system together, and bytes from and to the relay, these until it says so. A catch-up
// that does not end within a minute or ends without some event is thrown away, tried
// again and counted, as hung/op and incomplete/op; all others ended with each event in
// the store, unchanged. At the end a line for each pair says how ours compares. Under
// the race detector only ours runs: go-nostr has data races.
//
// On a machine that is busy otherwise the times say little, and ours, which checks
// signatures on all cores, loses most; CPU seconds and bytes hold. For profiles there
// is BenchmarkOurs.
package main
