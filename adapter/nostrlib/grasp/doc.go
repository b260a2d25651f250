// Package graspadapter adds sync and purgatory (GRASP-02) to a GRASP-01 server on
// fiatjaf.com/nostr/khatru/grasp.
//
//	gs := grasp.New(relay, "repositories")
//	server, err := graspadapter.New(ctx, gs, db, identity, graspadapter.Config{State: records})
//	if err != nil {
//		return err
//	}
//	defer server.Close()
//	return gate.ListenAndServe(ctx, ":3334", gate.New(relay, gate.Config{}), server.Run)
//
// [Open] is New with strings and defaults.
//
// New replaces relay.UseEventstore and khatruadapter.New. Set your hooks before New, see package
// khatruadapter. The server follows the relays that its repositories list. It holds announcements,
// states and pull requests until their git data is fetched from clone URLs or pushed. Then it
// updates refs, stores the event in the backend and broadcasts it.
//
// # Folder
//
// Repositories stay in RepositoryDir/<owner>/<identifier> of the GraspServer as bare repositories
// and keep their settings. Identifiers with characters other than letters, digits and "_.-", which
// the GraspServer cannot serve, have folders with generated names. The folders incoming, staged and
// departed are next to the owners' folders. Only one process can use RepositoryDir.
//
// A repository belongs to this server if a stored announcement lists the identity as a relay and in
// its clone URLs. Any other repository is moved to departed within two hours of the first start and
// deleted a week later, with a log line. A GraspServer alone serves every announced repository, so
// try the identity with a copy of the folder first.
//
// # Operators
//
// Commands of [Server.Control] block, allow and purge, and retry relays and git data while the
// server runs. Package admin offers them as NIP-86. Blocked authors, repositories and events are not
// accepted or synced, blocked relays are not connected to, and git data and pages of blocked
// repositories are not served. Stored events are served until they are purged, except blocked
// deletions and requests to vanish.
//
// # Changes to the GraspServer
//
// OnRead and OnWrite are called before git requests. A push first lists refs, which calls both
// hooks, so a client needs read access to push. Package pages serves the pages of repositories, and /
// if the relay's router does not. The NIP-11 fields and other routes of the relay stay unchanged. Package gitserve answers the three requests of git, because
// the handlers of GraspServer do not work with purgatory:
//
//   - They accept only pushes for served events, so no client could push to a new repository, whose
//     announcement is held, or for a held pull request.
//   - They read only states of the owner. With several maintainers the newest state decides.
//   - They check a push once, before its data arrives. A newer state can be served in the meantime,
//     and the push would then revert its refs. Purgatory also updates refs and needs a lock.
//   - They accept any push to refs outside refs/heads, refs/tags and refs/nostr.
//   - They read a push of any client into memory, and do not sync it to disk. A release must
//     guarantee that a ref is durable before its event is served.
//   - To list refs, they run the program that the request names.
//
// Package gitserve checks a push against served and held events of all maintainers, again under the
// lock of the repository, and applies limits.
//
// # Limits
//
// The relay's router redirects some paths, such as paths with "//". Put a gate.Gate before the
// relay to limit client connections, and pass its Wait to Pace of Sync.
package graspadapter
