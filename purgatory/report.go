package purgatory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/loglimit"
	"github.com/graspsync/graspsync/internal/outage"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/purgatory/internal/gitops"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// Components whose panics are contained. See [Status].
const (
	ofRelay    = "relay"
	ofRepos    = "repositories"
	ofGit      = "git"
	ofStore    = "store"
	ofObserver = "observer"
)

type report struct {
	cfg     *Config
	lines   loglimit.Limiter[string] // subjects of log lines that a stranger can cause
	failing outage.Table

	held                            atomic.Uint64
	fetches, failed, objects, bytes atomic.Uint64
	unreadable                      atomic.Uint64

	mu sync.Mutex
	// guarded by mu
	dropped  map[string]uint64
	ends     map[EventCode]uint64 // by reason
	panics   map[string]uint64
	byDomain map[string]*DomainStatus
	endings  *limit.Table[graspsync.EventID, EventState]
	replies  *limit.Table[replyKey, ServerState]
}

const (
	keyEvent = "event"
	keyRepo  = "repo"
	keyURL   = "url"
	keyError = "error"
)

func newReport(cfg *Config) *report {
	return &report{
		cfg: cfg, ends: map[EventCode]uint64{Released: 0, Expired: 0, Replaced: 0, Deleted: 0, NotStored: 0, Displaced: 0, Unwanted: 0},
		dropped: make(map[string]uint64), panics: make(map[string]uint64), byDomain: make(map[string]*DomainStatus),
		endings: limit.NewTable[graspsync.EventID, EventState](maxEnded, 0), replies: limit.NewTable[replyKey, ServerState](maxReplies, 0),
	}
}

// recovered is deferred and turns a panic of the embedder's code into an error, because a stranger
// may provoke it. It also records the result of the call. whose is the dependency, followed by a
// space and the operation if that may fail separately.
func (s *report) recovered(err *error, whose string) {
	if r := recover(); r != nil {
		part, _, _ := strings.Cut(whose, " ")
		s.panicked(r, part)
		*err = fmt.Errorf("%s panicked: %s", part, graspsync.Printable(fmt.Sprint(r)))
	}
	if whose != ofGit {
		s.recordResult(whose, *err)
	}
}

func (s *report) recordResult(whose string, failed error) {
	if errors.Is(failed, context.Canceled) {
		return
	}
	if slices.ContainsFunc(answersOfDependencies, func(known error) bool { return errors.Is(failed, known) }) {
		failed = nil
	}
	s.failing.Record(whose, failed)
}

// answersOfDependencies are errors about one request, which are no failure of the dependency.
var answersOfDependencies = []error{
	ErrRefused, ErrIncomplete, ErrFull, ErrNoRepository, ErrInUse, ErrNotServed, ErrServerUnusable, ErrLimit, ErrSlow, ErrBusy, gitops.ErrInvalidRefs,
	gitops.ErrChanged, gitops.ErrBusy,
}

// panicked is called during the panic, so that the log has the stack.
func (s *report) panicked(r any, whose string) {
	s.mu.Lock()
	s.panics[whose]++
	s.mu.Unlock()
	s.cfg.Logger.Error("panic recovered", "component", whose, keyError, graspsync.Printable(fmt.Sprint(r)), "stack", string(debug.Stack()))
}

func (s *report) observe(o Observation) {
	defer func() {
		if r := recover(); r != nil {
			s.panicked(r, ofObserver)
		}
	}()
	s.cfg.Observe(o)
}

func (s *report) log(level slog.Level, subject, msg string, ref graspsync.RepoRef, from graspsync.CloneURL, err error) {
	if s.lines.Allow(subject, time.Now()) {
		s.cfg.Logger.Log(context.Background(), level, msg, keyRepo, graspsync.Printable(ref.String()), keyURL, graspsync.Printable(from.String()), keyError, graspsync.Printable(err.Error()))
	}
}

const releaseFailed = "looking at a repository failed"

func (s *report) fault(what, msg string, err error) {
	if s.lines.Allow(what+" look", time.Now()) {
		s.cfg.Logger.Warn(msg, "operation", graspsync.Printable(what), keyError, graspsync.Printable(err.Error()))
	}
}

func (s *report) drop(reason string) { s.dropSome(reason, 1) }

func (s *report) dropSome(reason string, n int) {
	if n <= 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dropped[reason] += uint64(n)
}

func (s *report) fetched(f FetchEnded) {
	s.fetches.Add(1)
	s.bytes.Add(uint64(f.Bytes))
	s.objects.Add(uint64(f.Wanted - f.Missing))
	if f.Err != nil {
		s.failed.Add(1)
	}
}

func (s *report) refused(e refplan.Entry, reason string) {
	s.cfg.Logger.Debug("event cannot be held", keyEvent, e.ID.String(), "class", e.Class.String(), "reason", reason)
	s.addEnding(endingOf(e, IsNotHeld, reason))
}

func (s *report) began(e refplan.Entry) {
	s.held.Add(1)
	s.observe(HoldStarted{ID: e.ID, Event: e.Signed(), ByUser: e.ByUser, Deadline: e.Deadline})
}

