package purgatory

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/purgatory/internal/gitops"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
	"github.com/graspsync/graspsync/purgatory/internal/servers"
	"github.com/graspsync/graspsync/purgatory/internal/syncqueue"
)

// errOurSide is wrapped if our git, disk or lock has failed, not the server.
var errOurSide = errors.New("taking in git data")

// runningFetch is a request to a git server and, after its end, the message about it.
type runningFetch struct {
	syncqueue.Fetch
	stop     context.CancelCauseFunc // ends the request, not the release of its data
	received atomic.Int64
	began    time.Time // zero before the request and after its data is in the repository; guarded by fetches.mu

	fetched syncqueue.Fetched
	fault   error // a failure of our store, git or disk
}

func (p *Purgatory) queueFetch(ctx context.Context, ref graspsync.RepoRef, n refplan.Need, why refplan.Reasons) {
	in := syncqueue.Incomplete{Repo: ref, MemberURLs: n.MemberURLs, PullURLs: n.PullURLs, Origin: syncqueue.ByUser, Patient: len(n.EventIDs) == 0}
	for author, byUser := range why.Authors {
		if _, is := n.Authors[author]; is {
			if in.Fresh = true; !byUser {
				in.Origin = syncqueue.BySync
			}
		}
	}
	if !in.Fresh {
		in.Origin = syncqueue.BySync
	}
	p.stepQueue(ctx, time.Now(), in)
	p.cfg.Logger.Debug("git fetch queued", keyRepo, graspsync.Printable(ref.String()), "objects", len(n.IDs), "urls", len(n.MemberURLs), "at", p.about(ref).Due)
}

// stepQueue performs the effects with mu held, because their order matters to the records of servers.
func (p *Purgatory) stepQueue(ctx context.Context, now time.Time, in syncqueue.Input) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if ctx.Err() != nil { // the end of a request must not start another one
		return
	}
	for _, x := range p.queue.Step(now, in) { // most fetches follow at a Tick of loop, when they are due
		switch x := x.(type) {
		case syncqueue.Fetch:
			p.servers.AddRequest(x)
			p.startFetch(ctx, x)
		case syncqueue.Stop:
			p.fetches.stop(errGaveWay, func(o *runningFetch) bool { return o.ID == x.ID })
		case syncqueue.Dropped:
			p.report.drop("fetch_jobs")
		}
	}
}

// loop starts fetches and ends holds when they are due.
func (p *Purgatory) loop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.wake:
		case <-timer.C:
		}
		now := time.Now()
		for _, e := range p.pending.due(now) {
			p.wg.Go(func() { p.endHold(ctx, e) })
		}
		p.stepQueue(ctx, now, syncqueue.Tick{Received: p.fetches.received()})
		timer.Reset(time.Until(p.nextWake(now)))
	}
}

func (p *Purgatory) nextWake(now time.Time) time.Time {
	next := now.Add(time.Hour)
	p.mu.Lock()
	if t, ok := p.queue.NextWake(); ok {
		next = backoff.Earlier(next, t)
	}
	p.mu.Unlock()
	if t, ok := p.pending.nextDue(); ok {
		next = backoff.Earlier(next, t)
	}
	return backoff.Later(next, now.Add(10*time.Millisecond))
}

// startFetch sends a request in the background, unless its repository is being removed or recreated.
func (p *Purgatory) startFetch(ctx context.Context, f syncqueue.Fetch) {
	x := &runningFetch{Fetch: f, fetched: syncqueue.Fetched{ID: f.ID, Outcome: syncqueue.Unasked}}
	var asking context.Context
	asking, x.stop = context.WithCancelCause(ctx)
	leave, ok := p.fetches.enter(x)
	p.wg.Go(func() {
		if ok {
			p.fetch(ctx, asking, x)
			leave()
		}
		x.stop(nil)
		if x.fault != nil {
			p.table.recordFault(x.Repo)
		}
		p.stepQueue(ctx, time.Now(), x.fetched)
		server := x.URL.HostPort()
		p.mu.Lock()
		p.servers.SavePause(server, p.queue.Broken(server))
		p.mu.Unlock()
		ring(p.wake)
	})
}

