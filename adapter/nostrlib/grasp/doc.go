// Package graspadapter gives a GRASP-01 server on fiatjaf.com/nostr/khatru/grasp what GRASP-02 asks for.
//
//	gs := grasp.New(relay, "repositories")
//	server, err := graspadapter.New(ctx, gs, db, identity, graspadapter.Config{State: records})
//	if err != nil {
//		return err
//	}
//	defer server.Close()
//	return gate.ListenAndServe(ctx, ":3334", gate.New(relay, gate.Config{}), server.Run)
//
// [Open] is New with strings.
//
// New stands in for relay.UseEventstore, and for khatruadapter.New, whose rules about hooks
// hold: set yours before. Package sync follows the relays that the repositories list; announcements, states
// and pull requests are held until their git data is here, which is hunted for at their clone
// URLs or pushed by a client; then refs move, the event is stored in the relay's backend and
// sent to its subscribers.
//
// # The folder
//
// Repositories stay where the GraspServer has them, RepositoryDir/<owner>/<identifier>, as bare
// repositories; those that are there keep their settings. Identifiers which it could not serve, with
// other characters than letters, digits and "_.-", have folders with names of ours, and are served
// as well. Beside the owners' folders there are three more: incoming, staged and departed. One
// process at a time may use the folder.
//
// A repository is this server's if a stored announcement of it lists the identity as a relay and in its clone
// URLs. Any other is put into departed within two hours of the first start, and removed a week later, which the log
// tells. A GraspServer by itself serves whatever is announced, wherever that says it is: try the identity out with
// a copy of the folder first.
//
// # What its operator decides
//
// [Server.Control] blocks and allows, purges, and has relays and git data tried again, while the server runs; behind package
// admin that is NIP-86. What is blocked is not taken, followed, connected to, nor served as git data, and has no page;
// events that are here stay served until they are purged, but for deletions and requests to vanish.
//
// # What remains of the GraspServer, and what does not
//
// Its hooks OnRead and OnWrite are asked before git sees anything. Before refs are listed OnRead is, also
// for a push, which is told all of them, and OnWrite for a push: what nobody may read nobody can push to;
// its page of a repository that is not blocked, its entries in the NIP-11 document and whatever else is on the
// relay's router are as they were. The three requests that git makes are answered by
// package gitserve. Its own handlers can't have purgatory behind them:
//
//   - They know only states and announcements that the relay serves. One that is held for its
//     data would have no data pushed: nobody could push to a new repository.
//   - They ask for states of the owner's only. With more than one maintainer the newest decides.
//   - What a push is allowed is judged once, before its data has come. A newer state may be
//     served meanwhile, whose refs the push then moves back; purgatory, which moves refs
//     too, has a lock against that.
//   - Refs outside of refs/heads, refs/tags and refs/nostr are not judged: anybody may push them.
//   - Data for an event that is not here is refused, and a pull request that is held
//     would be such an event.
//   - A push is in memory as a whole, from anybody, and is durable only when the disk pleases:
//     a release promises that a ref is there before its event is served.
//   - For the list of refs they run the program that the request names.
//
// So a push is judged by what is served and what is held, of all who have a say, again under the
// lock, and by its limits; see package gitserve.
//
// # Limits
//
// The relay's router changes some paths before it looks at them, such as those with "//". The
// connection of a client is khatru's: put a gate.Gate before the relay, and give its Wait to Pace of Sync.
package graspadapter
