// Package servers records received bytes, missing objects and waits of git servers and of the
// repositories that need them. It decides which objects the next request is for.
package servers

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/internal/writebehind"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
	"github.com/graspsync/graspsync/purgatory/internal/syncqueue"
	"github.com/graspsync/graspsync/state"
)

const (
	day = 24 * time.Hour
	// BrokenMin is short, because a single DNS failure must not outlast the events that wait.
	BrokenMin = time.Minute
	// BrokenMax is the longest pause of a broken server.
	BrokenMax  = day
	futileMost = day
	// lackMost is the longest pause of a server that lacks objects, because it may get them.
	lackMost = 10 * time.Minute
	// maxLacks is the maximum number of lacks of a repository in memory, savedLacks on the disk.
	maxLacks, savedLacks = 1000, 64
	// keepDelay is short, because a record charges the maximum until the end of a request is on disk.
	keepDelay  = time.Second
	keepSweep  = time.Hour       // period of the search for empty records
	lastWords  = 2 * time.Second // maximum time of the last write
	maxRecord  = 1 << 20         // bytes
	maxChanges = 100_000
)

// Config are the limits of a [Records].
type Config struct {
	// Half of MaxRepoDay is for servers or objects that only pull requests name.
	MaxRepoDay, MaxHostDay int64
	MaxFetch               int64         // bytes charged for a request that a crash cut short
	MaxKept                int           // records of servers, and of repositories
	Backoff                time.Duration // wait after the first incomplete attempt
	MaxBackoff             time.Duration // longest wait between two attempts
	Check                  time.Duration // period of the checks of all repositories
	Timeout                time.Duration // of a write
	Logger                 *slog.Logger
	Dropped                func(reason string, n int)
	Unreadable             func() // called for each unreadable record
}

// Records are safe for concurrent use. A change is written in the background, but a request is
// durable before it is sent.
type Records struct {
	// set by New, read-only
	cfg    Config
	keep   state.Store
	buffer *writebehind.Buffer // Put may be called with mu held, Save and Flush must not

	mu sync.Mutex
	// guarded by mu
	hosts   *limit.Table[graspsync.HostPort, *server]
	fetches *limit.Table[graspsync.RepoRef, *repoFetches]
}

// usage counts the bytes of a day and the requests in flight.
type usage struct {
	limit.Day
	requests int
}

// today returns the bytes of the current day, which starts with its first bytes.
func (u *usage) today(now time.Time) int64 {
	if u.Units == 0 || now.Sub(u.Since) >= day {
		u.Day = limit.Day{Since: now}
	}
	return u.Units
}

type server struct {
	usage
	last   time.Time // last request
	recent int       // requests in the minute before last
	broken backoff.Streak
}

type repoFetches struct {
	attempts backoff.Streak // incomplete attempts
	futile   backoff.Streak // attempts for data that no held event needs
	own      usage          // bytes from servers of maintainers
	strange  usage          // bytes of requests whose server or objects only pull requests name
	lacks    map[lackKey]lack
}

func (h *repoFetches) usage(q Request) *usage {
	if q.Pulls {
		return &h.strange
	}
	return &h.own
}

// New returns Records. [Records.Load] reads those of the store.
func New(keep state.Store, cfg Config) *Records {
	return &Records{
		cfg: cfg, keep: keep,
		buffer: writebehind.New(keep, writebehind.Config{
			Delay: keepDelay, Timeout: cfg.Timeout, MaxValue: maxRecord, MaxQueue: maxChanges,
			Logger: cfg.Logger, Dropped: func(_ string, n int) { cfg.Dropped("server_memory", n) },
		}),
		hosts:   limit.NewTable[graspsync.HostPort, *server](cfg.MaxKept, 0),
		fetches: limit.NewTable[graspsync.RepoRef, *repoFetches](cfg.MaxKept, 0),
	}
}

// Next returns the next request to a URL for missing objects.
func (sv *Records) Next(ref graspsync.RepoRef, from graspsync.CloneURL, n refplan.Need) Request {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	h, _ := sv.fetches.Get(ref)
	return h.choose(time.Now(), ref, from, n)
}

