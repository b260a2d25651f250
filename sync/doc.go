// Package sync keeps a relay that hosts Git repositories (NIP-34) in sync with all other relays
// that its repositories list (GRASP-02). Import it as relaysync:
//
//	import relaysync "github.com/graspsync/graspsync/sync"
//
//	manager, err := relaysync.New(store, transport, identity, relaysync.Config{})
//	if err != nil { ... }
//	go manager.Run(ctx)           // until ctx ends
//	manager.NotifyStored(event)   // for each stored event of a client
//
// A [SyncManager] reads from the [Store] which repositories this server hosts, and which relays
// their owners and maintainers list. It connects to these relays through the [Transport], fetches
// missing events, follows new events live, and retries failed relays. Received events are verified,
// judged by the [Policy] and saved.
//
// [SyncManager.Run] blocks until its context ends and leaves no goroutine behind. All other methods
// may be called at any time and concurrently. With [Config].State the backoff of relays, learned
// limits and the time up to which each relay is complete survive a restart.
//
// # Architecture
//
// One goroutine, the loop, owns the plan (internal/plan), which decides which relays are followed
// and which events are fetched. Each connection has a goroutine that runs a state machine
// (internal/session). Both are pure. A live event takes this way:
//
//	wstransport/conn.go  read, Receive: a message of a websocket
//	relayconn.go         onMessage, deliver: the session (session.go) checks that it was requested
//	ingest.go            submit, verifyAll: is it new and signed? A slow Store slows the relays
//	writer.go            judge, save: by the Policy (policy.go), in the Store
//	selfsubscriber.go    stored, closeWindow: the index finds changed repositories
//	loop.go              step: the plan dials relays, livesync.go opens subscriptions (reposyncindex.go)
//	relayconn.go         handle, send: the session makes the requests (Follow → openWaiting → send)
//
// While the announcement of a repository is held, only announcements and states of the repository
// are followed (followHeld).
//
// # Limits for relays
//
// Cheap checks precede signature checks, and the Policy and the Store get only verified events. Each
// relay host has an allowance of 8 MiB for unrequested, repeated and forged events. A relay that
// exceeds it, or gives three proofs of hostility within an hour, is disconnected for at least an
// hour. A relay without room in the pipeline ([Config].InFlight) is not read.
//
// # Pending events
//
// Events with a missing dependency, without room ([graspsync.Later]), or that could not be judged or
// saved, are kept whole while there is memory, which all relay hosts share. They are judged again
// when their dependency arrives, or in turn. If only the id is left, the event is requested again.
package sync
