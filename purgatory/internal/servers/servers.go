// Package servers records received bytes, missing objects and waits of git servers and of the
// repositories that need them. It decides which objects the next request is for.
package servers

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/internal/writebehind"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
	"github.com/graspsync/graspsync/purgatory/internal/syncqueue"
	"github.com/graspsync/graspsync/state"
)

const (
	day = 24 * time.Hour
	// BrokenMin is short, because a single DNS failure must not outlast the events that wait.
	BrokenMin = time.Minute
	// BrokenMax is the longest pause of a broken server.
	BrokenMax = day
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
	maxKept    = 20_000 // records of servers, and of repositories; those of requests in flight are always kept
)

// Config are the limits of a [Records].
type Config struct {
	// Half of MaxRepoDay is for servers or objects that only pull requests name.
	MaxRepoDay, MaxHostDay int64
	MaxFetch               int64         // bytes charged for a request that a crash cut short
	Backoff                time.Duration // wait after the first incomplete attempt
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
	buffer *writebehind.Buffer // Put may be called with mu held, Save and Flush must not

	mu sync.Mutex
	// guarded by mu
	records *limit.Table[string, *record]
}

func (r *record) usage(q Request) *usage {
	if q.Pulls {
		return &r.Strangers
	}
	return &r.Bytes
}

// New returns Records. [Records.Load] reads those of the store.
func New(keep state.Store, cfg Config) *Records {
	return &Records{
		cfg: cfg,
		buffer: writebehind.New(keep, writebehind.Config{
			Delay: keepDelay, Timeout: cfg.Timeout, MaxValue: maxRecord, MaxQueue: maxChanges,
			Logger: cfg.Logger, Dropped: func(_ string, n int) { cfg.Dropped("server_memory", n) },
		}),
		records: limit.NewTable[string, *record](2*maxKept, 0),
	}
}

// Next returns the next request to a URL for missing objects, those of states first, or the reason why
// it may not be sent now.
func (rs *Records) Next(ref graspsync.RepoRef, from graspsync.CloneURL, n refplan.Need) (q Request, refused string) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	now := time.Now()
	r := rs.known(ref)
	q = r.choose(now, ref, from, n)
	if r != nil {
		own, strangers, most := r.Bytes.today(now), r.Strangers.today(now), rs.cfg.MaxRepoDay
		if own+strangers >= most || q.Pulls && strangers >= most/2 {
			return q, "repo_day"
		}
	}
	server, known := rs.records.Get(keyOf(from.HostPort().String()))
	switch {
	case known && server.Bytes.today(now) >= rs.cfg.MaxHostDay:
		return q, "host_day"
	case len(q.IDs) == 0 || r.lacking(now, q):
		return q, "server_lacks"
	}
	return q, ""
}

// Request is for objects either of states or of pull requests, never both, because a server refuses
// the whole request for one missing object.
type Request struct {
	Repo     graspsync.RepoRef
	From     graspsync.CloneURL
	Pulls    bool // for objects that only pull requests name
	IDs      []nip34.ObjectID
	Roomless bool // objects without room were left out
	Lacked   bool // the last request for the same objects brought nothing

	hash string // of all objects that may be requested
	next int    // position after IDs among them
}

func (r *record) choose(now time.Time, ref graspsync.RepoRef, from graspsync.CloneURL, n refplan.Need) Request {
	q := r.prefer(now, ref, from, n)
	l := r.lackOf(q.key())
	all, at := q.IDs, 0
	if l.halved > 0 {
		at = l.from % max(1, len(all))
	}
	q.Lacked = l.Times > 0 && l.IDs == q.hash
	q.IDs = slices.Concat(all[at:], all[:at])
	if len(q.IDs) > 1 {
		q.IDs = q.IDs[:min(len(q.IDs), max(1, len(all)>>l.halved))]
	}
	q.next = at + len(q.IDs)
	return q
}

// prefer returns the request for objects of states or, while the server lacks these, of pull
// requests. A server that only pull requests name is asked for the latter only.
func (r *record) prefer(now time.Time, ref graspsync.RepoRef, from graspsync.CloneURL, n refplan.Need) Request {
	rest := r.all(now, ref, from, n, true)
	if !slices.Contains(n.MemberURLs, from) {
		return rest
	}
	first := r.all(now, ref, from, n, false)
	switch {
	case len(first.IDs) == 0 && (len(rest.IDs) > 0 || rest.Roomless):
		return rest
	case len(first.IDs) == 0 || len(rest.IDs) == 0:
		return first
	case r.lacking(now, first):
		return rest
	}
	return first
}

