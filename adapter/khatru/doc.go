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
// SyncManager, and then pass the relay's own RejectEvent hooks, with a context that
// has no connection: [khatru.GetConnection] returns nil and [khatru.GetAuthed] "".
// A rejection that begins with "rate-limited:" does not count, since limits for
// clients are not for relays; a hook that panics is an error. What is newly stored
// is passed to the relay's OnEventSaved hooks and broadcast. [IsSynced] tells a hook
// that it is called for such an event.
//
// # Events that are held
//
// A policy that holds events ([relaysync.Holder]) says later, through [Sync.Release] and
// [Sync.Removed], what became of them, and through [Sync.Held] what it holds again.
// [Information] serves a NIP-11 document that
// says what a GRASP server has to.
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
// New changes the relay's hooks and must not be called while the relay serves.
// Hooks may be added until Run. Run blocks until its context ends; all other
// methods may be called at any time. The relay and the backend stay the embedder's.
package khatruadapter