// Refuses returns the reason why a request may not be sent now, or "".
func (sv *Records) Refuses(q Request) string {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	now := time.Now()
	h, known := sv.fetches.Get(q.Repo)
	if known {
		own, strangers, most := h.own.today(now), h.strange.today(now), sv.cfg.MaxRepoDay
		if own+strangers >= most || q.Pulls && strangers >= most/2 {
			return "repo_day"
		}
	}
	switch {
	case sv.hostSpent(now, q.From.HostPort()):
		return "host_day"
	case len(q.IDs) == 0 || h.lacking(now, q):
		return "server_lacks"
	}
	return ""
}

func (sv *Records) hostSpent(now time.Time, a graspsync.HostPort) bool {
	s, known := sv.hosts.Get(a)
	return known && s.today(now) >= sv.cfg.MaxHostDay
}

// Learn records the reply to a request.
func (sv *Records) Learn(q Request, bytes int64, outcome syncqueue.Outcome) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	now := time.Now()
	h, s := sv.repository(q.Repo), sv.server(q.From.HostPort())
	if bytes > 0 {
		for _, u := range []*usage{h.usage(q), &s.usage} {
			u.Units = u.today(now) + bytes
		}
	}
	if h.learn(now, sv.cfg.Backoff/2, q, outcome); outcome == syncqueue.Complete {
		sv.rest(q.Repo)
	}
}

// Complete records that a repository lacks nothing.
func (sv *Records) Complete(ref graspsync.RepoRef) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	sv.rest(ref)
}

// rest keeps records that last until the next day. mu is held.
func (sv *Records) rest(ref graspsync.RepoRef) {
	if h, known := sv.fetches.Get(ref); known {
		for u, l := range h.lacks {
			if !l.whatever {
				delete(h.lacks, u)
			}
		}
		h.attempts, h.futile = backoff.Streak{}, backoff.Streak{}
		sv.soonHunted(ref)
	}
}

// Started records a request in memory. Begin writes it.
func (sv *Records) Started(x syncqueue.Fetch) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	now := time.Now()
	s, h := sv.server(x.URL.HostPort()), sv.repository(x.Repo)
	s.last, s.recent = now, x.Recent
	h.attempts = backoff.Streak{Times: x.Attempt, Until: now.Add(x.Wait)}
}

// Broke records the pause of a broken server.
func (sv *Records) Broke(a graspsync.HostPort, broken backoff.Streak) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	if s, known := sv.hosts.Get(a); known && s.broken != broken {
		s.broken = broken
		sv.soonServer(a)
	}
}

// Futile returns the pause before the next fetch of data that no held event needs.
func (sv *Records) Futile(ref graspsync.RepoRef) backoff.Streak {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	if h, known := sv.fetches.Get(ref); known {
		return h.futile
	}
	return backoff.Streak{}
}

// NoteFutile records an attempt for data that no held event needs.
func (sv *Records) NoteFutile(ref graspsync.RepoRef) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	sv.repository(ref).futile.Again(time.Now(), sv.cfg.Check*9/10, futileMost)
	sv.soonHunted(ref)
}

// Renew ends the pause of a repository.
func (sv *Records) Renew(ref graspsync.RepoRef) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	if h, known := sv.fetches.Get(ref); known {
		h.futile = backoff.Streak{}
	}
}

// Begin writes a request to the disk before it is sent. end must be called after the request.
func (sv *Records) Begin(ctx context.Context, q Request, wait time.Duration) (end func(), err error) {
	a := q.From.HostPort()
	count := func(n int) {
		sv.mu.Lock()
		defer sv.mu.Unlock()
		s, h := sv.server(a), sv.repository(q.Repo)
		s.requests = max(0, s.requests+n)
		u := h.usage(q)
		u.requests = max(0, u.requests+n)
		if n < 0 {
			if h.attempts.Times > 0 {
				h.attempts.Until = time.Now().Add(wait)
			}
			sv.soonServer(a)
			sv.soonHunted(q.Repo)
		}
	}
	count(1)
	ctx, cancel := context.WithTimeout(ctx, sv.cfg.Timeout)
	defer cancel()
	err = sv.buffer.Save(ctx, writebehind.Change{Key: serverKey(a), Value: sv.serverValue(a)},
		writebehind.Change{Key: fetchesKey(q.Repo), Value: sv.huntedValue(q.Repo)})
	if err != nil {
		count(-1)
		return nil, fmt.Errorf("keeping that a server is asked: %w", err)
	}
	return func() { count(-1) }, nil
}

