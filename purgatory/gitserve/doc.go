// Package gitserve serves bare repositories over smart HTTP, as GRASP-01 requires. Every client may
// fetch, and may push the refs of the newest authorized state event.
//
//	repos, err := gitserve.Open("data/git", gitserve.RepositoriesConfig{})
//	p, err := purgatory.Open(ctx, relay, repos, git, git, kept, purgatory.Config{})
//	handler, err := gitserve.New(repos, authority, gitserve.Config{})
//	server := &http.Server{Addr: addr, Handler: handler.Before(relay), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
//
// [Repositories] manages the repository folders, with one lock per repository for purgatory and
// pushes. [Handler] serves /<npub>/<identifier>.git, and passes browsers to [Pages]. It reads and
// judges a whole push before git runs.
//
// Clients share git processes, open requests and memory by package limit. Config.Client must be set
// behind a proxy. While other requests wait, a request of a client slower than 64 KiB/s is ended.
// Slow clients need a proxy that buffers answers.
//
// A client may push data for a pull request before its event. [Staging] stores each such push in
// its own folder, which clients cannot fetch. When the event arrives, purgatory imports the objects
// that it names. Otherwise the folder is removed after StageHold.
//
// Set the timeouts of the [http.Server], because otherwise idle connections stay open forever.
package gitserve
