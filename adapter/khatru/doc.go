// Package khatruadapter embeds graspsync in a khatru relay.
//
//	s, err := khatruadapter.New(relay, db, identity, khatruadapter.Config{})
//	if err != nil {
//		return err
//	}
//	go s.Run(ctx)
//
// New adds hooks to the relay. They report published events to the [relaysync.SyncManager] and
// refuse events that a stored deletion covers. With Config.ApplyPolicyToClients they also refuse events that
// the policy does not accept. New adds the hooks of the backend, so remove your StoreEvent,
// ReplaceEvent and QueryEvents hooks of a database; New returns [ErrHooks] if the relay has one.
//
// # Synced events
//
// Synced events bypass khatru's AddEvent. AddEvent checks neither id nor signature, ignores
// deletions, does not recognize superseded versions, and panics on a d tag without a value. The
// SyncManager verifies and judges them. Then the hooks of the relay are called with a context
// without connection: [khatru.GetConnection] returns nil, [khatru.GetAuthed] returns "", and
// [IsSynced] returns true.
//
// # When hooks are called
//
//	RejectEvent               Published events: before they are stored. Synced events: before
//	                          they are stored or, if the policy holds events, before the
//	                          policy judges them, so that no git data is fetched for a
//	                          refused author. Also before a held event is released or
//	                          judged again, which drops the event if it is refused.
//	                          EventState of the SyncManager shows refusals to clients by
//	                          hooks that were set before New.
//	DeleteEvent               After an event left the backend because of a deletion, a
//	                          request to vanish, expiry or a newer version.
//	OverwriteDeletionOutcome  Before a deletion is stored, for each event that it would
//	                          remove. If an event must stay, the deletion is refused.
//	OnEventSaved              For each newly stored event. With DeleteEvent, a second store
//	                          such as a search index can follow the backend.
//	PreventBroadcast          For each event that is sent to a subscriber.
//
// A published deletion is executed after every hook has accepted it and before the client receives
// OK. (khatru executes deletions before its hooks decide.) Hooks can be added until Run.
//
// The message of a RejectEvent hook decides about a synced event:
//
//   - "rate-limited:" is ignored, because limits of clients do not apply to relays.
//   - "auth-required:" is ignored when an event that a client submitted is released.
//   - "error:" is temporary, like a panic. The event is retried with increasing delays.
//   - Any other message is final and remembered for days. A hook that refuses old events or
//     unknown authors also stops them from being synced, unless it checks IsSynced. The first
//     such refusal is logged.
//
// Hooks for synced events run one after the other on the goroutine that stores, so a slow hook
// slows sync and should start its own goroutine. After a crash, hooks may have missed the last
// stored event.
//
// # Held events
//
// A policy that holds events ([relaysync.Config].Holder) reports their end with [Sync.Release] or
// SyncManager.NotifyRemoved, and events that it holds again with SyncManager.NotifyHeld. [Information] serves
// the NIP-11 document of a GRASP server.
//
// # Full disk
//
// If Config.Free reports less than MinFree, clients receive a message that begins with "error: no
// room on the disk", before the policy decides. Synced and released events fail and are retried
// until there is room. A policy that stores held events on the same disk must call [Sync.Room]
// first. A full disk is logged once a minute.
//
// # Broadcasts and expiry
//
// Broadcasts have their own goroutine and a queue of 1,024 events, because a client that does not
// read blocks them. If the queue is full, events are stored but not broadcast, and counted. Run
// waits up to one second for the last broadcast.
//
// Run removes expired events (NIP-40) and calls DeleteEvent hooks, because khatru tracks only events
// that pass through AddEvent and, after a restart, only those that a capped query returns.
//
// # Life cycle
//
// Do not call New while the relay serves. Run first executes stored deletions again that a crash
// may have interrupted, and blocks until its context ends. Other methods can be called at any time.
// The relay and the backend belong to the caller.
package khatruadapter
