// Package purgatory holds events until their git data has arrived, fetches the data, and releases
// events and refs together (GRASP-01, GRASP-02).
//
// An announcement is held until its repository has received any data. A repository state is held
// until every object that it names is in our repository, complete with its history. A pull request
// is held until its tip commit is in our repository, complete with its history. A held event is not
// served. It is on the disk before the client receives an answer.
//
// A release is tried before any fetch, because our repositories may have the data, and again after
// each fetch and each push. Missing objects are fetched from git servers.
//
//	p, err := purgatory.Open(ctx, relay, repositories, git, git, store, purgatory.Config{})
//	...
//	go p.Run(ctx)
//	answer, err := p.Submit(ctx, event, source) // events that the relay's policy accepts
//	p.Pushed(ctx, repository, refs)             // after a push
//	p.NotifyStored(event)                       // after the relay stored an event
//	p.NotifySuperseded(event)                   // after the relay replaced, deleted or removed one
//
// # Release
//
// At no time, not even after a crash, are the refs of a served event or the objects of a ref missing.
// The steps of a release become durable in this order:
//
//	held            the event is on the disk; the client receives an answer
//	created         the repository exists, so that it can receive a push
//	fetched         objects are in a quarantine
//	promoted        the objects are complete, in the repository, and safe from gc
//	shared          the objects of another repository are copied
//	journalled      the planned ref changes are on the disk; after a crash, stale locks are
//	                removed, and partial changes undone
//	aligned         the refs are those of the newest authorized state
//	stored          the relay serves the event
//	struck off      the event is no longer held
//
// From shared to struck off the repository is locked. A repeated release skips steps that are done.
// The steps of an expiry:
//
//	removed         the repository of an announcement is deleted or, with refs of pull requests,
//	                retired
//	expired softly  the announcement is kept for a while; a state event revives it
//	remembered      the id is recorded, because sync must not submit the event again
//	expired         the event is no longer held
//
// # Pushes
//
// The newest state of a member decides, stored or held. If a push brings a part of that state, an older
// complete state decides about the other refs. Data that is pushed before its event is staged outside
// of the repository.
//
// A pull request is served as soon as one repository that it names has its ref. The others get the ref
// until it expires. The hourly check removes refs of pull requests that are neither held nor stored.
//
// # Inside
//
// A held state takes this way.
//
//	intake.go            Submit holds the event, and queues a survey
//	pending.go           keeps it on the disk and in memory
//	internal/workqueue   gives a survey or a release its turn
//	release.go           surveys: reads events (reader.go), and queues a release of each repository
//	release.go           releases: reads refs and events (reader.go), and finds the missing objects
//	fetch.go             queues a fetch; internal/syncqueue decides when which git server is asked
//	fetch.go             asks for the objects that internal/servers chooses, and releases again
//	release.go           moves refs (internal/refupdate), stores the event, and ends the hold
//
// internal/refplan decides about repositories, objects and refs. repotable.go keeps what a
// repository lacks, entry.go is the record of a held event, pulls.go is about pull requests. remover.go
// ends holds, checks.go finds lost repositories, and maintenance.go packs and prunes.
//
// # Life cycle and concurrency
//
// [Purgatory.Run] owns all goroutines. All methods may be called concurrently, before, during and after
// Run. Only [Purgatory.Submit], [Purgatory.AdmitPullRefs], [Purgatory.Maintain], [Purgatory.Drop],
// [Purgatory.RemovePull] and [Purgatory.RemoveRepository] wait for git.
//
// # Plugging in
//
// An embedder provides a [Relay], [Repositories] and a [GitFetcher]. The Fetcher of package gitfetch is
// a GitFetcher with the git operations on our own repositories, the Fake of package fetchtest the same
// in memory. Package purgatorymock has mocks. A panic in a method of the embedder is counted, and is an
// error of that call.
package purgatory
