// Package khatruadapter embeds graspsync in a khatru relay.
//
//	s, err := khatruadapter.New(relay, db, identity, khatruadapter.Config{Sync: relaysync.Config{State: records}})
//	if err != nil {
//		return err
//	}
//	go s.Run(ctx)
//
// New adds the hooks of the backend, and hooks that report published events to the
// [relaysync.SyncManager] and refuse deleted ones. Remove your own StoreEvent, ReplaceEvent and
// QueryEvents hooks, because New returns [ErrHooks] if the relay has one.
//
// # When hooks are called
//
// Synced events, which the SyncManager has verified and judged, bypass khatru's AddEvent, which ignores
// deletions and superseded versions and panics on a d tag without a value. The hooks of the relay are
// called with a context without connection, for which [IsSynced] returns true.
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
//   - "error:" is temporary, like a panic. The event is retried.
//   - Any other message is final and remembered for days, so a hook that refuses old events or unknown
//     authors should check IsSynced.
//
// A slow hook slows sync. After a crash, hooks may have missed the last stored event.
//
// # Held events, full disk and life cycle
//
// A policy that holds events ([relaysync.Config].Holder) reports their end with [Sync.Release] or
// SyncManager.NotifyRemoved, and calls [Sync.Room] before it stores one.
//
// If Config.Free reports less than MinFree, clients receive "error: no room on the disk", and other
// events are retried until there is room.
//
// Broadcasts have a queue of 1,024 events, because a client that does not read blocks them. Further
// events are stored and counted, not broadcast. Run removes expired events (NIP-40) within a minute.
//
// Do not call New while the relay serves. The caller closes relay and backend.
package khatruadapter
