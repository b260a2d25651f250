// Package gitserve serves bare repositories over smart HTTP, as a GRASP server has to
// (GRASP-01): everybody may fetch, and push what the newest authorised state says.
//
//	repos, err := gitserve.Open("data/git")
//	p, err := purgatory.Open(ctx, relay, repos, fetcher, kept, purgatory.Config{})
//	git, err := gitserve.New(repos, authority, gitserve.Config{})
//	server := &http.Server{Addr: addr, Handler: git.Before(relay), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
//
// [Repositories] are where they are: each in a folder whose name no stranger has
// chosen, with the lock that purgatory and pushes share. [Handler] answers
// /<npub>/<identifier>.git. A push is read to its end, and what it wants to change is
// judged, before git sees any of it; git then runs on our own disk, at its own speed,
// and what it answers is kept for its client, so that a slow one holds no lock and no
// place. Nobody waits for others longer than git works for them: places are shared by
// client, owner and repository (Config.Client: set it behind a proxy), and where there is
// no room for all, who is slowest has to leave.
//
// A client that is too slow in any case, or has said too late what it wants, is cut off.
// What happens before a
// request is read is a matter of the [http.Server]: without its timeouts, connections
// that send nothing stay for ever.
package gitserve