func (s *report) ended(e refplan.Entry, why EventCode) {
	s.mu.Lock()
	s.ends[why]++
	s.mu.Unlock()
	waited := time.Since(e.Seen).Round(time.Second)
	s.cfg.Logger.Debug("event hold ended", keyEvent, e.ID.String(), "class", e.Class.String(), "reason", string(why), "waited", waited)
	if why == Released && e.Class == refplan.Announcement && len(e.Repos) > 0 {
		s.cfg.Logger.Info("repository released", keyRepo, graspsync.Printable(e.Repos[0].String()), "waited", waited)
	}
	if why == Expired && len(e.Repos) > 0 && s.lines.Allow(e.Repos[0].Owner.String()+" expired", time.Now()) {
		s.cfg.Logger.Info("event expired before its git data arrived", keyRepo, graspsync.Printable(e.Repos[0].String()), keyEvent, e.ID.String(),
			"class", e.Class.String(), "waited", waited)
	}
	s.addEnding(endingOf(e, why, ""))
	s.observe(HoldEnded{ID: e.ID, Event: e.Signed(), Reason: why, Waited: time.Since(e.Seen)})
}

// request counts a request. end counts its end, and returns for how long the server has failed.
func (s *report) request(domain string) (end func(err error) (failing time.Duration)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.byDomain[domain]
	if d == nil && len(s.byDomain) >= maxDomains {
		domain = otherDomains
		d = s.byDomain[domain]
	}
	if d == nil {
		d = &DomainStatus{Domain: strings.Clone(domain)}
		s.byDomain[d.Domain] = d
	}
	d.InFlight++
	d.Requests++
	d.LastRequest = time.Now()
	return func(err error) (failing time.Duration) {
		now := time.Now()
		s.mu.Lock()
		defer s.mu.Unlock()
		if d.InFlight--; err != nil {
			d.Failed++
			d.LastFailure, d.LastError = now, graspsync.Printable(err.Error())
		}
		switch {
		case err == nil || errors.Is(err, ErrNotServed): // a server without the objects works
			d.failing = time.Time{}
			return 0
		case d.failing.IsZero():
			d.failing = now
		}
		return now.Sub(d.failing)
	}
}

// domains returns the servers by name. The shared label is last.
func (s *report) domains() []DomainStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]DomainStatus, 0, len(s.byDomain))
	for _, d := range s.byDomain {
		out = append(out, *d)
	}
	last := func(d DomainStatus) int {
		if d.Domain == otherDomains {
			return 1
		}
		return 0
	}
	slices.SortFunc(out, func(a, b DomainStatus) int { return cmp.Or(last(a)-last(b), cmp.Compare(a.Domain, b.Domain)) })
	return out
}

// maxDomains is the maximum number of servers with a label of their own.
const maxDomains = 200

const otherDomains = "other"

func (s *report) count(st *Status) {
	st.Held, st.Unreadable = s.held.Load(), s.unreadable.Load()
	st.Fetches, st.Failed, st.Objects, st.Fetched = s.fetches.Load(), s.failed.Load(), s.objects.Load(), s.bytes.Load()
	s.mu.Lock()
	st.Ended, st.Dropped, st.Panics = maps.Clone(s.ends), maps.Clone(s.dropped), maps.Clone(s.panics)
	s.mu.Unlock()
	st.Failures = s.failing.All()
	st.Domains = s.domains()
}

const maxEnded, maxReplies = 10_000, 10_000

type replyKey struct {
	repo graspsync.RepoRef
	from graspsync.CloneURL
}

func (s *report) addEnding(e EventState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	who := limit.Stranger{}
	if len(e.Repos) > 0 {
		who.ID = e.Repos[0].Owner.String()
	}
	s.endings.Put(e.ID, who, 0, e)
}

func (s *report) ending(id graspsync.EventID) (EventState, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.endings.Get(id)
}

// endingsOf returns the endings of a repository, the newest first.
func (s *report) endingsOf(ref graspsync.RepoRef) (out []EventState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.endings.All() {
		if slices.Contains(e.Repos, ref) {
			out = append(out, e)
		}
	}
	slices.Reverse(out)
	return out
}

func (s *report) addReply(f FetchEnded) {
	r := ServerState{Asked: time.Now(), Wanted: f.Wanted, Missing: f.Missing}
	switch {
	case f.Local != nil:
		r.Local, r.Error = true, graspsync.Printable(f.Local.Error())
	case f.Err != nil && !errors.Is(f.Err, ErrNotServed):
		r.Error = graspsync.Printable(f.Err.Error())
	}
	s.putReply(replyKey{f.Repo, f.URL}, r)
}

func (s *report) addSkipped(ref graspsync.RepoRef, from graspsync.CloneURL, why string) {
	r := s.reply(ref, from)
	r.Skipped = why
	s.putReply(replyKey{ref, from}, r)
}

func (s *report) putReply(k replyKey, r ServerState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.replies.Put(k, limit.Stranger{ID: k.repo.Owner.String()}, 0, r)
}

func (s *report) reply(ref graspsync.RepoRef, from graspsync.CloneURL) ServerState {
	s.mu.Lock()
	defer s.mu.Unlock()
	r, _ := s.replies.Get(replyKey{ref, from})
	return r
}

func (s *report) repliers(ref graspsync.RepoRef) (urls []graspsync.CloneURL) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for k := range s.replies.All() {
		if k.repo == ref {
			urls = append(urls, k.from)
		}
	}
	return urls
}
