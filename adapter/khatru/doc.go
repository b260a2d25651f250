// Package khatruadapter embeds graspsync in a khatru relay.
//
//	s, err := khatruadapter.New(relay, db, identity, khatruadapter.Config{})
//	if err != nil {
//		return err
//	}
//	go s.Run(ctx)
//
// New adds its hooks to the relay: what clients publish is the own feed of the
// [relaysync.SyncManager], what a stored deletion covers is refused, and with
// Config.GateDirect so is what the policy does not accept. A relay that has no
// hooks for storing and querying yet gets those of the backend as well, through
// [eventstoreadapter.Store.Backend]; one that has them keeps them.
//
// # Events that come by sync
//
// They do not go through khatru's AddEvent, which checks neither id nor signature,
// does not execute deletions, can't tell a stored version from a superseded one,
// and crashes on a d tag without a value. They are verified and judged by the
// SyncManager, and meet the relay's own hooks with a context that has no connection:
// [khatru.GetConnection] returns nil and [khatru.GetAuthed] "". [IsSynced] tells a hook
// that it is called for such an event.
//
// # Which hooks are called when
//
//	RejectEvent               for what clients publish by khatru. For what comes by sync
//	                          before it is stored, and where the policy holds events
//	                          before the policy is asked, so that no git data is fetched
//	                          for whom a hook keeps out. Again when an event is released
//	                          that was held, and when one that a client published is judged
//	                          again since it gave way: it is dropped if it is refused then.
//	                          What one that was there before New refuses to a client is
//	                          recorded for EventState of the SyncManager. What one that was
//	                          added later refuses only the client hears.
//	StoreEvent, ReplaceEvent  for what clients publish by khatru, first of all ours, which
//	                          asks a policy that holds events. For what is synced or
//	                          released after the backend has stored it: a second store is
//	                          fed by its hook, and the backend's own says ErrDupEvent.
//	DeleteEvent               after an event has left the backend: by a deletion, a request
//	                          to vanish, expiry, or a newer version, but for one of a
//	                          client's that a ReplaceEvent hook of the relay's replaces.
//	OverwriteDeletionOutcome  before a deletion is stored, for each event here that it
//	                          would remove. One that must stay has the deletion refused.
//	QueryEvents               for clients, and for the targets of deletions.
//	OnEventSaved              for each event that is newly stored.
//	PreventBroadcast          for each event that is sent to a subscriber.
//
// A client's deletion is executed when all have accepted it, before the client hears OK;
// khatru by itself would do so before asking anybody. That takes the relay's hooks that
// query and delete to be there before New; all others may be added until Run.
//
// A rejection of a synced event that begins with "rate-limited:" does not count, since
// limits for clients are not for relays, nor does "auth-required:" for what is released
// that a client submitted. One that begins with "error:", and a hook that panics, is no
// verdict: the event is tried again, with longer and longer pauses. Every other one is
// remembered for days: a hook that keeps old events or unknown authors from being
// published keeps them from being synced, unless it asks IsSynced. The first such refusal
// is logged.
//
// Hooks for synced events are called one after the other by whoever stores, for each old
// event too while there is much to catch up with: one that takes its time, a webhook say,
// slows syncing, and should hand over to a goroutine. After a crash a hook that follows
// the backend may not have been called for what was stored last, and StoreEvent hooks may
// see an event again that a second store has.
//
// # Events that are held
//
// A policy that holds events ([relaysync.Config].Holder) says later, through [Sync.Release] and Removed of the
// SyncManager, what became of them, and through its Held what it holds again.
// [Information] serves a NIP-11 document that
// says what a GRASP server has to.
//
// # A disk that is full
//
// Where Config.Free says that less than MinFree is left, clients hear an error that begins
// with "error: no room on the disk", before the policy is asked. What comes by sync, and what
// is released, fails as with a backend that does, and is tried again until there is room. A
// policy that keeps what it holds on the same disk asks [Sync.Room] first. It is logged, once
// a minute, how many events that concerned.
//
// # Broadcasting and expiry
//
// Broadcasting runs on a goroutine of its own behind a bounded queue, because a
// client that does not read blocks it: the queue then overflows, which is counted,
// and import goes on. Run waits a second for it at the end.
//
// Khatru's tracking of expiry (NIP-40) is not reachable for events that do not go
// through AddEvent, and loses track at a restart of what a capped query misses. Run
// therefore removes expired events itself, with the relay's DeleteEvent hooks.
//
// # Life cycle
//
// New changes the relay's hooks and must not be called while the relay serves. Run executes
// again, at its start, the stored deletions that a crash may have left undone. It blocks until its context ends; all other
// methods may be called at any time. The relay and the backend stay the embedder's.
package khatruadapter