// fetch requests the missing data of a repository from one URL until asking ends. The request is
// recorded first, so that a process that crashes does not repeat it immediately.
func (p *Purgatory) fetch(ctx, asking context.Context, x *runningFetch) {
	defer p.report.recovered(&x.fault, ofGit)
	ask, refused := p.servers.Next(x.Repo, x.URL, p.table.get(x.Repo).need) // the objects to request, or why not now
	if len(ask.IDs) == 0 && !ask.Roomless {
		x.fetched.Outcome = syncqueue.Complete
		return
	}
	if refused != "" {
		p.report.drop(refused)
		p.report.addSkipped(x.Repo, x.URL, refused)
		return
	}
	dir, into, err := p.openQuarantine(ctx, ask)
	if err != nil {
		p.report.addSkipped(x.Repo, x.URL, graspsync.Printable(err.Error()))
		if !errors.Is(err, ErrFull) {
			x.fault = p.failedOurSide(ctx, x, err)
		} else if ctx.Err() == nil {
			p.report.log(slog.LevelWarn, x.Repo.Owner.String()+" full", "nothing is fetched for a repository", x.Repo, x.URL, err)
		}
		return
	}
	defer func() {
		if err := into.Discard(); err != nil {
			p.cfg.Logger.Warn("removing a quarantine failed", keyError, graspsync.Printable(err.Error()))
		}
	}()
	x.fetched.Outcome = syncqueue.Failed
	written, err := p.servers.SaveRequest(ctx, ask, x.Wait)
	if err != nil {
		if ctx.Err() == nil {
			p.report.drop("unsaved")
			p.report.log(slog.LevelWarn, "unsaved", "a request could not be saved, and is not made", x.Repo, x.URL, err)
			x.fault = err
		}
		return
	}
	defer written()
	p.send(ctx, asking, x, ask, FetchRequest{From: x.URL, Want: ask.IDs, Dir: dir, Received: &x.received}, into)
}

// openQuarantine creates a quarantine. The error wraps ErrFull if there is no room.
func (p *Purgatory) openQuarantine(ctx context.Context, q servers.Request) (dir string, into gitops.Quarantine, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.fixed.Timeout)
	defer cancel()
	if err := p.repos.Reserve(ctx, q.Repo, q.Pulls, 0); err != nil {
		return "", nil, err
	}
	dir, unlock, err := p.repos.Lock(ctx, q.Repo)
	if err != nil {
		return "", nil, fmt.Errorf("locking repository: %w", err)
	}
	defer unlock()
	into, err = p.git.Quarantine(ctx, dir)
	return dir, into, err
}

func (p *Purgatory) send(ctx, asking context.Context, x *runningFetch, ask servers.Request, r FetchRequest, into gitops.Quarantine) {
	seen := FetchEnded{Repo: x.Repo, URL: x.URL, Wanted: len(ask.IDs), Missing: len(ask.IDs)}
	ended := p.report.request(x.URL.HostPort().String())
	p.fetches.began(x, time.Now())
	outcome, err := p.fetchAndRelease(ctx, asking, x, ask, r, into, &seen)
	p.fetches.began(x, time.Time{})
	if err != nil {
		outcome = outcomeOf(err)
	}
	seen.Err, x.fetched.Outcome = err, outcome
	p.servers.Learn(ask, seen.Bytes, outcome)
	if outcome == syncqueue.Complete {
		p.fetches.stop(errNotNeeded, func(o *runningFetch) bool { return o.Repo == x.Repo })
	}
	if errors.Is(err, errOurSide) {
		seen.Err, seen.Local = nil, err
		x.fault = p.failedOurSide(ctx, x, err)
	}
	p.reportFetch(ctx, seen, ended)
	if errors.Is(err, errGaveWay) {
		p.report.drop("yielded")
	}
	var busy *BusyError
	if errors.As(err, &busy) {
		p.report.drop("busy")
		x.fetched.Pause = max(busy.After, 1)
	}
	x.fetched.More = (outcome == syncqueue.Partial || outcome == syncqueue.Nothing) && p.more(ask, seen)
}

