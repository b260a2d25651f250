// Package khatruadapter embeds graspsync in a relay on fiatjaf.com/nostr/khatru.
//
//	s, err := khatruadapter.New(relay, db, identity, khatruadapter.Config{GateDirect: true})
//	if err != nil {
//		return err
//	}
//	defer s.Close()
//	return gate.ListenAndServe(ctx, ":3334", gate.New(relay, gate.Config{}), s.Run)
//
// [Open] is New with strings.
//
// New stands in for relay.UseEventstore(db, max), with Config.MaxQuery for max. It gives the
// relay hooks: what clients publish is the own feed of the [relaysync.SyncManager], what a
// stored deletion covers is refused, and with Config.GateDirect so is what the policy does
// not accept.
//
// # Hooks of yours
//
// A relay has one hook of each kind. Set yours before New, which keeps them and calls them; a hook
// that is set later would take the place of ours, and Run returns [ErrReplaced] then.
//
//	OnEvent        first of all, for what clients publish. For what comes by sync before it is
//	               stored, and where the policy holds events before the policy is asked,
//	               so that no git data is fetched for whom the hook keeps out. Again
//	               when an event is released that was held. What it refuses is remembered
//	               for EventState of the SyncManager, in its words.
//	StoreEvent,    for what clients publish, before the backend stores it: an error refuses
//	ReplaceEvent   it. For what is synced or released after the backend has stored it: a
//	               second store is fed so. ErrDupEvent is no error.
//	DeleteEvent    when an event leaves the backend: by a deletion, a request to vanish, expiry,
//	               moderation, or a newer version.
//	OnEventSaved   for each event that is newly stored.
//	AllowDeleting  before a deletion is stored, for each event here that it would remove: one
//	               that must stay has the deletion refused, also one that comes by sync.
//	QueryStored    a relay that has one keeps it, and Count: they answer clients then, with
//	               their limits also for a reconciliation.
//	OnRequest, OnCount
//	               as they are, but when the server is ending.
//
// All others are the relay's as they are, and may be set at any time. OnEventDeleted is called for
// what is removed by sync too, and PreventBroadcast for what is sent to a subscriber; with Config.Withholds
// that and QueryStored are among ours, which call yours.
// [IsSynced] tells a hook that it is called for an event that came by sync: its context has
// no connection then, [khatru.GetConnection] returns nil.
//
// A rejection of a synced event that begins with "rate-limited:" does not count, since
// limits for clients are not for relays, nor does "auth-required:" for what is released
// that a client submitted. One that begins with "error:", and a hook that panics, is no
// verdict: the event is tried again, with longer and longer pauses. Every other one is
// remembered for days: a hook that keeps old events or unknown authors from being
// published keeps them from being synced, unless it asks IsSynced. The first such refusal
// is logged.
//
// Hooks for synced events are called one after the other by whoever stores: one that takes its
// time slows syncing, and should hand over to a goroutine. After a crash a hook that follows
// the backend may not have been called for what was stored last.
//
// Where UseEventstore was called before New, its hooks are taken for yours. It works, but nobody is told of the older versions
// that it replaces, each event is looked up once more, and other servers can reconcile (NIP-77) with no more than 20 times
// the maximum that it was given. Run logs that. Its ReplaceEvent is the backend's: boltdb's takes two identifiers that begin
// alike for one where both are 64 hex digits, and removes the other. Where it was not called expiry is ours, and
// relay.DisableExpirationManager must not be called: it panics without UseEventstore.
//
// # What is different for clients
//
// An answer is read to its end before any of it is sent, of 8 MiB at most, and where the backend
// fails a subscription is closed, and the connection of a reconciliation: nostrlib's backends
// say nothing of a failure, and an empty answer would be taken for all there is. A reconciliation is
// about all that matches, however much that is. An event whose id is nostrlib's but not that of
// NIP-01 is refused: nostrlib escapes fewer control characters, so nobody else would take it.
// Deletions hold after a restart, and requests to vanish (NIP-62) are executed. A client's deletion with an
// e or a tag that khatru would execute otherwise than others do, or fail at when the rest is done, is refused:
// one that is malformed, an address that no event can have or of another author, any address if it is dated 0.
//
// khatru answers a message that it can't parse by a NOTICE that names neither an event nor a subscription, because it calls
// no hook before its parser. Behind a gate (package gate) an EVENT gets an OK and a REQ a CLOSED, which name what is wrong.
//
// # Events that are held
//
// A policy that holds events ([relaysync.Config].Holder) says later, through [Sync.Release] and Removed of the
// SyncManager, what became of them, and through its Held what it holds again. Package
// graspadapter has one.
//
// # A disk that is full
//
// Where Config.Free says that less than MinFree is left, clients hear an error that begins
// with "error: no room on the disk", before the policy is asked. What comes by sync, and what
// is released, fails as with a backend that does, and is tried again until there is room. A
// policy that keeps what it holds on the same disk asks [Sync.Room] first.
//
// # Broadcasting and expiry
//
// Broadcasting runs on a goroutine of its own behind a bounded queue, because a
// client that does not read blocks it: the queue then overflows, which is counted,
// and import goes on. Run waits a second for it at the end.
//
// The relay's own manager of expiry (NIP-40) misses what its query does not give and what is
// synced, and tells nobody. Run removes expired events itself, and calls the hooks.
//
// # Life cycle
//
// New must not be called while the relay serves. Run blocks until its context ends; all other
// methods may be called at any time. The relay and the backend stay the embedder's: Close first,
// then close the backend.
package khatruadapter
