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
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/gitops"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
	"github.com/graspsync/graspsync/purgatory/internal/servers"
	"github.com/graspsync/graspsync/purgatory/internal/syncqueue"
)

// errHere is wrapped if our git, disk or lock has failed, not the server.
var errHere = errors.New("taking in git data")

type request struct {
	syncqueue.Fetch
	stop     context.CancelCauseFunc
	received atomic.Int64
}

// fetch requests the missing data of a repository from one URL until asking ends. The request is
// recorded first, so that a process that crashes does not repeat it immediately.
func (p *Purgatory) fetch(ctx, asking context.Context, x *request) (end fetchEnd) {
	end = fetchEnd{repo: x.Repo, server: x.URL.HostPort(), fetched: syncqueue.Fetched{ID: x.ID, Outcome: syncqueue.Nothing}}
	done := &end.fetched
	ref, from := x.Repo, x.URL
	leave, ok := p.sessions.enter(ref)
	if !ok { // the repository is being removed or recreated
		done.Outcome = syncqueue.Unasked
		return end
	}
	defer leave()
	ask := p.servers.Next(ref, from, p.table.lacked(ref))
	if len(ask.IDs) == 0 && !ask.Roomless {
		done.Outcome = syncqueue.Complete
		return end
	}
	if reason := p.servers.Refuses(ask); reason != "" {
		p.report.drop(reason)
		p.report.addSkipped(ref, from, reason)
		done.Outcome = syncqueue.Unasked
		return end
	}
	into := p.sessions.open(ask)
	seen := FetchEnded{Repo: ref, URL: from, Wanted: len(ask.IDs), Missing: len(ask.IDs)}
	defer func() { p.sessions.done(into, seen.Bytes, done.Outcome) }()
	had := into.quarantine != nil
	if err := p.prepare(ctx, into, ask); err != nil {
		p.report.addSkipped(ref, from, graspsync.Printable(err.Error()))
		if !errors.Is(err, ErrFull) {
			end.fault = p.failedHere(ctx, ref, from, err)
		} else if ctx.Err() == nil {
			p.report.warn(line{who: ref.Owner.String(), what: "full"}, "nothing is fetched for a repository", ref, from, err)
		}
		done.Outcome = syncqueue.Unasked
		return end
	}
	written, err := p.servers.Begin(ctx, ask, x.Wait)
	if err != nil {
		if !had {
			p.sessions.discard(into)
		}
		if ctx.Err() == nil {
			p.report.drop("unsaved")
			p.report.warn(line{what: "unsaved"}, "a request could not be saved, and is not made", ref, from, err)
			end.fault = err
		}
		return end
	}
	defer written()
	told := p.report.request(from.HostPort().String())
	p.sessions.began(into, time.Now())
	done.Outcome, err = p.fetchAndRelease(ctx, asking, into, x, &seen, ask.IDs, had)
	p.sessions.began(into, time.Time{})
	seen.Err = err
	p.servers.Learn(ask, servers.Reply{Bytes: seen.Bytes, Wanted: seen.Wanted, Missing: seen.Missing, Failure: failureOf(err)}, done.Outcome == syncqueue.Complete)
	if errors.Is(err, errHere) {
		seen.Err, seen.Local = nil, err
		end.fault = p.failedHere(ctx, ref, from, err)
	}
	p.reportFetch(ctx, seen, told)
	if errors.Is(err, errGaveWay) {
		p.report.drop("yielded")
	}
	var busy *BusyError
	if errors.As(err, &busy) {
		p.report.drop("busy")
		done.Pause = max(busy.After, 1)
	}
	done.More = done.Outcome != syncqueue.Complete && (err == nil || errors.Is(err, ErrNotServed)) && p.more(ask, seen)
	return end
}

func failureOf(err error) servers.Failure {
	switch {
	case err == nil:
		return servers.None
	case errors.Is(err, ErrFull):
		return servers.Full
	case errors.Is(err, ErrSlow):
		return servers.Slow
	case errors.Is(err, ErrLimit) && errors.Is(err, errNoRoom):
		return servers.NoRoom
	case errors.Is(err, ErrLimit):
		return servers.Limit
	case errors.Is(err, ErrNotServed):
		return servers.NotServed
	}
	return servers.Other
}

// failingLong is the time without a reply after which failures are logged as warnings.
const failingLong = time.Hour