func (r *record) all(now time.Time, ref graspsync.RepoRef, from graspsync.CloneURL, n refplan.Need, pulls bool) Request {
	q := Request{Repo: ref, From: from, Pulls: pulls}
	sum := sha256.New()
	for _, id := range n.IDs {
		if _, ofState := slices.BinarySearchFunc(n.StateIDs, id, refplan.CompareIDs); ofState == pulls {
			continue
		}
		if pulls {
			if l := r.lackOf(lackKey(from, " "+id.String())); l.Waits(now) {
				q.Roomless = true
				continue
			}
		}
		q.IDs = append(q.IDs, id)
		sum.Write([]byte(id.String()))
	}
	q.hash = hex.EncodeToString(sum.Sum(nil))
	return q
}

func (r *record) lacking(now time.Time, q Request) bool {
	l := r.lackOf(q.key())
	return l.Waits(now) && (l.IDs == q.hash || l.IDs == "")
}

// Beyond reports whether a request is for objects that were not in asked.
func (q Request) Beyond(asked Request) bool {
	if q.Pulls != asked.Pulls {
		return len(q.IDs) > 0
	}
	return slices.ContainsFunc(q.IDs, func(id nip34.ObjectID) bool { return !slices.Contains(asked.IDs, id) })
}

// Learn records the reply to a request.
func (rs *Records) Learn(q Request, bytes int64, outcome syncqueue.Outcome) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	now := time.Now()
	r, server := rs.repository(q.Repo), rs.server(q.From.HostPort())
	if bytes > 0 {
		for _, u := range []*usage{r.usage(q), &server.Bytes} {
			u.Units = u.today(now) + bytes
		}
	}
	if r.learn(now, rs.cfg.Backoff/2, q, outcome); outcome == syncqueue.Complete {
		rs.clearLacks(r)
	}
}

// learn records a reply. A server that lacks the objects is asked again after doubling waits. After a
// reply beyond a limit, half of the objects is requested. If it was one object, the wait is 24 h for
// the server or, if its pull request has no room, for this object, or minutes after a time limit.
func (r *record) learn(now time.Time, wait time.Duration, q Request, outcome syncqueue.Outcome) {
	l := r.lackOf(q.key())
	if l.IDs != q.hash {
		l = lack{IDs: q.hash, halved: l.halved, from: l.from}
	}
	tomorrow := backoff.Streak{Until: now.Add(day)}
	tooMuch := outcome >= syncqueue.TooMuch
	switch {
	case tooMuch && len(q.IDs) > 1:
		l = lack{IDs: q.hash, halved: l.halved + 1, from: l.from}
	case tooMuch && outcome == syncqueue.NoRoom:
		r.put(lackKey(q.From, " "+q.IDs[0].String()), lack{Streak: tomorrow})
		if l.halved == 0 {
			return
		}
		l.halved-- // halve less, because one object is gone
	case outcome == syncqueue.Full: // other objects may have room
		l = lack{IDs: q.hash, Streak: tomorrow, halved: l.halved, from: q.next}
	case outcome == syncqueue.Slow:
		l.Fail(now, wait, lackMost)
	case tooMuch:
		l = lack{Streak: tomorrow}
	case outcome == syncqueue.Nothing:
		l.from = q.next
		l.Fail(now, wait, lackMost)
	default:
		return
	}
	r.put(q.key(), l)
}

func (r *record) lackOf(k string) (l lack) {
	if r != nil {
		l = r.Lacks[k]
	}
	return l
}

func (r *record) put(k string, l lack) {
	r.Lacks[k] = l
	for other := range r.Lacks { // in random order; a dropped record costs one request
		if len(r.Lacks) <= maxLacks {
			break
		}
		if other != k {
			delete(r.Lacks, other)
		}
	}
}

func (q Request) key() string {
	if q.Pulls {
		return lackKey(q.From, " pulls")
	}
	return lackKey(q.From, "")
}

func lackKey(from graspsync.CloneURL, what string) string { return hashed(from.String() + what) }

