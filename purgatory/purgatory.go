package purgatory

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/keyed"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
	"github.com/graspsync/graspsync/purgatory/internal/syncqueue"
	"github.com/graspsync/graspsync/state"
)

// Message is what a client is told whose event waits.
const Message = "purgatory: won't be served until git data arrives"

// Sentinels of Run and [Purgatory.Ready].
var (
	// ErrRunning is returned by a second call of Run.
	ErrRunning = errors.New("already run")
	// ErrStarting says that the repositories were not listed yet.
	ErrStarting = errors.New("the repositories are still being listed")
	// ErrLost says that most repositories have no announcement. None of them leaves before the
	// operator confirms that, or their events are back.
	ErrLost = errors.New("most repositories have no announcement, so their events may be lost: restore these, or confirm that the repositories leave")
)

// Purgatory holds events until their git data is here. It is made by [Open]. All
// methods may be called concurrently.
type Purgatory struct {
	ran atomic.Bool

	// set by Open, read-only
	cfg     *Config
	report  *report
	relay   containedRelay
	repos   containedRepositories
	git     containedGit
	keep    state.Store                     // panics of a write are errors
	step    func(name string)               // called after each durable step
	ended   chan struct{}                   // closed when Run ends
	looking *keyed.Locks[graspsync.RepoRef] // held during a look at a repository
	engine  *engine

	// what is remembered; each guards its own data
	inbox       *inbox
	table       *repoTable
	departures  *departures
	sessions    *fetchSessions
	servers     *servers
	pending     *pendingEvents
	reader      *reader
	refUpdater  *refUpdater
	quota       *prQuota
	maintenance *maintenance
}

// Open reads what waits from a store, repairs what a crash has left, and returns when
// repositories can be read again. Nothing is fetched before Run. The error wraps
// [ErrConfig] and names every argument that can't be used. A store for tests is
// [state.NewMemory]; [state.Open] returns one that survives a restart.
func Open(ctx context.Context, relay Relay, repos Repositories, git GitFetcher, store state.Store, cfg Config) (*Purgatory, error) {
	return open(ctx, relay, repos, git, store, cfg, func(string) {}, rand.Uint64()|1)
}

