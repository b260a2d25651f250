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
// # Life cycle
//
// [New] validates its arguments and starts nothing. [SyncManager.Run] blocks until its context ends
// and leaves no goroutine behind. All other methods may be called at any time and concurrently,
// also before and after Run.
//
// # Restarts
//
// The targets are read from the Store at each start. With [Config].State other state also survives:
// the backoff of relays, which is durable before each dial, learned limits of relays, and the time
// up to which each relay is complete. That time never exceeds the state of the Store and is saved
// about once a minute. So a restart within 15 minutes fetches only events since then. State that
// cannot be written or read costs additional traffic and nothing else.
//
// # Architecture
//
// One goroutine, the loop, owns the plan (internal/plan), which decides which relays are followed
// and which events are fetched. Each connection has a goroutine that runs a state machine
// (internal/session). Both are pure. Events of all connections go through one bounded pipeline, so
// a slow Store slows the reading of relays. Calls go down in this list:
//
//	loop              runs the plan; targetBuilder makes its input, statusBuilder the Status
//	relayConn         one connection to a relay
//	ingest            the pipeline: submit, verify and writer
//	  inflight        bytes and copies of the events in the pipeline
//	  fetchClaims     ids that are requested from one of several relays
//	  writer          one goroutine that judges events and saves them in batches
//	  reprocessQueue  events that must be judged again
//	selfSubscriber    merges changes of the index for the loop
//	storeView         the View of the Policy, from the index and the Store
//	storeReader       reads the Store for the index
//	internal/index    hosted repositories, root events and the replies to them
//
// # Limits for relays
//
// Cheap checks precede signature checks, and the Policy and the Store get only verified events. An
// announcement that [Policy].Lists refuses is rejected before its signature is checked if no hosted
// repository lists its author. Only its id is remembered. If the author is listed later, the
// announcement is requested again and verified. So a relay with many repositories of other services
// is read at full speed.
//
// Each relay host has an allowance of 8 MiB for useless bytes: unrequested, repeated and forged
// events. A forged event costs 1/2,000 of it, and 64 KiB are restored per minute. A relay that
// exceeds the allowance, or gives three proofs of hostility within an hour, is disconnected for at
// least an hour. Requested events cost no allowance, even if they are rejected.
//
// Events in the pipeline take at most [Limits.InFlight] bytes, and a relay host at most a quarter
// of them. A host has at most 512 events waiting for their signature check, and hosts take turns. A
// relay without room is not read.
//
// # Postponed events
//
// Events that the Policy answers with [graspsync.Later] are kept whole while there is memory, which
// all relays share, and are judged again in turn. If one of these events finds room, all are judged
// again immediately. If only the id of an event is left, it is requested again after an hour. The
// time doubles with each repetition.
//
// # Failures of the Store
//
// Events that could not be judged or saved are retried until they can be. The first such events
// stay in memory within [Limits.InFlight]. Of 10,000 more only the ids are kept. Further events are
// dropped and counted as "unsaved", and their relay counts as incomplete. When saving works again,
// events without their data are requested by id, and relays with dropped events are asked for all
// events since then. An event on which the Store fails or hangs is isolated and saved alone.
package sync
