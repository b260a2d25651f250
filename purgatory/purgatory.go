package purgatory

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/gitops"
	"github.com/graspsync/graspsync/purgatory/internal/keyed"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
	"github.com/graspsync/graspsync/purgatory/internal/refupdate"
	"github.com/graspsync/graspsync/purgatory/internal/servers"
	"github.com/graspsync/graspsync/purgatory/internal/syncqueue"
	"github.com/graspsync/graspsync/purgatory/internal/workqueue"
	"github.com/graspsync/graspsync/state"
)

// Message is the OK message for a client whose event is held.
const Message = "purgatory: won't be served until git data arrives"

// Errors of Run and [Purgatory.Ready].
var (
	ErrRunning  = errors.New("already run")
	ErrStarting = errors.New("the repositories are still being listed")
	// Most repositories have no announcement, or no announcement lists this service. The
	// repositories stay in service until the operator confirms their removal or that has changed.
	ErrLost = errors.New("most repositories have no announcement that lists this service: restore lost events, correct the name of the service, or confirm that the repositories leave")
)

// Purgatory holds events until their git data has arrived. It is created by [Open].
type Purgatory struct {
	ran atomic.Bool

	// set by Open, read-only
	cfg       *Config
	report    *report
	relay     safeRelay
	repos     safeRepositories
	git       gitops.Operations
	fetcher   GitFetcher
	keep      state.Store
	step      func(name string)
	releasing *keyed.Locks[graspsync.RepoRef]
	storing   *keyed.Locks[graspsync.EventID] // held while the relay stores an event
	jobs      *workqueue.Queue                // releases and surveys

	wg   sync.WaitGroup // of Run
	wake chan struct{}  // makes Run look for due work

	mu    sync.Mutex           // taken before other locks
	queue *syncqueue.SyncQueue // guarded by mu

	// each guards its own data
	table       *repoTable
	departures  *departures
	fetches     *fetches
	servers     *servers.Records
	pending     *pendingEvents
	refUpdater  *refupdate.Updater
	maintenance *maintenance
}

// Open reads the held events and repairs repositories after a crash. It fetches nothing. git is a
// Fetcher of package gitfetch or a Fake of package fetchtest. The error wraps [ErrConfig] and names
// every invalid argument. A store of [state.Open] survives a restart.
func Open(ctx context.Context, relay Relay, repos Repositories, git gitops.Operations, fetcher GitFetcher, store state.Store, cfg Config) (*Purgatory, error) {
	return open(ctx, relay, repos, git, fetcher, store, cfg, func(string) {}, rand.Uint64()|1)
}

