// Package khatruadapter embeds graspsync in a khatru relay.
//
//	s, err := khatruadapter.New(relay, db, identity, khatruadapter.Config{})
//	if err != nil {
//		return err
//	}
//	go s.Run(ctx)
//
// New adds hooks that report published events to the [relaysync.SyncManager] and refuse events that
// a stored deletion covers, and the hooks of the backend. Remove your own StoreEvent, ReplaceEvent
// and QueryEvents hooks; New returns [ErrHooks] if the relay has one.
//
// # When hooks are called
//
// Synced events bypass khatru's AddEvent, which checks neither id nor signature, ignores deletions
// and superseded versions, and panics on a d tag without a value. The SyncManager verifies and
// judges them. Then the hooks of the relay are called with a context without connection, for which
// [IsSynced] returns true.
//
//	RejectEvent               Published events: before they are stored. Synced events: before
//	                          they are stored, or before the policy judges them if it holds
//	                          events. Also before a held event is released.
//	DeleteEvent               After an event left the backend.
//	OverwriteDeletionOutcome  Before a deletion is stored, for each event that it would
//	                          remove. If an event must stay, the deletion is refused.
//	OnEventSaved              For each newly stored event.
//	PreventBroadcast          For each event that is sent to a subscriber.
//
// A published deletion is executed after every hook has accepted it and before the client receives
// OK. Hooks can be added until Run.
//
// The message of a RejectEvent hook decides about a synced event:
//
//   - "rate-limited:" is ignored, because limits of clients do not apply to relays.
//   - "auth-required:" is ignored when an event that a client submitted is released.
//   - "error:" is temporary, like a panic. The event is retried with increasing delays.
//   - Any other message is final and remembered for days. A hook that refuses old events or
//     unknown authors also stops them from being synced, unless it checks IsSynced.
//
// Hooks for synced events run one after the other on the goroutine that stores, so a slow hook
// slows sync. After a crash, hooks may have missed the last stored event.
//
// # Held events, full disk and life cycle
//
// A policy that holds events ([relaysync.Config].Holder) reports their end with [Sync.Release] or
// SyncManager.NotifyRemoved, and calls [Sync.Room] before it stores one.
//
// If Config.Free reports less than MinFree, clients receive "error: no room on the disk", and
// synced and released events are retried until there is room.
//
// Broadcasts have a queue of 1,024 events, because a client that does not read blocks them. More
// are stored, not broadcast, and counted. Run removes expired events (NIP-40) within a minute, and
// first executes stored deletions that a crash may have interrupted.
//
// Do not call New while the relay serves. The relay and the backend belong to the caller.
package khatruadapter