// open is Open, with somebody who is told of each durable step, and what the waits are
// lengthened by at random.
func open(ctx context.Context, relay Relay, repos Repositories, git GitFetcher, store state.Store, cfg Config,
	step func(name string), seed uint64,
) (*Purgatory, error) {
	cfg = cfg.withDefaults()
	errs := []error{cfg.validate()}
	for name, missing := range map[string]bool{
		"relay": relay == nil, "repos": repos == nil, "git": git == nil, "store": store == nil,
	} {
		if missing {
			errs = append(errs, errors.New(name+" is nil"))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	p := newPurgatory(relay, repos, git, store, cfg, step, seed)
	if err := p.engine.recall(ctx); err != nil {
		return nil, err
	}
	if err := p.pending.load(ctx); err != nil {
		return nil, err
	}
	if err := p.departures.load(ctx); err != nil {
		return nil, err
	}
	if err := p.recoverAll(ctx); err != nil {
		return nil, err
	}
	return p, nil
}

func newPurgatory(relay Relay, repos Repositories, git GitFetcher, store state.Store, cfg Config, step func(name string), seed uint64) *Purgatory {
	r, f := newReport(&cfg), newRepoTable()
	p := &Purgatory{
		cfg: &cfg, report: r, step: step,
		relay: containedRelay{relay, r}, repos: containedRepositories{repos, r}, git: containedGit{git, r}, keep: containedStore{store, r}, ended: make(chan struct{}),
		looking: keyed.NewLocks[graspsync.RepoRef](), inbox: newInbox(r), table: f, sessions: newFetchSessions(&cfg, r),
		maintenance: newMaintenance(r, f),
	}
	p.departures = &departures{store: p.keep}
	p.servers = newServers(&cfg, r, p.keep)
	p.pending = newPendingEvents(&cfg, r, p.inbox, f, p.sessions, p.relay, p.keep, step)
	p.reader = &reader{cfg: &cfg, relay: p.relay, pending: p.pending}
	p.refUpdater = newRefUpdater(&cfg, f, p.repos, p.git, p.keep, step)
	p.quota = newPRQuota(&cfg, r, p.git, p.pending, f, p.reader, p.refUpdater, p.maintenance)
	p.engine = newEngine(p, seed)
	return p
}

// Held returns the stamps of the events that wait and match a filter, as of one moment. What is
// stored, and waits on for another repository, is not among them. An event is stored before it
// waits no longer: who wants to have all that is here asks Held first, and then the [Relay].
func (p *Purgatory) Held(filter nostr.Filter) []graspsync.Stamp { return p.pending.held(filter) }

// Announcements returns the announcements under an identifier that wait, and have not
// expired.
func (p *Purgatory) Announcements(identifier string) []*nip34.Announcement {
	if list := p.pending.announcements(identifier); list != nil {
		return slices.Clip(list.hard)
	}
	return nil
}

// Remembered returns the announcements under an identifier that wait, those that expired
// softly, which a new state of one of their maintainers revives, and of those whom these list
// the announcements that wait with them.
func (p *Purgatory) Remembered(identifier string) []*nip34.Announcement {
	if list := p.pending.announcements(identifier); list != nil {
		return slices.Clip(list.soft)
	}
	return nil
}

// Generation is another one whenever Announcements or Remembered would return something else
// for an identifier, and nil where they return nothing.
func (p *Purgatory) Generation(identifier string) any {
	if list := p.pending.announcements(identifier); list != nil {
		return list
	}
	return nil
}

// Knows reports whether somebody has an announcement that waits under an identifier, softly
// expired or not, or is listed in one, without looking at these. It may report that of others.
func (p *Purgatory) Knows(identifier string, who graspsync.PubKey) bool {
	return p.pending.knows(identifier, who)
}

// PullRequest returns the pull request, or update of one, with this id that waits;
// nil if none does.
func (p *Purgatory) PullRequest(id graspsync.EventID) *nip34.PullRequest {
	e, _ := p.pending.get(id)
	return e.Pull
}

// Event returns the event with this id that waits, the zero Event if none does. An announcement
// that has expired softly waits.
func (p *Purgatory) Event(id graspsync.EventID) graspsync.Event {
	e, _ := p.pending.get(id)
	return e.Signed()
}

// Submitted reports whether the event with this id waits, and if so, whether a client
// submitted it.
func (p *Purgatory) Submitted(id graspsync.EventID) (byUser, waits bool) {
	e, waits := p.pending.get(id)
	return e.ByUser, waits
}

// EventsOf returns the events of an author that wait, in order of their ids.
func (p *Purgatory) EventsOf(author graspsync.PubKey) (out []graspsync.Event) {
	for _, e := range p.pending.ofAuthor(author) {
		out = append(out, e.Signed())
	}
	return out
}

// AllAnnouncements returns all announcements that wait and have not expired, in order
// of their repositories.
func (p *Purgatory) AllAnnouncements() []*nip34.Announcement {
	return p.pending.allAnnouncements()
}

// Lacking returns the repositories that lack git data, each with whether a git server may still
// have it: not if each of its servers failed or lacked the data several times, if its
// announcement has expired softly, or if no event names git data of it. A repository that is yet
// to be looked at counts as one that lacks data which may be had.
func (p *Purgatory) Lacking() map[graspsync.RepoRef]bool {
	out := make(map[graspsync.RepoRef]bool)
	for _, e := range p.pending.all() {
		if e.Class == refplan.Announcement {
			out[e.Repos[0]] = false
		}
	}
	p.table.addLacking(out)
	return out
}

// Pushing tells that a push is about to move refs, and must be called while it has the
// lock: whoever gets that next would take a part of what a state says for something to
// be undone. As long as such a state waits, what it says of these refs is not moved
// back to what an older one says. It is not kept on the disk: after a restart the
// refs are those of the older state until the data of the newer one is complete.
func (p *Purgatory) Pushing(ref graspsync.RepoRef, refs []nip34.RefName) {
	p.pending.pushing(ref, refs)
}

// Settled waits until a repository was looked at for what was told of it before, or ctx ends,
// whose error it wraps: what a push has made complete is served then, and its default branch
// and the other repositories of those who have a say in it are what they say. That such a look
// fails is not waited for: it is made again by and by.
func (p *Purgatory) Settled(ctx context.Context, ref graspsync.RepoRef) error {
	return p.table.await(ctx, ref)
}

// PullBytes returns how many bytes pull requests of authors who are no members take up at most in
// the repositories of an owner, as far as that was measured since the start.
func (p *Purgatory) PullBytes(owner graspsync.PubKey) int64 { return p.quota.ofOwner(owner) }

// Ration says which of some pull requests a push may not make the refs of, that brings so
// many bytes for them, and why; for the others it makes room. It must be called when git
// is about to make them, with the lock of the repository, which is in dir.
func (p *Purgatory) Ration(ctx context.Context, ref graspsync.RepoRef, dir string, pulls []*nip34.PullRequest, bytes int64) (map[graspsync.EventID]string, error) {
	return p.quota.forPush(ctx, ref, dir, pulls, bytes)
}

// Ready returns nil if repositories come and go as their announcements do. The error wraps
// [ErrStarting] until Run has listed the repositories, and [ErrLost] while most of those in service
// have no announcement.
func (p *Purgatory) Ready() error { return p.departures.err() }

// ConfirmDepartures has the repositories leave for which Ready returns [ErrLost], and returns their
// number. Their folders are kept for [Times].Departed.
func (p *Purgatory) ConfirmDepartures() int {
	refs := p.departures.confirm()
	for _, ref := range refs {
		p.inbox.tell(left(ref))
	}
	return len(refs)
}

// Maintain puts one repository in order at once, whatever that costs: when it returns,
// what no ref has and no event names that waits is gone, and so are the logs of refs. It
// is for who must take something down, after the events are gone that name it. The error
// wraps [ErrNoRepository], or [ErrInUse] if it should be called again.
func (p *Purgatory) Maintain(ctx context.Context, ref graspsync.RepoRef) (Maintained, error) {
	return p.maintain(ctx, ref, true)
}

// Announced returns the announcement of a repository, stored or waiting, and who has a say in
// it; nil if there is none.
func (p *Purgatory) Announced(ctx context.Context, ref graspsync.RepoRef) (a *nip34.Announcement, members map[graspsync.PubKey]struct{}, err error) {
	return p.reader.announcement(ctx, ref)
}

// AuthorizedState returns the newest state that decides about the refs of a repository,
// stored or waiting, whether or not its objects are here: what a push must match. It
// is nil if there is none. One that no repository can be does not count while it waits.
//
// The error wraps [ErrInUse] while refs of the repository that were being moved when something
// failed are still to be taken back: nobody else is to move them before. It is looked at soon.
func (p *Purgatory) AuthorizedState(ctx context.Context, ref graspsync.RepoRef) (*nip34.State, error) {
	if p.refUpdater.doubts(ref) {
		p.touch(ref)
		return nil, fmt.Errorf("repository %s is to be mended: %w", graspsync.Printable(ref.String()), ErrInUse)
	}
	g, err := p.reader.gather(ctx, ref, false)
	if err != nil {
		return nil, err
	}
	r := &refplan.Repository{Ref: ref, Members: g.Family.Authority(ref).Members()}
	p.table.recallUnfit(g, r)
	return g.Authorized(r), nil
}

// Run hunts, releases and expires until ctx ends, of which it returns the cause;
// [ErrRunning] if it was called before. No goroutine and no child process outlives it.
func (p *Purgatory) Run(ctx context.Context) error {
	if p.ran.Swap(true) {
		return ErrRunning
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	e := p.engine
	end := p.servers.start(ctx)
	e.resume()
	e.wg.Go(func() { p.check(ctx) })
	e.wg.Go(func() { p.servers.sweep(ctx) })
	e.wg.Go(func() { p.sweep(ctx) })
	e.wg.Go(func() { p.runMaintenance(ctx) })
	e.loop(ctx)
	e.wg.Wait()
	p.sessions.discardAll()
	end()
	close(p.ended)
	return context.Cause(ctx)
}

// Status returns what waits, and what was.
func (p *Purgatory) Status() Status {
	st := Status{At: time.Now(), Maintenance: p.maintenance.snapshot()}
	p.report.count(&st)
	p.pending.count(&st)
	st.Unconfirmed = p.departures.unconfirmed()
	return st
}

// errNotRunning is returned by ask before Run and after it.
var errNotRunning = errors.New("not running")

// ask has the engine say what is done to get the data of a repository.
func (p *Purgatory) ask(ctx context.Context, ref graspsync.RepoRef) (syncqueue.About, error) {
	if !p.ran.Load() {
		return syncqueue.About{}, errNotRunning
	}
	answer := make(chan syncqueue.About, 1)
	p.inbox.put(inquiry{ref, answer})
	select {
	case about := <-answer:
		return about, nil
	case <-p.ended:
		return syncqueue.About{}, errNotRunning
	case <-ctx.Done():
		return syncqueue.About{}, context.Cause(ctx)
	}
}

// Collector returns the metrics, computed when they are asked for. The caller
// registers it on a registry of its own. namespace goes before their names, without
// an underscore; with an empty one they have the names that operators know.
func (p *Purgatory) Collector(namespace string) prometheus.Collector {
	return newCollector(p.Status, p.report, namespace)
}
