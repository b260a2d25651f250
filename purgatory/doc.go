// Package purgatory holds events until their git data has arrived, fetches the data, and releases
// events and refs together (GRASP-01, GRASP-02).
//
// An announcement is held until its repository has received any data. A repository state is held
// until every object that it names is in our repository, complete with its history. A pull request
// is held until its tip is in our repository. A held event is not served. It is on the disk before
// the client receives an answer.
//
// When an event arrives, a release is tried before any fetch, because the data may be in our
// repository or in one of a related owner. Only the objects that are still missing are fetched from
// git servers. The release is tried again after each fetch and each push.
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
// objects are missing. No held event is lost before it expires. For that reason, the steps of a
// release become durable in a fixed order. The tests kill the process after each step:
//
//	held            the event is on the disk; the client receives an answer
//	created         the repository exists, so that it can receive a push
//	fetched         objects are in a quarantine, which is deleted after a crash
//	promoted        the objects are complete, in the repository, and safe from gc
//	shared          other repositories that need the objects have them as well
//	journalled      the planned ref changes are on the disk; after a crash, Open removes
//	                stale locks and undoes partial changes, and so does the next
//	                release if only git was killed
//	aligned         the refs are those of the newest authorized state
//	stored          the relay serves the event
//	struck off      the event is no longer held
//
// From promoted to struck off the lock of the repository is held. No other repository waits for it.
// The maintainers are read under the lock. A release skips steps that are already done, so a crash
// at any step costs no more than the steps that follow. The steps of an expiry:
//
//	removed         the repository of an announcement is deleted; a repository with refs
//	                of pull requests is retired and kept for a while
//	expired softly  the announcement is kept for a while; a state event revives it
//	remembered      the id is recorded, so that sync does not submit the event again
//	expired         the event is no longer held
//
// # Pushes
//
// The newest state of a maintainer decides, stored or held. If a push brings only a part of that
// state, the refs that were pushed stay, and an older state with complete data decides about the
// other refs. A state is not held if a newer state of its author is stored. Data that is pushed
// before its event is staged outside of the repository, where no client can fetch it. When the
// event arrives, the objects that it names are imported from the staging area.
//
// A pull request is served as soon as one repository that it names has its ref, so that a
// repository that fails or lacks data does not delay the others. Until the pull request expires,
// the other repositories get the ref as well. A ref of a pull request that is neither held nor
// stored, for example because it was deleted, is removed by the second hourly check that finds it.
//
// # Inside
//
// A held event is surveyed and released. If data is missing, the data is fetched and promoted, and
// the goroutine of the fetch releases the repository again.
//
// Each step has a file. intake.go receives events. release.go finds the repositories of an event and
// releases them. fetch.go sends a request to one server. remover.go ends holds and removes
// repositories. checks.go finds lost repositories, and maintenance.go packs
// and prunes. Each of these types guards its own state:
//
//	pendingEvents  the held events, in memory and on the disk
//	engine         decides when to act; handles messages in order, without I/O
//	refplan        decides which state counts, which refs change, which objects are
//	               missing and which events may be served (internal/refplan)
//	syncqueue      decides which server is asked next (internal/syncqueue)
//	servers        bytes received from git servers, objects they lack, and waits
//	               (internal/servers)
//	fetchSessions  data of incomplete fetches
//	refupdate      moves refs and owns the journal (internal/refupdate)
//
// # Life cycle and concurrency
//
// [Open] reads the held events and repairs repositories after a crash. Afterwards repositories can be read. [Purgatory.Run] owns all goroutines and leaves none. All methods may be called concurrently, before, during and after Run. They do not wait for git, except [Purgatory.Submit] as documented there, and [Purgatory.Maintain] and [Purgatory.RemoveRepository], which return when they are done.
//
// # Plugging in
//
// An embedder provides a [Relay], [Repositories] and a [GitFetcher]. The Fetcher of package gitfetch
// is a GitFetcher, and performs the git operations on our own repositories. The Fake of package
// fetchtest does the same in memory. Package fetchtest also has a test suite, and package
// purgatorymock has mocks. A panic in a method of the embedder counts as an error of
// that call and is retried. Status counts such panics.
package purgatory