func (p *Purgatory) fetchAndRelease(ctx, asking context.Context, x *runningFetch, ask servers.Request, r FetchRequest, into gitops.Quarantine, seen *FetchEnded) (_ syncqueue.Outcome, err error) {
	defer p.report.recovered(&err, ofGit)
	if err = p.fetchInto(ctx, asking, x, r, into, seen); err != nil {
		return 0, err
	}
	if seen.Missing == seen.Wanted {
		return syncqueue.Nothing, nil
	}
	if err := p.promote(ctx, ask, into, seen); err != nil {
		return 0, err
	}
	p.report.recordResult(ofGit+" take", nil)
	why := refplan.Reasons{Receivers: map[graspsync.RepoRef]bool{seen.Repo: true}}
	found, err := p.release(ctx, seen.Repo, why, p.releaseTime(0))
	if p.jobs.AddSurvey(seen.Repo.Identifier, why); err != nil {
		p.jobs.AddRelease(seen.Repo, why)
	}
	if err != nil { // not a failure of the server
		if ctx.Err() == nil && !tookLong(err) {
			p.report.fault(seen.Repo.String(), releaseFailed, err)
		}
		return syncqueue.Partial, nil
	}
	if len(found.need.IDs) == 0 {
		return syncqueue.Complete, nil
	}
	return syncqueue.Partial, nil
}

// fetchInto sends the request, and counts the wanted objects that are still missing or incomplete.
func (p *Purgatory) fetchInto(ctx, asking context.Context, x *runningFetch, r FetchRequest, into gitops.Quarantine, seen *FetchEnded) error {
	asking, cancel := context.WithTimeout(asking, p.cfg.fixed.FetchTimeout)
	defer cancel()
	r.Quarantine = into.Folder()
	err := p.ask(asking, r)
	seen.Bytes = x.received.Load()
	if why := context.Cause(asking); err != nil && (errors.Is(why, errNotNeeded) || errors.Is(why, errGaveWay)) {
		return fmt.Errorf("%w (%w)", why, err)
	}
	if err != nil {
		return err
	}
	p.step("fetched")
	ctx, stop := context.WithTimeout(ctx, p.cfg.fixed.Timeout)
	defer stop()
	missing, err := into.Missing(ctx, r.Want)
	if err != nil {
		return fmt.Errorf("%w: %w", errOurSide, err)
	}
	seen.Missing = len(missing)
	return nil
}

// ask sends the request. After a panic it blames the server, which may have provoked the panic.
func (p *Purgatory) ask(ctx context.Context, r FetchRequest) (err error) {
	defer func() {
		if v := recover(); v != nil {
			p.report.panicked(v, ofGit)
			err = fmt.Errorf("%w: git panicked: %s", ErrServerUnusable, graspsync.Printable(fmt.Sprint(v)))
		}
	}()
	return p.fetcher.Fetch(ctx, r)
}

// promote makes received objects part of the repository, if there is room.
func (p *Purgatory) promote(ctx context.Context, q servers.Request, into gitops.Quarantine, seen *FetchEnded) error {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.fixed.Timeout)
	defer cancel()
	err := p.repos.Reserve(ctx, q.Repo, q.Pulls, seen.Bytes)
	if errors.Is(err, ErrFull) { // another request would bring the same bytes again
		return fmt.Errorf("%w: %w", ErrLimit, err)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errOurSide, err)
	}
	_, unlock, err := p.repos.Lock(ctx, q.Repo)
	if err != nil {
		return fmt.Errorf("%w: locking repository: %w", errOurSide, err)
	}
	defer unlock()
	if q.Pulls {
		if err := p.checkPullRoom(q.Repo, seen.Bytes); err != nil {
			return err
		}
	}
	if err := into.Promote(ctx); err != nil {
		return fmt.Errorf("%w: %w", errOurSide, err)
	}
	p.step("promoted")
	p.maintenance.brought(q.Repo)
	if q.Pulls {
		p.addPullBytes(q.Repo, seen.Bytes)
	}
	return nil
}

// more reports whether the server is asked again immediately for other missing data that it may
// have.
func (p *Purgatory) more(asked servers.Request, seen FetchEnded) bool {
	next, refused := p.servers.Next(asked.Repo, asked.From, p.table.get(asked.Repo).need)
	brought := seen.Err == nil && seen.Missing < seen.Wanted
	return next.Beyond(asked) && (brought || !next.Lacked) && refused == ""
}

func outcomeOf(err error) syncqueue.Outcome {
	switch {
	case errors.Is(err, ErrServerUnusable):
		return syncqueue.Broken
	case errors.Is(err, ErrFull): // wraps ErrLimit too
		return syncqueue.Full
	case errors.Is(err, ErrSlow):
		return syncqueue.Slow
	case errors.Is(err, ErrLimit) && errors.Is(err, errNoRoom):
		return syncqueue.NoRoom
	case errors.Is(err, ErrLimit):
		return syncqueue.TooMuch
	case errors.Is(err, ErrNotServed):
		return syncqueue.Nothing
	}
	return syncqueue.Failed
}

