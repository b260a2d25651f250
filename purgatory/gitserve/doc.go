// Package gitserve serves bare repositories over smart HTTP, as a GRASP server has to
// (GRASP-01): everybody may fetch, and push what the newest authorised state says.
//
//	repos, err := gitserve.Open("data/git", gitserve.RepositoriesConfig{})
//	p, err := purgatory.Open(ctx, relay, repos, fetcher, kept, purgatory.Config{})
//	git, err := gitserve.New(repos, authority, gitserve.Config{})
//	server := &http.Server{Addr: addr, Handler: git.Before(relay), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
//
// [Repositories] are folders whose names contain no text of strangers, each with the lock that purgatory and
// pushes share. [Handler] serves /<npub>/<identifier>.git, to a browser as a page. A push is read to its end and
// judged before git sees any of it. Its changes are on the disk, folders included, before the lock is free.
//
// Package limit shares git processes, open requests and memory among clients (Config.Client: set it behind a
// proxy). A request that waits holds nothing that others wait for. While others wait, a request ends if its
// client is slower than 64 KiB/s. A proxy that buffers answers spares slow clients that.
//
// Anybody may push data for a pull request before its event. The staging area ([Staging]) has a folder for each
// push, within quotas (MaxStaged of [RepositoriesConfig]), and removes it after StageHold. No ref leads to it,
// and no client can fetch it by id. When the event arrives, purgatory takes the objects that it names. Several
// clients may push for one event. A push that is refused because of a quota succeeds when its event is stored.
//
// One push may be for branches and for events that are not stored. If a command is refused, the others are done,
// unless the push is atomic. Git gets the objects that the branches need and no others, and the rest is staged.
//
// What happens before a request is read is the task of the [http.Server]: without its timeouts, connections that
// send nothing stay for ever.
package gitserve