// open is Open with a function that is called after each durable step, and a seed for random waits.
func open(ctx context.Context, relay Relay, repos Repositories, git gitops.Operations, fetcher GitFetcher, store state.Store, cfg Config,
	step func(name string), seed uint64,
) (*Purgatory, error) {
	cfg = cfg.withDefaults()
	errs := []error{cfg.validate()}
	for name, missing := range map[string]bool{
		"relay": relay == nil, "repos": repos == nil, "git": git == nil, "fetcher": fetcher == nil, "store": store == nil,
	} {
		if missing {
			errs = append(errs, errors.New(name+" is nil"))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	p := newPurgatory(relay, repos, git, fetcher, store, cfg, step, seed)
	now := time.Now()
	fetches, domains, err := p.servers.Load(ctx, now)
	if err != nil {
		return nil, err
	}
	p.queue.Restore(now, fetches, domains)
	if err := p.pending.load(ctx); err != nil {
		return nil, err
	}
	if err := readEach(ctx, p.keep, keyDepartures, func(string, []byte) error { p.departures.recorded = true; return nil }); err != nil {
		return nil, err
	}
	if err := p.recoverAll(ctx); err != nil {
		return nil, err
	}
	return p, nil
}

func newPurgatory(relay Relay, repos Repositories, git gitops.Operations, fetcher GitFetcher, store state.Store, cfg Config, step func(name string), seed uint64) *Purgatory {
	r, f := newReport(&cfg), newRepoTable()
	p := &Purgatory{
		cfg: &cfg, report: r, step: step,
		relay: safeRelay{relay, r}, repos: safeRepositories{repos, r}, git: git, keep: safeStore{store, r},
		jobs: workqueue.New(maxReleases), wake: make(chan struct{}, 1), queue: newSyncQueue(&cfg, seed),
		releasing: keyed.NewLocks[graspsync.RepoRef](), storing: keyed.NewLocks[graspsync.EventID](), table: f, departures: new(departures), fetches: newFetches(), fetcher: fetcher,
		maintenance: newMaintenance(r, f),
	}
	p.servers = servers.New(p.keep, servers.Config{
		MaxRepoDay: cfg.Limits.MaxRepoDay, MaxHostDay: cfg.Limits.MaxHostDay, MaxFetch: cfg.fixed.MaxFetch,
		Backoff: cfg.Times.Backoff, Timeout: cfg.fixed.Timeout,
		Logger: cfg.Logger, Dropped: r.dropSome, Unreadable: func() { r.unreadable.Add(1) },
	})
	p.pending = newPendingEvents(&cfg, r, p.jobs, p.wake, f, p.fetches, p.keep, step)
	p.refUpdater = refupdate.New(p.keep, refupdate.Config{
		Git: p.git, Lock: p.repos.Lock, Absent: ErrNoRepository, Timeout: cfg.fixed.Timeout, Step: step,
	})
	return p
}

// recoverAll repairs and then releases every repository with a journal of an earlier process.
func (p *Purgatory) recoverAll(ctx context.Context) error {
	refs, err := p.refUpdater.Load(ctx, func(key string, err error) {
		p.report.unreadable.Add(1)
		p.cfg.Logger.Error("reading a release journal failed", "key", graspsync.Printable(key), keyError, graspsync.Printable(err.Error()))
	})
	if err != nil {
		return err
	}
	failed := make(map[graspsync.RepoRef]error)
	for _, ref := range refs {
		failed[ref] = p.refUpdater.Repair(ctx, ref)
	}
	for _, ref := range refs {
		err := failed[ref]
		if err == nil {
			_, err = p.release(ctx, ref, refplan.Reasons{}, p.cfg.fixed.Timeout)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			p.jobs.AddRelease(ref, refplan.Reasons{})
			p.cfg.Logger.Error("repairing a repository failed", keyRepo, graspsync.Printable(ref.String()), keyError, graspsync.Printable(err.Error()))
		}
	}
	return nil
}

// Held returns the keys of the held events that match a filter, without stored pull requests. An
// event is stored before its hold ends, so a caller that needs all events calls Held before it reads
// the [Relay].
func (p *Purgatory) Held(filter nostr.Filter) []graspsync.EventKey { return p.pending.held(filter) }

// Announcements returns the held announcements with an identifier that have not expired.
func (p *Purgatory) Announcements(identifier string) []*nip34.Announcement {
	if list := p.pending.announcements(identifier); list != nil {
		return slices.Clip(list.hard)
	}
	return nil
}

// Remembered returns the held announcements with an identifier, softly expired or not, and those of
// maintainers whom they list.
func (p *Purgatory) Remembered(identifier string) []*nip34.Announcement {
	if list := p.pending.announcements(identifier); list != nil {
		return slices.Clip(list.soft)
	}
	return nil
}

// Revision returns a value that changes with the results of Announcements and Remembered. It is nil
// if both are empty.
func (p *Purgatory) Revision(identifier string) any {
	if list := p.pending.announcements(identifier); list != nil {
		return list
	}
	return nil
}

// PullRequest returns the held pull request or update with an id, or nil.
func (p *Purgatory) PullRequest(id graspsync.EventID) *nip34.PullRequest {
	e, _ := p.pending.get(id)
	return e.Pull
}

// Event returns the held event with an id, or the zero Event.
func (p *Purgatory) Event(id graspsync.EventID) graspsync.Event {
	e, _ := p.pending.get(id)
	return e.Signed()
}

// Submitted reports whether the event with an id is held, and whether a client submitted it.
func (p *Purgatory) Submitted(id graspsync.EventID) (byUser, held bool) {
	e, held := p.pending.get(id)
	return e.ByUser, held
}

// EventsOf returns the held events of an author, by id.
func (p *Purgatory) EventsOf(author graspsync.PubKey) (out []graspsync.Event) {
	for _, e := range p.pending.ofAuthor(author) {
		out = append(out, e.Signed())
	}
	return out
}

// AllAnnouncements returns the held announcements that have not expired, by repository.
func (p *Purgatory) AllAnnouncements() (out []*nip34.Announcement) {
	for _, e := range p.pending.all(func(h *pendingEvent) bool { return h.Class == refplan.Announcement && !h.Soft }) {
		out = append(out, e.Announces)
	}
	slices.SortFunc(out, func(a, b *nip34.Announcement) int { return graspsync.RepoRef.Compare(a.Ref, b.Ref) })
	return out
}

// Lacking returns the repositories that lack git data, or may lack it because their release has not
// ended. The value is false if each server failed or lacked the data several times, the announcement
// expired softly, or no event names git data.
func (p *Purgatory) Lacking() map[graspsync.RepoRef]bool {
	out := make(map[graspsync.RepoRef]bool)
	for _, e := range p.pending.all(ofClass(refplan.Announcement)) {
		out[e.Repos[0]] = false
	}
	unfinished := p.jobs.Unfinished() // before the queue, in which a release puts its repository before it ends
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, ref := range p.table.lacking() {
		out[ref] = p.queue.Hopeful(time.Now(), ref)
	}
	for _, ref := range unfinished {
		out[ref] = true
	}
	return out
}

// Pushing is called before a push moves refs, with the lock held. While a state that names the new
// values is held, an older state does not move these refs back, unless the process restarts.
func (p *Purgatory) Pushing(ref graspsync.RepoRef, refs []nip34.RefName) {
	if slices.ContainsFunc(refs, refplan.IsState) && len(p.pending.named(ref.Identifier, ofClass(refplan.State))) > 0 {
		p.table.addPushed(ref, refs)
	}
}

// WaitServed waits until a repository was released for all earlier calls, such as
// [Purgatory.Pushed], or its release failed, or ctx ends. The error wraps that of ctx.
func (p *Purgatory) WaitServed(ctx context.Context, ref graspsync.RepoRef) error {
	return p.jobs.Wait(ctx, ref)
}

// Ready returns nil if repositories enter and leave service with their announcements. The error
// wraps [ErrStarting] until Run has listed the repositories, or [ErrLost].
func (p *Purgatory) Ready() error { return p.departures.err() }

// ConfirmDepartures retires the repositories for which Ready returns [ErrLost], and returns their
// number.
func (p *Purgatory) ConfirmDepartures() int {
	refs := p.departures.confirm()
	for _, ref := range refs {
		p.jobs.AddRelease(ref, refplan.Reasons{Left: map[graspsync.RepoRef]bool{ref: true}})
	}
	return len(refs)
}

// Maintain deletes the reflogs of a repository, and objects that neither a ref nor a held event
// names, for a takedown after the events are deleted. The error wraps [ErrNoRepository], or
// [ErrInUse] if the call should be repeated.
func (p *Purgatory) Maintain(ctx context.Context, ref graspsync.RepoRef) (Maintained, error) {
	return p.maintain(ctx, ref, true)
}

// AuthorizedState returns the newest state that decides about the refs of a repository, stored or
// held, even if its objects are missing. A push must match it. It returns nil if there is none.
//
// The error wraps [ErrInUse] if a change of refs has failed half-way. No push may move refs before
// the repair, which follows soon.
func (p *Purgatory) AuthorizedState(ctx context.Context, ref graspsync.RepoRef) (*nip34.State, error) {
	if p.refUpdater.Doubts(ref) {
		p.jobs.AddRelease(ref, refplan.Reasons{})
		return nil, fmt.Errorf("repository %s is to be mended: %w", graspsync.Printable(ref.String()), ErrInUse)
	}
	g, err := p.readEvents(ctx, ref, refplan.Reasons{}, p.pending.of(ref))
	if err != nil {
		return nil, err
	}
	r := &refplan.Repository{Ref: ref, Members: g.Family.Authority(ref).Members()}
	return g.NewestState(r), nil
}

// Run fetches, releases and expires until ctx ends, and returns the cause. A second call returns
// [ErrRunning]. No goroutine and no child process is left when it returns.
func (p *Purgatory) Run(ctx context.Context) error {
	if p.ran.Swap(true) {
		return ErrRunning
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	end := p.servers.Start(ctx)
	for _, e := range p.pending.all(nil) {
		p.addJobs(e)
	}
	p.wg.Go(func() {
		p.jobs.Run(ctx, func(ref graspsync.RepoRef, why refplan.Reasons, failures int) bool {
			return p.runJob(ctx, ref, why, failures)
		})
	})
	p.wg.Go(func() { p.check(ctx) })
	p.wg.Go(func() { p.runMaintenance(ctx) })
	p.loop(ctx)
	p.wg.Wait()
	end()
	return context.Cause(ctx)
}

// Status returns the held events and the counters.
func (p *Purgatory) Status() Status {
	st := Status{At: time.Now(), Maintenance: p.maintenance.snapshot()}
	p.report.count(&st)
	p.pending.count(&st)
	st.Unconfirmed = p.departures.unconfirmed()
	p.mu.Lock()
	defer p.mu.Unlock()
	st.Queue = p.queue.Len()
	return st
}

// Collector returns the metrics of docs/metrics.md, which the caller registers. namespace is a
// prefix of their names, without underscore.
func (p *Purgatory) Collector(namespace string) prometheus.Collector {
	return newCollector(p.Status, p.report, namespace)
}

// Refetch starts a fetch of the missing data of a repository without waits, within the limits of
// requests per minute. The error wraps [ErrNoRepository] if the repository is not announced.
func (p *Purgatory) Refetch(ctx context.Context, ref graspsync.RepoRef) error {
	about, _, err := p.Announced(ctx, ref)
	switch {
	case err != nil:
		return fmt.Errorf("fetching %s again: %w", graspsync.Printable(ref.String()), err)
	case about == nil:
		return fmt.Errorf("fetching %s again: %w", graspsync.Printable(ref.String()), ErrNoRepository)
	}
	p.mu.Lock()
	p.queue.Renew(time.Now(), ref, about.Clones)
	p.mu.Unlock()
	ring(p.wake)
	p.jobs.AddRelease(ref, refplan.Reasons{Check: true, Authors: map[graspsync.PubKey]bool{ref.Owner: false}})
	return nil
}

// ForgetExpired deletes the records of expired events of a repository, returns their ids, and
// revives its softly expired announcement. Sync requests the events after SyncManager.RulesChanged
// with [graspsync.OnOperatorRequest]. The error joins those of the store. The other events were
// forgotten.
func (p *Purgatory) ForgetExpired(ctx context.Context, ref graspsync.RepoRef) (ids []graspsync.EventID, err error) {
	var errs []error
	for _, s := range p.pending.givenUp(ref) {
		id := s.ID
		if err := p.pending.deleteExpired(ctx, id); err != nil {
			errs = append(errs, fmt.Errorf("forgetting that event %s waited in vain: %w", id, err))
			continue
		}
		ids = append(ids, id)
	}
	p.revive(ctx, ref)
	return ids, errors.Join(errs...)
}

// RemovePull removes the ref of a pull request, for a takedown after the event is deleted. A
// missing ref is no error.
func (p *Purgatory) RemovePull(ctx context.Context, ref graspsync.RepoRef, id graspsync.EventID) error {
	return p.dropRefs(ctx, ref, id)
}

// Drop ends the holds of all events for which unwanted returns true, and returns their number. The
// error joins those of single events. The call may be repeated.
func (p *Purgatory) Drop(ctx context.Context, unwanted func(graspsync.Event) bool) (n int, err error) {
	var errs []error
	for _, e := range p.pending.all(nil) {
		if !unwanted(e.Signed()) {
			continue
		}
		if err := p.dismiss(ctx, e); err != nil {
			errs = append(errs, fmt.Errorf("event %s: %w", e.ID, err))
			continue
		}
		n++
	}
	return n, errors.Join(errs...)
}

func (p *Purgatory) dismiss(ctx context.Context, e refplan.Entry) error {
	if err := p.dropPull(ctx, e); err != nil {
		return err
	}
	return p.pending.forget(ctx, e, Displaced)
}
