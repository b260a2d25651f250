package purgatory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/syncqueue"
)

// fetchSession is the fetched data of a repository that is not part of it yet, because objects are
// missing. States and each author of pull requests have sessions of their own, because the whole
// session is discarded if a pull request has no room. Servers that only pull requests name share no
// session with servers of maintainers: while such a request uses the part that a maintainer's
// server has sent, the rest from another maintainer's server would come into an empty session and
// count as missing.
type fetchSession struct {
	repo       graspsync.RepoRef
	stranger   bool // of servers that only pull requests name
	whose      fetchOwner
	quarantine Quarantine // nil if there is none; used by who has the session
	// guarded by fetchSessions.mu
	inUse  bool
	bytes  int64                   // that came into it; only who has the session changes them
	cancel context.CancelCauseFunc // of the request in flight
	began  time.Time               // of that, until its data is part of the repository
}

var (
	// errNotNeeded ends a request when another one has brought all that is missing.
	errNotNeeded = errors.New("another server has sent it")
	// errGaveWay ends a request that takes long while others wait.
	errGaveWay = errors.New("it takes long, and gave way to others")
)

// Of all sessions, this many are kept between two requests, and as many bytes as may come for maxSessionDays repositories
// in a day. Of one owner, one of sessionShare parts of the bytes of a repository's day is kept.
const (
	maxSessions    = 200
	maxSessionDays = 2
	sessionShare   = 2
)

// fetchSessions are the sessions of all repositories.
type fetchSessions struct {
	cfg    *Config // read-only
	report *report // read-only

	mu sync.Mutex
	// guarded by mu
	all      []*fetchSession
	fetching map[graspsync.RepoRef]int // requests in flight; -1 while nobody may fetch
}

func newFetchSessions(cfg *Config, report *report) *fetchSessions {
	return &fetchSessions{cfg: cfg, report: report, fetching: make(map[graspsync.RepoRef]int)}
}

// enter keeps others from taking a repository until leave is called. It returns false if the
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

// take keeps others from fetching for a repository, and discards its sessions. It returns false if
// a fetch is under way. leave must be called once.
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

// discardAll is called after all fetches.
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

// open returns a session for a request. The caller has entered the repository, and calls done
// before leave.
func (fs *fetchSessions) open(q fetchRequest) *fetchSession {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	for _, s := range fs.all {
		if s.repo == q.repo && s.whose == q.whose && s.stranger == q.stranger && !s.inUse && !q.several {
			s.inUse = true
			return s
		}
	}
	s := &fetchSession{repo: q.repo, whose: q.whose, stranger: q.stranger, inUse: true}
	fs.all = append(fs.all, s)
	return s
}

// began records the begin of a request, or with a zero time that its data is part of the
// repository.
func (fs *fetchSessions) began(s *fetchSession, at time.Time) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	s.began = at
}

// done gives a session back, with the received bytes. It stays if it has data and there is room. If
// nothing is missing any more, the other requests for the repository end. All of this is one step,
// because otherwise other sessions would be discarded for one that is in use.
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
		fs.report.drop("gathered")
	}
	fs.discard(gone...)
}

// excess removes unused sessions for which there is no room: those of the owner with most, those of
// pull requests first, of these those of the author with most. mu is held.
func (fs *fetchSessions) excess() (gone []*fetchSession) {
	part, total := fs.cfg.Limits.MaxRepoDay/sessionShare, fs.cfg.Limits.MaxRepoDay*maxSessionDays
	type authorOf struct {
		owner graspsync.PubKey
		of    fetchOwner
	}
	for {
		all, of, count, by := int64(0), make(map[graspsync.PubKey]int64), make(map[graspsync.PubKey]int), make(map[authorOf]int64)
		for _, s := range fs.all {
			all += s.bytes
			of[s.repo.Owner] += s.bytes
			count[s.repo.Owner]++
			by[authorOf{s.repo.Owner, s.whose}] += s.bytes
		}
		crowded := len(fs.all) > maxSessions
		var worst *fetchSession
		for _, s := range fs.all {
			owner := s.repo.Owner
			if s.inUse || all <= total && of[owner] <= part && !crowded {
				continue
			}
			if worst == nil {
				worst = s
				continue
			}
			order := cmp.Compare(of[owner], of[worst.repo.Owner])
			if crowded && all <= total {
				order = cmp.Compare(count[owner], count[worst.repo.Owner])
			}
			if cmp.Or(order, owner.Compare(worst.repo.Owner), pullsLast(s, worst),
				cmp.Compare(by[authorOf{owner, s.whose}], by[authorOf{owner, worst.whose}]), cmp.Compare(s.bytes, worst.bytes)) > 0 {
				worst = s
			}
		}
		if worst == nil {
			return gone
		}
		gone = append(gone, fs.remove(func(s *fetchSession) bool { return s == worst })...)
	}
}

// pullsLast compares sessions, those of states first.
func pullsLast(a, b *fetchSession) int {
	pulls := func(s *fetchSession) int {
		if s.whose == (fetchOwner{}) {
			return 0
		}
		return 1
	}
	return pulls(a) - pulls(b)
}

// discard discards the data of sessions that nobody else can have.
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

// since returns when the first request in flight for a repository began, or the zero time.
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

// request fetches into a session.
func (fs *fetchSessions) request(ctx context.Context, s *fetchSession, from graspsync.CloneURL, want []nip34.ObjectID) (int64, error) {
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
	n, err := s.quarantine.Fetch(ctx, from, want)
	set(nil)
	if why := context.Cause(ctx); err != nil && (errors.Is(why, errNotNeeded) || errors.Is(why, errGaveWay)) {
		err = fmt.Errorf("%w (%w)", why, err)
	}
	return n, err
}