func (p *Purgatory) reportFetch(ctx context.Context, seen FetchEnded, told func(error) time.Duration) {
	p.report.fetched(seen)
	p.report.observe(seen)
	if errors.Is(seen.Err, errNotNeeded) {
		told(nil) // not a failure of the server
		return
	}
	if errors.Is(seen.Err, errGaveWay) { // not a failure of the server, but reported to callers of DataState
		told(nil)
		p.report.addReply(seen)
		return
	}
	failing := told(seen.Err)
	if ctx.Err() != nil {
		return
	}
	p.report.addReply(seen)
	if seen.Err == nil {
		return
	}
	level := slog.LevelDebug // the server may recover or get the objects later
	if failing >= failingLong {
		level = slog.LevelWarn
	}
	p.report.log(level, line{who: seen.URL.HostPort().Host, what: "failed"}, "fetch failed", seen.Repo, seen.URL, seen.Err)
}

// failedHere logs a failure of ours and returns it, unless ctx has ended or the repository is gone.
func (p *Purgatory) failedHere(ctx context.Context, ref graspsync.RepoRef, from graspsync.CloneURL, err error) error {
	if ctx.Err() != nil || errors.Is(err, ErrNoRepository) {
		return nil //nolint:nilerr // nothing of ours has failed
	}
	p.report.drop("local_failure")
	p.report.warn(line{who: ref.Owner.String(), what: "here"}, "git data can't be taken in", ref, from, err)
	return err
}

// more reports whether the server is asked again immediately for other missing data that it may
// have.
func (p *Purgatory) more(asked servers.Request, seen FetchEnded) bool {
	next := p.servers.Next(asked.Repo, asked.From, p.table.lacked(asked.Repo))
	brought := seen.Err == nil && seen.Missing < seen.Wanted
	return next.Beyond(asked) && (brought || !next.Lacked) && p.servers.Refuses(next) == ""
}

// prepare creates the quarantine of a session. The error wraps ErrFull if there is no room.
func (p *Purgatory) prepare(ctx context.Context, s *fetchSession, q servers.Request) error {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.fixed.Timeout)
	defer cancel()
	if err := p.repos.Reserve(ctx, q.Repo, q.Pulls, p.servers.Full(q), p.PullBytes); err != nil {
		return err
	}
	if s.quarantine != nil {
		return nil
	}
	dir, unlock, err := p.repos.Lock(ctx, q.Repo)
	if err != nil {
		return fmt.Errorf("locking repository: %w", err)
	}
	defer unlock()
	s.dir = dir
	s.quarantine, err = p.git.Quarantine(ctx, dir)
	return err
}

// fetchAndRelease fetches, promotes complete objects, and releases the repository. A session
// without useful data is discarded.
func (p *Purgatory) fetchAndRelease(ctx, asking context.Context, s *fetchSession, x *request, seen *FetchEnded, want []nip34.ObjectID, had bool) (syncqueue.Outcome, error) {
	came, err := p.fetchInto(ctx, asking, s, x, seen, want)
	if err != nil {
		if !had && !errors.Is(err, errHere) {
			p.sessions.discard(s)
		}
		if errors.Is(err, ErrServerUnusable) {
			return syncqueue.Broken, err
		}
		return syncqueue.Nothing, err
	}
	if len(came) == 0 {
		return syncqueue.Partial, nil
	}
	if err := p.promote(ctx, s, seen); err != nil {
		return syncqueue.Nothing, err
	}
	found, err := p.release(ctx, seen.Repo, refplan.Reasons{}, p.releaseTime(0))
	if err != nil {
		p.table.touch(seen.Repo)
	}
	p.inbox.tell(surveyRequest{identifier: seen.Repo.Identifier, why: refplan.Reasons{Gained: map[graspsync.RepoRef]bool{seen.Repo: true}}})
	if err != nil { // not a failure of the server; the survey above repeats the release
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

// fetchInto sends the request, and returns the wanted objects that are complete now.
func (p *Purgatory) fetchInto(ctx, asking context.Context, s *fetchSession, x *request, seen *FetchEnded, want []nip34.ObjectID) ([]nip34.ObjectID, error) {
	err := p.sessions.request(asking, s, FetchRequest{From: x.URL, Want: want, Received: &x.received})
	seen.Bytes = x.received.Load()
	if err != nil {
		if errors.Is(err, errSpoilt) {
			p.sessions.discard(s)
		}
		return nil, err
	}
	p.step("fetched")
	ctx, cancel := context.WithTimeout(ctx, p.cfg.fixed.Timeout)
	defer cancel()
	missing, err := s.quarantine.Missing(ctx, want)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errHere, err)
	}
	seen.Missing = len(missing)
	lacks := setOf(missing)
	return slices.DeleteFunc(slices.Clone(want), func(id nip34.ObjectID) bool {
		_, lacking := lacks[id]
		return lacking
	}), nil
}

