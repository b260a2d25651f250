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
// [Open] is New with strings and defaults. New replaces relay.UseEventstore and khatruadapter.New. Set
// your hooks before New. The server holds events until their git data is fetched or pushed.
//
// # Folder
//
// Repositories stay in RepositoryDir/<owner>/<identifier>. Identifiers that the GraspServer cannot serve
// have folders with generated names. Only one process can use RepositoryDir.
//
// A repository whose stored announcement does not list the identity as relay and clone URL is moved to
// the folder departed within two hours of the first start, and deleted a week later. So try the identity
// with a copy of the folder first.
//
// # Changes to the GraspServer
//
// OnRead and OnWrite are called before git requests, both when a push lists refs. Package pages serves
// the pages of repositories, and / if the relay's router does not. Package gitserve answers git, because
// GraspServer accepts only pushes for served events, reads only states of the owner, checks a push
// before its data arrives, accepts any push outside refs/heads, refs/tags and refs/nostr, and reads a
// push into memory.
//
// Put a gate.Gate before the relay to limit client connections, and pass its Wait to Pace of Sync.
package graspadapter
