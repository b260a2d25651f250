// Package gitserve serves bare repositories over smart HTTP, as GRASP-01 requires. Every client may
// fetch, and may push the refs of the newest authorized state event.
//
//	repos, err := gitserve.Open("data/git", gitserve.RepositoriesConfig{})
//	p, err := purgatory.Open(ctx, relay, repos, git, git, kept, purgatory.Config{})
//	handler, err := gitserve.New(repos, authority, gitserve.Config{})
//	server := &http.Server{Addr: addr, Handler: handler.Middleware(relay), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
//
// [Repositories] manages the folders, with one lock per repository for purgatory and pushes.
// [Handler] serves /<npub>/<identifier>.git, and passes browsers to [Pages]. It reads and judges a
// whole push before git runs. [Staging] stores pushes for pull requests whose events are not stored.
//
// Clients share git processes, open requests and memory by package limit. While others wait, a
// request of a client slower than 64 KiB/s is ended, so slow clients need a proxy that buffers
// answers. The [http.Server] needs timeouts, because otherwise idle connections stay open forever.
package gitserve