// Complete records that a repository lacks nothing.
func (rs *Records) Complete(ref graspsync.RepoRef) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r := rs.known(ref); r != nil {
		rs.clearLacks(r)
	}
}

// clearLacks deletes the lacks of certain objects. Those of any objects stay. mu is held.
func (rs *Records) clearLacks(r *record) {
	maps.DeleteFunc(r.Lacks, func(_ string, l lack) bool { return l.IDs != "" })
	r.Pause = backoff.Streak{}
	rs.save(r)
}

// AddRequest records a request in memory. SaveRequest writes it.
func (rs *Records) AddRequest(x syncqueue.Fetch) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	now := time.Now()
	server := rs.server(x.URL.HostPort())
	server.Last, server.Recent = now, x.Recent
	rs.repository(x.Repo).Pause = backoff.Streak{Times: x.Attempt, Until: now.Add(x.Wait)}
}

// SavePause records the pause of a broken server.
func (rs *Records) SavePause(a graspsync.HostPort, pause backoff.Streak) {
	rs.mu.Lock()
	defer rs.mu.Unlock()
	if r := rs.server(a); r.Pause != pause {
		r.Pause = pause
		rs.save(r)
	}
}

// SaveRequest writes a request to the disk before it is sent. end must be called after the request.
func (rs *Records) SaveRequest(ctx context.Context, q Request, wait time.Duration) (end func(), err error) {
	rs.mu.Lock()
	server, r := rs.server(q.From.HostPort()), rs.repository(q.Repo)
	server.Bytes.requests++
	r.usage(q).requests++
	rs.mu.Unlock()
	end = func() {
		rs.mu.Lock()
		defer rs.mu.Unlock()
		server.Bytes.requests--
		r.usage(q).requests--
		if r.Pause.Times > 0 {
			r.Pause.Until = time.Now().Add(wait)
		}
		rs.save(server)
		rs.save(r)
	}
	ctx, cancel := context.WithTimeout(ctx, rs.cfg.Timeout)
	defer cancel()
	if err = rs.buffer.Save(ctx, rs.change(server), rs.change(r)); err != nil {
		end()
		return nil, fmt.Errorf("keeping that a server is asked: %w", err)
	}
	return end, nil
}

// known returns nil for an unknown repository. mu is held, as in server, repository and obtain.
func (rs *Records) known(ref graspsync.RepoRef) *record {
	r, _ := rs.records.Get(keyOf(ref.String()))
	return r
}

func (rs *Records) server(a graspsync.HostPort) *record {
	return rs.obtain(a.String(), limit.Stranger{})
}

func (rs *Records) repository(ref graspsync.RepoRef) *record {
	return rs.obtain(ref.String(), repositories)
}

// obtain returns a record, and evicts another one if the table is full.
func (rs *Records) obtain(name string, who limit.Stranger) *record {
	key := keyOf(name)
	r, known := rs.records.Get(key)
	if !known {
		r = &record{Name: name, Lacks: make(map[string]lack)}
		gone, _ := rs.records.PutKeeping(key, who, 0, r, func(k string) bool { r, _ := rs.records.Get(k); return r.inUse() })
		for _, e := range gone {
			rs.save(e.Value)
			rs.cfg.Dropped("server_memory", 1)
		}
	}
	rs.records.Touch(key)
	return r
}

// repositories is the stranger in whose share the records of repositories count. Those of servers
// count for the zero Stranger.
var repositories = limit.Stranger{ID: "repositories"}

func (rs *Records) sweep(ctx context.Context) {
	ticks := time.NewTicker(keepSweep)
	defer ticks.Stop()
	for {
		select {
		case <-ticks.C:
		case <-ctx.Done():
			return
		}
		rs.mu.Lock()
		now := time.Now()
		for _, r := range rs.records.All() {
			if !r.isWorth(now) {
				rs.save(r)
			}
		}
		rs.mu.Unlock()
	}
}

// Start starts the writer. end is called after all requests, and returns when the records are
// durable.
func (rs *Records) Start(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { rs.buffer.Run(ctx) })
	wg.Go(func() { rs.sweep(ctx) })
	return func() {
		last, stop := context.WithTimeout(ctx, lastWords)
		defer stop()
		if err := rs.buffer.Flush(last); err != nil {
			rs.cfg.Logger.Warn("saving records of git servers failed", "error", graspsync.Printable(err.Error()))
		}
		cancel()
		wg.Wait()
	}
}
