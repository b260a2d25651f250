// Package gitserve serves bare repositories over smart HTTP, as GRASP-01 requires. Every client may
// fetch, and may push the refs of the newest authorized state event.
//
//	repos, err := gitserve.Open("data/git", gitserve.RepositoriesConfig{})
//	p, err := purgatory.Open(ctx, relay, repos, git, git, kept, purgatory.Config{})
//	handler, err := gitserve.New(repos, authority, gitserve.Config{})
//	server := &http.Server{Addr: addr, Handler: handler.Before(relay), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
//
// [Repositories] manages the repository folders. Folder names contain no text of clients. Purgatory
// and pushes share one lock per repository. [Handler] serves /<npub>/<identifier>.git, and passes
// browsers to [Pages]. It reads and judges a whole push before git runs. Changes of a push are durable
// before the lock is released.
//
// Package limit shares git processes, open requests and memory among clients. Config.Client must be
// set behind a proxy. A waiting request holds no resource that other requests wait for. While other
// requests wait, a request of a client slower than 64 KiB/s is ended. Slow clients need a proxy
// that buffers answers.
//
// A client may push data for a pull request before its event. [Staging] stores each such push in
// its own folder, within quotas (MaxStaged of [RepositoriesConfig]), and removes the folder after
// StageHold. No ref points to staged objects, and clients cannot fetch them. When the event
// arrives, purgatory imports the objects that the event names. Several clients may push for one
// event. A push that a quota refused succeeds after its event is stored.
//
// One push may contain branches and refs of events that are not stored. A refused command does not
// affect other commands, unless the push is atomic. Git receives only the objects that the branches
// need. Other objects are staged.
//
// Set the timeouts of the [http.Server], because otherwise idle connections stay open forever.
package gitserve
