package purgatory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory/internal/gitops"
	"github.com/graspsync/graspsync/purgatory/internal/servers"
	"github.com/graspsync/graspsync/purgatory/internal/syncqueue"
)

// fetchSession holds fetched data of a repository until its objects are complete. States and pull
// requests have separate sessions, because a session is discarded if pull requests have no room.
type fetchSession struct {
	repo  graspsync.RepoRef
	pulls bool // for objects that only pull requests name
	// owned by the user of the session
	quarantine gitops.Quarantine // nil if there is no data
	dir        string            // folder of the repository
	// guarded by fetchSessions.mu
	inUse  bool
	bytes  int64                   // received bytes; changed only by the user of the session
	cancel context.CancelCauseFunc // of the request in flight
	began  time.Time               // start of that request; zero after its data is promoted
}

var (
	// errNotNeeded ends a request when another one has brought all missing objects.
	errNotNeeded = errors.New("another server has sent it")
	// errGaveWay ends a slow request while others wait.
	errGaveWay = errors.New("it takes long, and gave way to others")
)

// Between requests, at most maxSessions sessions are kept. Their bytes are at most maxSessionDays
// times MaxRepoDay, and at most 1/sessionShare of MaxRepoDay for each owner.
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

// enter keeps a repository from being taken until leave is called. It returns false if the
// repository is taken.
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

// take prevents fetches for a repository until leave is called, and discards its sessions. It
// returns false if a fetch is under way. leave must be called once.
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

// forget discards the sessions of a repository, unless a fetch is under way.
func (fs *fetchSessions) forget(ref graspsync.RepoRef) {
	if leave, free := fs.take(ref); free {
		leave()
	}
}

// discardAll discards all sessions. No fetch is under way.
func (fs *fetchSessions) discardAll() {
	fs.mu.Lock()
	gone := fs.remove(func(*fetchSession) bool { return true })
	fs.mu.Unlock()
	fs.discard(gone...)
}

// remove removes sessions from the list. mu is held.
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

// open returns a session for a request. The caller has called enter, and calls done before leave.
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

// began records the start of a request. A zero time means that its data is promoted.
func (fs *fetchSessions) began(s *fetchSession, at time.Time) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	s.began = at
}

// done returns a session with its received bytes. The session is kept if it has data and there is
// room. If nothing is missing any more, other requests for the repository end. All of this happens
// under one lock, because otherwise other sessions would be discarded in place of this one.
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

// excess removes unused sessions over the limits, those of the owner with the most bytes first, and
// of these sessions those of pull requests first, the oldest first. mu is held.
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

// discard deletes the data of sessions that are no longer in the list.
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

// since returns the start of the oldest request in flight for a repository, or the zero time.
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
