// Command bench measures GRASP sync and prints tables with targets.
//
//	go run ./cmd/bench                   # everything: many minutes
//	go run ./cmd/bench -quick            # small amounts: tests the benchmark, not the speed
//	go run ./cmd/bench -row catchup,present -count 3
//	go run ./cmd/bench -row present -cpuprofile cpu.prof
//
// With -count, compared works are measured that many times in turn, and medians are printed.
// A profile covers the whole process, which is without the relays of most rows.
//
// # First catch-ups
//
// In a first catch-up an empty relay fetches and saves all events of another relay. The row catchup
// measures it, and present the cost where nearly all events are present. The events are
// signed events of a hub: 50 people, 8 tags and about 1,200 bytes per event. There are
// announcements, states, patches, pull requests, issues and comments. They are always the same and
// cached in the folder -cache. The relay runs in another process, so that the CPU time of the
// client is separate; both share the cores of the machine. khatru stores its events in memory with
// indexes, newest first, and returns at most 500 per answer, except by NIP-77.
//
// The clients catch up in turn in the same run, each into an empty sync/memstore, which suits
// go-nostr better than the slicestore of its examples:
//
//   - Our client uses NIP-77 or pages. It is a SyncManager with the default policy and one
//     bootstrap relay with or without NIP-77. BatchWindow is 50 ms, because the default wait of 5 s
//     before each layer would dominate the time.
//   - NegentropySync is nip77.NegentropySync of go-nostr.
//   - PaginatorWithInterval is SimplePool.PaginatorWithInterval of go-nostr without a pause between
//     pages.
//
// Some differences favor our client: the BatchWindow; 50 people, because our verifier checks
// signatures of one key together; and the default build of go-nostr in pure Go, which the tag
// libsecp256k1 would make faster. All other differences favor go-nostr. It uses the filter {} for
// everything, on a relay without other events. Our client works as in production: it learns from
// announcements which repositories to ask for, and asks by tags, so that without NIP-77 an event
// with two tags can cross the wire twice. It judges each event, compares ids with content, which
// go-nostr does not, and opens live subscriptions. All clients check all signatures.
//
// The command measures the time until the last event is saved and until the client reports the end,
// which our client does once a second. It also measures CPU seconds of the client, user and system,
// and bytes from and to the relay. A catch-up of go-nostr that hangs or misses an event is counted
// and repeated. All others end with each event stored unchanged.
//
// On a busy machine, times mean little, and our client, which checks signatures on all cores,
// suffers most. CPU seconds and bytes stay valid.
package main
