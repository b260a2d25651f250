// Package gitserve serves bare repositories over smart HTTP, as a GRASP server has to
// (GRASP-01): everybody may fetch, and push what the newest authorised state says.
//
//	repos, err := gitserve.Open("data/git", gitserve.RepositoriesConfig{})
//	p, err := purgatory.Open(ctx, relay, repos, fetcher, kept, purgatory.Config{})
//	git, err := gitserve.New(repos, authority, gitserve.Config{})
//	server := &http.Server{Addr: addr, Handler: git.Before(relay), ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
//
// [Repositories] are where they are: each in a folder whose name no stranger has
// chosen, with the lock that purgatory and pushes share. [Handler] answers
// /<npub>/<identifier>.git, to a browser with a page. A push is read to its end, and what it wants to change is
// judged, before git sees any of it; git then runs on our own disk, at its own speed,
// and what it answers is kept for its client, so that a slow one holds no lock and no
// place. What it has changed is on the disk, folders included, before anybody else gets
// the lock. Nobody waits for others longer than git works for them: places are shared by
// client, owner and repository (Config.Client: set it behind a proxy), and where there is
// no room for all, who is slowest has to leave.
//
// Data for a pull request may be pushed before its event, by anybody. It lies in the
// staging area ([Staging]), a folder for each push, within quotas (MaxStaged of
// [RepositoriesConfig]), and goes as a whole after its StageHold: no ref leads to it, and
// nobody can fetch it by id. When the event comes purgatory takes from there what it names.
// Several may push for one event; it says whose data it is. A push that is refused for want
// of room can be made when its event is here.
//
// One push may be for branches and for events that are not here. If anything of it is
// refused all is. Else git is given what the branches need and no more, the rest is
// staged, and each ref is reported for itself; of an atomic push nothing is staged if git
// did not do the rest.
//
// A client that is too slow in any case, or has said too late what it wants, is cut off.
// What happens before a request is read is a matter of the [http.Server]: without its
// timeouts, connections that send nothing stay for ever.
package gitserve