// server returns a record, and evicts another one if the table is full. mu is held.
func (sv *Records) server(a graspsync.HostPort) *server {
	return obtain(sv, sv.hosts, a, &server{}, func(s *server) bool { return s.requests > 0 }, sv.soonServer)
}

func (sv *Records) repository(ref graspsync.RepoRef) *repoFetches {
	return obtain(sv, sv.fetches, ref, &repoFetches{lacks: make(map[lackKey]lack)},
		func(h *repoFetches) bool { return h.own.requests+h.strange.requests > 0 }, sv.soonHunted)
}

func obtain[K comparable, V any](sv *Records, of *limit.Table[K, V], k K, fresh V, inUse func(V) bool, soon func(K)) V {
	v, known := of.Get(k)
	if !known {
		v = fresh
		gone, _ := of.PutKeeping(k, limit.Stranger{}, 0, v, func(k K) bool { v, _ := of.Get(k); return inUse(v) })
		for _, e := range gone {
			soon(e.Key)
			sv.cfg.Dropped("server_memory", 1)
		}
	}
	of.Touch(k)
	return v
}

func (sv *Records) soonServer(a graspsync.HostPort) { sv.buffer.Put(serverKey(a), sv.serverValue(a)) }

func (sv *Records) soonHunted(ref graspsync.RepoRef) {
	sv.buffer.Put(fetchesKey(ref), sv.huntedValue(ref))
}

func (sv *Records) serverValue(a graspsync.HostPort) writebehind.Value {
	return func() ([]byte, bool) {
		sv.mu.Lock()
		defer sv.mu.Unlock()
		return written(sv.hosts, a, sv.serverRecord)
	}
}

func (sv *Records) huntedValue(ref graspsync.RepoRef) writebehind.Value {
	return func() ([]byte, bool) {
		sv.mu.Lock()
		defer sv.mu.Unlock()
		return written(sv.fetches, ref, sv.fetchesRecord)
	}
}

// written returns the JSON of a record. An empty record is deleted.
func written[K comparable, V, R any](of *limit.Table[K, V], k K, record func(K, V, time.Time) (R, bool)) ([]byte, bool) {
	v, known := of.Get(k)
	if !known {
		return nil, false
	}
	r, worth := record(k, v, time.Now())
	if !worth {
		of.Delete(k)
		return nil, false
	}
	data, err := json.Marshal(r)
	return data, err == nil
}

// sweep deletes empty records until ctx ends.
func (sv *Records) sweep(ctx context.Context) {
	ticks := time.NewTicker(keepSweep)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return
		}
		sv.mu.Lock()
		now := time.Now()
		for a, s := range sv.hosts.All() {
			if _, worth := sv.serverRecord(a, s, now); !worth {
				sv.soonServer(a)
			}
		}
		for ref, h := range sv.fetches.All() {
			if _, worth := sv.fetchesRecord(ref, h, now); !worth {
				sv.soonHunted(ref)
			}
		}
		sv.mu.Unlock()
	}
}

// Start starts the writer. end is called after all requests, and returns when the records are
// durable.
func (sv *Records) Start(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { sv.buffer.Run(ctx) })
	wg.Go(func() { sv.sweep(ctx) })
	return func() {
		last, stop := context.WithTimeout(ctx, lastWords)
		defer stop()
		if err := sv.buffer.Flush(last); err != nil {
			sv.cfg.Logger.Warn("saving records of git servers failed", "error", graspsync.Printable(err.Error()))
		}
		cancel()
		wg.Wait()
	}
}