// failingLong is the time without a reply after which failures are logged as warnings.
const failingLong = time.Hour

func (p *Purgatory) reportFetch(ctx context.Context, seen FetchEnded, ended func(error) time.Duration) {
	p.report.fetched(seen)
	p.report.observe(seen)
	failed := seen.Err
	if errors.Is(failed, errNotNeeded) || errors.Is(failed, errGaveWay) { // not a failure of the server
		failed = nil
	}
	failing := ended(failed)
	if errors.Is(seen.Err, errNotNeeded) || ctx.Err() != nil {
		return
	}
	p.report.addReply(seen)
	if failed != nil {
		level := slog.LevelDebug // the server may recover or get the objects later
		if failing >= failingLong {
			level = slog.LevelWarn
		}
		p.report.log(level, seen.URL.HostPort().Host+" failed", "fetch failed", seen.Repo, seen.URL, failed)
	}
}

func (p *Purgatory) failedOurSide(ctx context.Context, x *runningFetch, err error) error {
	if ctx.Err() != nil || errors.Is(err, ErrNoRepository) {
		return nil //nolint:nilerr // nothing of ours has failed
	}
	p.report.drop("local_failure")
	p.report.recordResult(ofGit+" take", err)
	p.report.log(slog.LevelWarn, x.Repo.Owner.String()+" here", "git data can't be taken in", x.Repo, x.URL, err)
	return err
}

var (
	// errNotNeeded ends a request when another one has brought all missing objects.
	errNotNeeded = errors.New("another server has sent it")
	// errGaveWay ends a slow request while others wait.
	errGaveWay = errors.New("it takes long, and gave way to others")
)

type fetches struct {
	mu sync.Mutex
	// guarded by mu
	all     []*runningFetch
	blocked map[graspsync.RepoRef]struct{} // repositories without fetches
}

func newFetches() *fetches { return &fetches{blocked: make(map[graspsync.RepoRef]struct{})} }

func (f *fetches) enter(x *runningFetch) (leave func(), ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, blocked := f.blocked[x.Repo]; blocked {
		return nil, false
	}
	f.all = append(f.all, x)
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		f.all = slices.DeleteFunc(f.all, func(o *runningFetch) bool { return o == x })
	}, true
}

// block prevents fetches for a repository until leave is called, unless one is under way.
func (f *fetches) block(ref graspsync.RepoRef) (leave func(), free bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, blocked := f.blocked[ref]; blocked || slices.ContainsFunc(f.all, func(x *runningFetch) bool { return x.Repo == ref }) {
		return nil, false
	}
	f.blocked[ref] = struct{}{}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		delete(f.blocked, ref)
	}, true
}

func (f *fetches) began(x *runningFetch, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	x.began = at
}

func (f *fetches) received() map[syncqueue.RequestID]int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	out := make(map[syncqueue.RequestID]int64, len(f.all))
	for _, x := range f.all {
		out[x.ID] = x.received.Load()
	}
	return out
}

func (f *fetches) stop(why error, is func(*runningFetch) bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, x := range f.all {
		if is(x) {
			x.stop(why)
		}
	}
}

func (f *fetches) startedBefore(ref graspsync.RepoRef, at time.Time) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.ContainsFunc(f.all, func(x *runningFetch) bool { return x.Repo == ref && !x.began.IsZero() && x.began.Before(at) })
}

func (p *Purgatory) about(ref graspsync.RepoRef) syncqueue.About {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.queue.About(time.Now(), ref)
}

func ring(wake chan<- struct{}) {
	select {
	case wake <- struct{}{}:
	default:
	}
}

func newSyncQueue(cfg *Config, seed uint64) *syncqueue.SyncQueue {
	return syncqueue.New(syncqueue.Config{
		UserDelay: cfg.fixed.UserDelay, SyncDelay: cfg.fixed.SyncDelay, Backoff: cfg.Times.Backoff, MaxBackoff: cfg.fixed.MaxBackoff,
		BrokenMin: servers.BrokenMin, BrokenMax: servers.BrokenMax,
		MaxFetchJobs: cfg.Limits.MaxFetchJobs, MaxRepos: 2 * cfg.Limits.MaxEntries, MaxDomains: 10_000,
		DefaultLimit: cfg.Limits.DomainLimit, Limits: cfg.Limits.DomainLimits, Seed: seed,
	})
}