// promote makes received objects part of the repository, if there is room.
func (p *Purgatory) promote(ctx context.Context, s *fetchSession, seen *FetchEnded) error {
	ref := seen.Repo
	ctx, cancel := context.WithTimeout(ctx, p.cfg.fixed.Timeout)
	defer cancel()
	bytes := s.bytes + seen.Bytes // s.bytes does not include this request yet
	err := p.repos.Reserve(ctx, ref, s.pulls, bytes, p.PullBytes)
	if errors.Is(err, ErrFull) { // another request would bring the same bytes again
		p.sessions.discard(s)
		return fmt.Errorf("%w: %w", ErrLimit, err)
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errHere, err)
	}
	_, unlock, err := p.repos.Lock(ctx, ref)
	if err != nil {
		return fmt.Errorf("%w: locking repository: %w", errHere, err)
	}
	defer unlock()
	if s.pulls {
		if err := p.mayCome(ref, bytes); err != nil {
			p.sessions.discard(s)
			if bytes > seen.Bytes { // earlier requests may have brought too much
				return errNoRoom
			}
			return err
		}
	}
	q := s.quarantine
	s.quarantine = nil
	if err := q.Promote(ctx); err != nil {
		return fmt.Errorf("%w: %w", errHere, errors.Join(err, q.Discard()))
	}
	p.step("promoted")
	p.maintenance.brought(ref)
	if s.pulls {
		p.pullsCame(ref, bytes)
	}
	return nil
}

// fetchSession holds fetched data until its objects are complete. States and pull requests have
// separate sessions, because a session is discarded if pull requests have no room.
type fetchSession struct {
	repo  graspsync.RepoRef
	pulls bool
	// owned by the user of the session
	quarantine gitops.Quarantine
	dir        string
	// guarded by fetchSessions.mu
	inUse  bool
	bytes  int64 // received bytes; changed only by the user of the session
	cancel context.CancelCauseFunc
	began  time.Time // start of that request; zero after its data is promoted
}

var (
	// errNotNeeded ends a request when another one has brought all missing objects.
	errNotNeeded = errors.New("another server has sent it")
	// errGaveWay ends a slow request while others wait.
	errGaveWay = errors.New("it takes long, and gave way to others")
)

// Limits of sessions between requests. Their bytes are at most maxSessionDays times MaxRepoDay, and
// at most 1/sessionShare of MaxRepoDay for each owner.
const (
	maxSessions    = 200
	maxSessionDays = 2
	sessionShare   = 2
)

type fetchSessions struct {
	// read-only
	cfg     *Config
	report  *report
	fetcher safeFetcher

	mu sync.Mutex
	// guarded by mu
	all      []*fetchSession
	fetching map[graspsync.RepoRef]int // number of requests in flight; -1 while taken
}

func newFetchSessions(cfg *Config, report *report, fetcher safeFetcher) *fetchSessions {
	return &fetchSessions{cfg: cfg, report: report, fetcher: fetcher, fetching: make(map[graspsync.RepoRef]int)}
}

// enter keeps a repository from being taken until leave is called, unless it is taken.
func (fs *fetchSessions) enter(ref graspsync.RepoRef) (leave func(), ok bool) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.fetching[ref] < 0 {
		return nil, false
	}
	fs.fetching[ref]++
	return func() { fs.leave(ref) }, true
}

func (fs *fetchSessions) leave(ref graspsync.RepoRef) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if fs.fetching[ref]--; fs.fetching[ref] <= 0 {
		delete(fs.fetching, ref)
	}
}

// take prevents fetches until leave is called, and discards the sessions of a repository, unless a
// fetch is under way.
func (fs *fetchSessions) take(ref graspsync.RepoRef) (leave func(), free bool) {
	fs.mu.Lock()
	if fs.fetching[ref] != 0 {
		fs.mu.Unlock()
		return nil, false
	}
	fs.fetching[ref] = -1
	gone := fs.remove(func(s *fetchSession) bool { return s.repo == ref })
	fs.mu.Unlock()
	fs.discard(gone...)
	return func() { fs.leave(ref) }, true
}

func (fs *fetchSessions) forget(ref graspsync.RepoRef) {
	if leave, free := fs.take(ref); free {
		leave()
	}
}

