// Package khatruadapter embeds graspsync in a relay on fiatjaf.com/nostr/khatru.
//
//	s, err := khatruadapter.New(relay, db, identity, khatruadapter.Config{ApplyPolicyToClients: true})
//	if err != nil {
//		return err
//	}
//	defer s.Close()
//	return gate.ListenAndServe(ctx, ":3334", gate.New(relay, gate.Config{}), s.Run)
//
// [Open] is New with strings and defaults.
//
// New replaces relay.UseEventstore(db, max); Config.MaxQuery is max. New returns [ErrHooks] if the relay
// has hooks of a database. The hooks of New report published
// events to the [relaysync.SyncManager] and refuse events that a stored deletion covers. With
// Config.ApplyPolicyToClients they also refuse events that the policy does not accept.
//
// # Hooks
//
// A relay has one hook of each kind. Set your hooks before New, which then calls them. A hook that
// is set later would replace the hook of New, so Run returns [ErrReplaced].
//
//	OnEvent        Published events: first. Synced events: before they are stored or, if the
//	               policy holds events, before the policy judges them, so that no git data is
//	               fetched for a refused author. Also before a held event is released.
//	               EventState of the SyncManager shows the message of a refusal.
//	DeleteEvent    When an event leaves the backend because of a deletion, a request to
//	               vanish, expiry, moderation or a newer version.
//	OnEventSaved   For each newly stored event. With DeleteEvent, a second store such as a
//	               search index can follow the backend.
//	AllowDeleting  Before a published or synced deletion is stored, for each event that it
//	               would remove. If an event must stay, the deletion is refused.
//	OnRequest,     For each query, unless the server is closing.
//	OnCount
//
// New does not touch other hooks, which can be set at any time. OnEventDeleted is also called for
// events that sync removes, and PreventBroadcast for every event sent to a subscriber. With
// Config.Store.Hides, New also wraps PreventBroadcast. For synced events the context
// has no connection: [khatru.GetConnection] returns nil, and [IsSynced] returns true.
//
// The message of an OnEvent hook decides about a synced event:
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
// Do not call relay.DisableExpirationManager, which panics without UseEventstore; New handles expiry.
//
// # Differences for clients
//
// An answer is read completely, up to 8 MiB, before it is sent. If the backend fails, the
// subscription or the connection of the reconciliation is closed, because nostrlib backends do not
// report errors and an empty answer would look complete. A reconciliation includes all matching
// events. An event whose id follows nostrlib but not NIP-01 is refused, because nostrlib escapes
// fewer control characters and other relays would refuse the event.
//
// Deletions hold after a restart, and requests to vanish (NIP-62) are executed. New executes deletions
// itself, because khatru deletes by all d tags, and stops after a part if an event must stay. A
// published deletion is refused if an e tag has no valid id.
//
// khatru answers an unreadable message with a NOTICE that names no event or subscription, because
// it calls no hook before its parser. Behind package gate, an EVENT receives OK and a REQ receives
// CLOSED.
//
// # Held events
//
// A policy that holds events ([relaysync.Config].Holder) reports their end with [Sync.Release] or
// SyncManager.NotifyRemoved, and events that it holds again with SyncManager.NotifyHeld. Package graspadapter
// contains such a policy.
//
// # Full disk
//
// If Config.Free reports less than MinFree, clients receive a message that begins with "error: no
// room on the disk", before the policy decides. Synced and released events fail and are retried
// until there is room. A policy that stores held events on the same disk must call [Sync.Room]
// first.
//
// # Broadcasts and expiry
//
// Broadcasts have their own goroutine and a queue of 1,024 events, because a client that does not
// read blocks them. If the queue is full, events are stored but not broadcast, and counted. Run
// waits up to one second for the last broadcast.
//
// Run removes expired events (NIP-40) and calls the hooks. The relay's own expiry manager misses
// synced events and calls no hooks.
//
// # Life cycle
//
// Do not call New while the relay serves. Run blocks until its context ends; other methods can be
// called at any time. The relay and the backend belong to the caller, who calls Close before
// closing the backend.
package khatruadapter
