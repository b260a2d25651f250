// Package purgatory holds events until their git data has arrived, fetches the data, and releases
// events and refs together (GRASP-01, GRASP-02).
//
// An announcement is held until its repository has received any data. A repository state is held
// until every object that it names is in our repository, complete with its history. A pull request
// is held until its tip is. A held event is not served. It is on the disk before the client receives
// an answer.
//
// A release is tried before any fetch, because the data may be in our repository or in one of a
// related owner. Objects that are still missing are fetched from git servers. The release is tried
// again after each fetch and each push.
//
//	p, err := purgatory.Open(ctx, relay, repositories, git, git, store, purgatory.Config{})
//	...
//	go p.Run(ctx)
//	answer, err := p.Submit(ctx, event, source) // events that the relay's policy accepts
//	p.Pushed(ctx, repository, refs)             // after a push
//	p.NotifyStored(event)                       // after the relay stored an event
//
// # Release
//
// At no time, not even after a crash, is an event served whose refs are missing, or a ref whose
// objects are missing. No held event is lost before it expires. The steps of a release become
// durable in this order:
//
//	held            the event is on the disk; the client receives an answer
//	created         the repository exists, so that it can receive a push
//	fetched         objects are in a quarantine, which is deleted after a crash
//	promoted        the objects are complete, in the repository, and safe from gc
//	shared          the objects of another repository are copied
//	journalled      the planned ref changes are on the disk; Open or the next release
//	                removes stale locks and undoes partial changes
//	aligned         the refs are those of the newest authorized state
//	stored          the relay serves the event
//	struck off      the event is no longer held
//
// From promoted to struck off the lock of the repository is held. A release skips steps that are
// already done, so it may be repeated after any crash. The steps of an expiry:
//
//	removed         the repository of an announcement is deleted; a repository with refs
//	                of pull requests is retired and kept for a while
//	expired softly  the announcement is kept for a while; a state event revives it
//	remembered      the id is recorded, so that sync does not submit the event again
//	expired         the event is no longer held
//
// # Pushes
//
// The newest state of a member decides, stored or held. If a push brings only a part of that
// state, the pushed refs stay, and an older complete state decides about the others. Data that is
// pushed before its event is staged outside of the repository, and imported when the event arrives.
//
// A pull request is served as soon as one repository that it names has its ref. Until it expires,
// the other repositories get the ref as well. The hourly check removes refs of pull requests that
// are neither held nor stored.
//
// # Inside
//
// intake.go receives events, and pending.go holds them. engine.go decides when to act. A pull
// request or push names its repositories. For a state or an announcement, survey.go finds them.
// release.go and internal/refplan release a repository and find out what it lacks. internal/syncqueue
// decides when which git server is asked, and fetch.go asks. internal/servers records bytes, absent
// objects and waits. internal/refupdate moves refs. remover.go ends holds, checks.go finds lost
// repositories, and maintenance.go packs and prunes.
//
// # Life cycle and concurrency
//
// [Open] reads the held events and repairs repositories after a crash. [Purgatory.Run] owns all
// goroutines. All methods may be called concurrently, before, during and after Run. They do not wait
// for git, except [Purgatory.Submit], [Purgatory.Maintain] and [Purgatory.RemoveRepository].
//
// # Plugging in
//
// An embedder provides a [Relay], [Repositories] and a [GitFetcher]. The Fetcher of package gitfetch
// is a GitFetcher, and performs the git operations on our own repositories. The Fake of package
// fetchtest does the same in memory. Package purgatorymock has mocks. A panic in a method of the
// embedder counts as an error of that call and is retried. Status counts such panics.
package purgatory