func (fs *fetchSessions) discardAll() {
	fs.mu.Lock()
	gone := fs.remove(func(*fetchSession) bool { return true })
	fs.mu.Unlock()
	fs.discard(gone...)
}

func (fs *fetchSessions) remove(which func(*fetchSession) bool) (gone []*fetchSession) {
	fs.all = slices.DeleteFunc(fs.all, func(s *fetchSession) bool {
		is := which(s)
		if is {
			gone = append(gone, s)
		}
		return is
	})
	return gone
}

// open returns a session. The caller has called enter, and calls done before leave.
func (fs *fetchSessions) open(q servers.Request) *fetchSession {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, s := range fs.all {
		if s.repo == q.Repo && !s.inUse && s.pulls == q.Pulls {
			s.inUse = true
			return s
		}
	}
	s := &fetchSession{repo: q.Repo, pulls: q.Pulls, inUse: true}
	fs.all = append(fs.all, s)
	return s
}

// began records the start of a request, or the zero time when its data is promoted.
func (fs *fetchSessions) began(s *fetchSession, at time.Time) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	s.began = at
}

// done returns a session, which is kept if it has data and there is room. If nothing is missing any
// more, other requests for the repository end. One lock covers all of this, because otherwise other
// sessions would be discarded.
func (fs *fetchSessions) done(s *fetchSession, bytes int64, outcome syncqueue.Outcome) {
	fs.mu.Lock()
	if s.inUse = false; s.quarantine == nil {
		fs.remove(func(o *fetchSession) bool { return o == s })
	} else {
		s.bytes += bytes
	}
	for _, o := range fs.all {
		if outcome == syncqueue.Complete && o.repo == s.repo && o.cancel != nil {
			o.cancel(errNotNeeded)
		}
	}
	gone := fs.excess()
	fs.mu.Unlock()
	for range gone {
		fs.report.drop("partial_fetch")
	}
	fs.discard(gone...)
}

// excess removes unused sessions over the limits, those of the owner with the most bytes first, of
// pull requests first, the oldest first. mu is held.
func (fs *fetchSessions) excess() (gone []*fetchSession) {
	part, total := fs.cfg.Limits.MaxRepoDay/sessionShare, fs.cfg.Limits.MaxRepoDay*maxSessionDays
	for {
		all, of := int64(0), make(map[graspsync.PubKey]int64)
		for _, s := range fs.all {
			all += s.bytes
			of[s.repo.Owner] += s.bytes
		}
		full := all > total || len(fs.all) > maxSessions
		var worst *fetchSession
		for _, s := range fs.all {
			if s.inUse || !full && of[s.repo.Owner] <= part {
				continue
			}
			if worst == nil || of[s.repo.Owner] > of[worst.repo.Owner] || s.repo.Owner == worst.repo.Owner && s.pulls && !worst.pulls {
				worst = s
			}
		}
		if worst == nil {
			return gone
		}
		gone = append(gone, fs.remove(func(s *fetchSession) bool { return s == worst })...)
	}
}

func (fs *fetchSessions) discard(gone ...*fetchSession) {
	for _, s := range gone {
		if s.quarantine == nil {
			continue
		}
		if err := s.quarantine.Discard(); err != nil {
			fs.cfg.Logger.Warn("removing a quarantine failed", keyError, graspsync.Printable(err.Error()))
		}
		fs.mu.Lock()
		s.quarantine, s.bytes = nil, 0
		fs.mu.Unlock()
	}
}

// since returns the start of the oldest request in flight, or the zero time.
func (fs *fetchSessions) since(ref graspsync.RepoRef) (at time.Time) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, s := range fs.all {
		if s.repo == ref && !s.began.IsZero() && (at.IsZero() || s.began.Before(at)) {
			at = s.began
		}
	}
	return at
}

func (fs *fetchSessions) request(ctx context.Context, s *fetchSession, r FetchRequest) error {
	ctx, stop := context.WithTimeout(ctx, fs.cfg.fixed.FetchTimeout)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	set := func(cancel context.CancelCauseFunc) {
		fs.mu.Lock()
		defer fs.mu.Unlock()
		s.cancel = cancel
	}
	set(cancel)
	r.Dir, r.Quarantine = s.dir, s.quarantine.Folder()
	err := fs.fetcher.Fetch(ctx, r)
	set(nil)
	if why := context.Cause(ctx); err != nil && (errors.Is(why, errNotNeeded) || errors.Is(why, errGaveWay)) {
		err = fmt.Errorf("%w (%w)", why, err)
	}
	return err
}
