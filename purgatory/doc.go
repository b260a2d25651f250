// Package purgatory holds events until their git data is here, hunts for it, and
// releases them together (GRASP-01, GRASP-02).
//
// An announcement waits until any data of its repository has come, a repository
// state until every object that it names is in our repository with all that the
// object needs, a pull request until its tip is. Who waits is not served, and is on
// the disk before anybody is told that it waits.
//
//	p, err := purgatory.Open(ctx, relay, repositories, fetcher, store, purgatory.Config{})
//	...
//	go p.Run(ctx)
//	answer, err := p.Submit(ctx, event, source) // what the relay's policy accepts
//	p.Pushed(ctx, repository, refs)             // after a push
//	p.Arrived(event)                            // after the relay stored something
//
// # Release
//
// At no moment, a crash included, is an event served whose refs are missing, or a ref
// whose objects are; and nothing that waits is lost before its time is over. To that
// end things become durable in one order. After each of these steps the process may
// be killed, and the tests do so:
//
//	held            the event is on the disk; now its sender is told
//	created         its repository is there, so that a push can come
//	fetched         objects are in a quarantine; it is swept after a crash
//	promoted        they are part of the repository, complete, and kept from gc
//	shared          another repository that needs them has them as well
//	journalled      it is written down which refs move; after a crash Open removes
//	                stale locks and takes back what git has not ended, and so does
//	                the next look if only git died
//	aligned         the refs are what the newest authorised state says
//	stored          the relay serves the event
//	struck off      it does not wait any more
//
// From promoted to struck off the repository is locked, for itself: no other one waits for
// what it takes. Who decides about its refs is asked after that. What is found done is not done again, so that a
// crash at any step costs no more than taking the next ones. An expiry becomes durable
// in these steps:
//
//	removed         the repository of an announcement; one with refs of pull requests
//	                leaves service, and is kept for a while
//	expired softly  the announcement is kept for a while: a state event revives it
//	remembered      the id, so that sync does not bring the event again
//	expired         it does not wait any more
//
// # Pushes
//
// What decides is the newest state of a maintainer, stored or waiting. A push may bring
// a part of it: what that has moved stays, while an older state whose data is complete
// decides about the other refs. A state that is older than one of its author that is
// stored does not wait. Data that comes before its event is staged outside of the
// repository, where nobody can fetch it. When the event comes, the objects that it names are
// taken from there.
//
// A pull request is served when its ref is in one repository that it is for: one that
// fails or has no data holds up no other. As long as its time is not over it gets the
// ref in the others as well. A ref whose event neither waits nor is stored, because it was
// deleted, say, is removed by the second hourly check that finds it.
//
// # Inside
//
// The way of an event that is held: held, surveyed, looked at, hunted for, fetched, promoted and
// looked at again by whoever fetched, released.
//
// Purgatory has the steps, one file each: intake.go takes events in, survey.go finds the repositories
// that an event concerns, release.go goes through the steps above with one of them, fetch.go asks one
// server, expirer.go and remover.go end what is over, checks.go finds what was lost, and maintenance.go
// keeps repositories in order. What is remembered lies in parts with a lock each:
//
//	pendingEvents  the events that wait, in memory and on the disk
//	engine         decides when: it handles one message after another, and does no I/O
//	refplan        decides what, in values: what is looked at, whose state decides, which refs change, what
//	               is missing, what may be served (internal/refplan)
//	syncqueue      decides which server is asked next (internal/syncqueue)
//	servers        what git servers sent, what they lack, and when they may be asked again
//	fetchSessions  data of fetches that are not complete
//	refUpdater     moves refs, and has the journal
//
// # Life cycle and concurrency
//
// [Open] reads what waits and repairs what a crash left; then repositories can be
// read. [Purgatory.Run] owns all goroutines, and leaves none. All methods may be
// called concurrently, before, while and after it runs. They never wait for git, with one
// exception that [Purgatory.Submit] names, and two for operators: [Purgatory.Maintain] and
// [Purgatory.RemoveRepository] return when it is done.
//
// # Plugging in
//
// [Relay], [Repositories] and [GitFetcher] are what an embedder gives. Package
// gitfetch is the GitFetcher for real repositories; package fetchtest has one in
// memory and a suite for any, package purgatorymock mocks. A panic in what an embedder
// gives counts as an error of that call, which is tried again as any; Status counts it.
package purgatory
