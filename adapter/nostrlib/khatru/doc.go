// Package khatruadapter embeds graspsync in a relay on fiatjaf.com/nostr/khatru.
//
//	s, err := khatruadapter.New(relay, db, identity, khatruadapter.Config{
//		ApplyPolicyToClients: true, Sync: relaysync.Config{State: records},
//	})
//	if err != nil {
//		return err
//	}
//	defer s.Close()
//	return gate.ListenAndServe(ctx, ":3334", gate.New(relay, gate.Config{}), s.Run)
//
// [Open] is New with strings and defaults. New replaces relay.UseEventstore(db, max); Config.MaxQuery is
// max. Its hooks report published events to the [relaysync.SyncManager] and refuse deleted ones. Held
// events, a full disk, broadcasts and the life cycle are as in adapter/khatru.
//
// # Hooks
//
// Set your hooks before New, which then calls them. If one is set later, Run returns [ErrReplaced].
//
//	OnEvent        Published events: first. Synced events: before they are stored, or before
//	               the policy judges them if it holds events. Also before a release.
//	DeleteEvent    When an event leaves the backend.
//	OnEventSaved   For each newly stored event.
//	AllowDeleting  Before a deletion is stored, for each event that it would remove.
//	OnRequest      For each query, unless the server is closing.
//
// Other hooks can be set at any time. OnEventDeleted is also called for events that sync removes. For
// synced events the context has no connection, [IsSynced] returns true, and the message of OnEvent
// decides as in adapter/khatru. relay.DisableExpirationManager panics without UseEventstore.
//
// # Differences for clients
//
// An answer is read completely, up to 8 MiB, before it is sent. If the backend fails, the subscription or
// the connection of the reconciliation is closed. Refused are events whose id follows nostrlib but not
// NIP-01, and deletions with an e tag without a valid id. Deletions hold after a restart, and requests
// to vanish (NIP-62) are executed.
package khatruadapter
