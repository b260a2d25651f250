package purgatory

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/writebehind"
	"github.com/graspsync/graspsync/purgatory/internal/resolve"
	"github.com/graspsync/graspsync/purgatory/internal/syncqueue"
	"github.com/graspsync/graspsync/state"
)

// servers are what is known of git servers, and of hunting for repositories: what they sent,
// what they lack, and when they may be asked again. What of it is to survive a restart is
// written behind; that a server is asked is on the disk before.
type servers struct {
	// set by newServers, read-only
	cfg    *Config
	report *report
	keep   state.Store
	buffer *writebehind.Buffer // its methods may be called with mu held, but for Save and Flush

	mu sync.Mutex
	// guarded by mu
	memory  memory
	servers map[graspsync.HostPort]*server // of which something is on the disk, or will be
	hunted  map[graspsync.RepoRef]*hunted
}

func newServers(cfg *Config, report *report, keep state.Store) *servers {
	return &servers{
		cfg: cfg, report: report, keep: keep, memory: newMemory(*cfg),
		buffer: writebehind.New(keep, writebehind.Config{
			Delay: keepDelay, Timeout: cfg.fixed.Timeout, MaxValue: maxRecord, MaxQueue: maxChanges,
			Logger: cfg.Logger, Dropped: func(_ string, n int) { report.dropSome("kept", n) },
		}),
		servers: make(map[graspsync.HostPort]*server), hunted: make(map[graspsync.RepoRef]*hunted),
	}
}

// server is what is kept of a git server, besides the bytes that it sent. It is
// guarded by servers.mu, as hunted is.
type server struct {
	last        time.Time
	recent      int
	failures    int
	brokenUntil time.Time
	underWay    int
}

// hunted is what is kept of a repository, besides what memory has.
type hunted struct {
	attempts          int
	next              time.Time
	vain              patience
	underWay          int // requests to servers of its maintainers
	underWayStrangers int
}

func (s *server) inUse() bool { return s.underWay > 0 }

func (h *hunted) inUse() bool { return h.underWay+h.underWayStrangers > 0 }

// book is one of the things of which something is kept.
type book interface {
	inUse() bool // somebody is asked: it can't be dropped
}

// patience is how long a listed repository is not hunted for that was hunted for in
// vain.
type patience struct {
	until    time.Time
	failures int
}

const (
	// maxLacks bounds what is kept that servers lack for one repository.
	maxLacks = 64
	// brokenMin and brokenMost are how long a server is left alone that is of no use: a name that
	// can't be resolved once must not outlast what waits for it.
	brokenMin, brokenMost = time.Minute, 24 * time.Hour
)

// question is what one URL is asked for of what is missing of a repository now.
func (sv *servers) question(ref graspsync.RepoRef, from graspsync.CloneURL, n resolve.Need) question {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	return sv.memory.choose(time.Now(), ref, from, n)
}

func (sv *servers) refuses(q question) string {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	return sv.memory.refuses(time.Now(), q)
}

// charge remembers what a server sent, and what it lacks as long as anything is
// missing.
func (sv *servers) charge(q question, seen Fetched, complete bool) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	sv.memory.learn(time.Now(), q, seen)
	if complete {
		sv.rest(q.repo)
	}
}

// full returns for how many bytes there must be room before a server is asked.
func (sv *servers) full(q question) int64 {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	return sv.memory.full(q)
}

// forget notes that a repository lacks nothing any more.
func (sv *servers) forget(ref graspsync.RepoRef) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	sv.rest(ref)
}

// ofServer is what is on the disk of a server, as it is when that is written: nothing, if
// nothing is kept of it or that says nothing any more.
func (sv *servers) ofServer(a graspsync.HostPort) writebehind.Change {
	return writebehind.Change{Key: serverKey(a), Value: func() ([]byte, bool) {
		sv.mu.Lock()
		defer sv.mu.Unlock()
		return written(sv.servers, a, sv.serverRecord)
	}}
}

// ofHunted is the same of a repository.
func (sv *servers) ofHunted(ref graspsync.RepoRef) writebehind.Change {
	return writebehind.Change{Key: huntedKey(ref), Value: func() ([]byte, bool) {
		sv.mu.Lock()
		defer sv.mu.Unlock()
		return written(sv.hunted, ref, sv.huntedRecord)
	}}
}

// written is a record as text. What is not worth one is forgotten.
func written[K comparable, B book, R any](books map[K]B, k K, record func(K, time.Time) (R, bool)) ([]byte, bool) {
	if _, ok := books[k]; !ok {
		return nil, false
	}
	r, worth := record(k, time.Now())
	if !worth {
		delete(books, k)
		return nil, false
	}
	data, err := json.Marshal(r)
	return data, err == nil
}

// soon has something on the disk soon, with what else changes until then. It is counted if
// there is no room for it.
func (sv *servers) soon(c writebehind.Change) { sv.buffer.Put(c.Key, c.Value) }

// sweep has dropped what says nothing any more.
func (sv *servers) sweep() {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	now := time.Now()
	for a := range sv.servers {
		if _, worth := sv.serverRecord(a, now); !worth {
			sv.soon(sv.ofServer(a))
		}
	}
	for ref := range sv.hunted {
		if _, worth := sv.huntedRecord(ref, now); !worth {
			sv.soon(sv.ofHunted(ref))
		}
	}
}

func (sv *servers) runSweeping(ctx context.Context) {
	sweep := time.NewTicker(keepSweep)
	defer sweep.Stop()
	for {
		select {
		case <-sweep.C:
			sv.sweep()
		case <-ctx.Done():
			return
		}
	}
}

// start begins to keep what is learned. end must be called when nothing happens any more: what
// was learned by then is on the disk when it returns.
func (sv *servers) start(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { sv.buffer.Run(ctx) })
	return func() {
		last, stop := context.WithTimeout(ctx, lastWords)
		defer stop()
		if err := sv.buffer.Flush(last); err != nil {
			sv.cfg.Logger.Warn("what was learned of servers could not be kept", keyError, graspsync.Printable(err.Error()))
		}
		cancel()
		wg.Wait()
	}
}

// serverRecord is called with mu held. A request under way counts for as much as it
// can bring: should we not see its end, that may have come.
func (sv *servers) serverRecord(a graspsync.HostPort, now time.Time) (r serverRecord, worth bool) {
	s := sv.servers[a]
	r = serverRecord{
		Server: a.String(), Last: saved(s.last), Recent: s.recent, Failures: s.failures, BrokenUntil: saved(s.brokenUntil),
		Day: sv.day(sv.memory.hosts[a], s.underWay, now),
	}
	return r, r.Day.Bytes > 0 || now.Before(s.brokenUntil.Add(brokenMost)) || now.Sub(s.last) < time.Minute
}

// huntedRecord is called with mu held.
func (sv *servers) huntedRecord(ref graspsync.RepoRef, now time.Time) (r huntedRecord, worth bool) {
	h := sv.hunted[ref]
	r = huntedRecord{
		Repo: ref.String(), Attempts: h.attempts, Next: saved(h.next), Vain: h.vain.failures, VainUntil: saved(h.vain.until),
		Own:       sv.day(sv.memory.repos[repoDay{ref, false}], h.underWay, now),
		Strangers: sv.day(sv.memory.repos[repoDay{ref, true}], h.underWayStrangers, now),
	}
	for u, l := range sv.memory.lacks[ref] {
		if now.Before(l.until) || !l.whatever {
			r.Lacks = append(r.Lacks, lackToRecord(u, l))
		}
	}
	slices.SortFunc(r.Lacks, func(a, b lackRecord) int { return b.Until.Compare(a.Until) })
	r.Lacks = r.Lacks[:min(len(r.Lacks), maxLacks)]
	waits := h.attempts > 0 && now.Before(h.next.Add(sv.cfg.fixed.MaxBackoff))
	lacks := len(r.Lacks) > 0 && now.Before(r.Lacks[0].Until)
	vain := h.vain.failures > 0 && now.Before(h.vain.until.Add(patienceMost)) // it goes on growing
	return r, waits || lacks || vain || r.Own.Bytes+r.Strangers.Bytes > 0
}

func (sv *servers) day(b *dayBudget, underWay int, now time.Time) (r dayRecord) {
	if b != nil && now.Sub(b.since) < day {
		r = dayRecord{Since: saved(b.since), Bytes: b.bytes}
	}
	if underWay > 0 {
		if r.Bytes == 0 {
			r.Since = saved(now)
		}
		r.Bytes += int64(underWay) * sv.cfg.fixed.MaxFetch
	}
	return r
}

// started notes a request, in the order of the queue. It is written down by begin, if
// it is made.
func (sv *servers) started(x syncqueue.Fetch) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	now := time.Now()
	s, h := sv.server(x.URL.HostPort()), sv.repository(x.Repo)
	s.last, s.recent = now, x.Recent
	h.attempts, h.next = x.Attempt, now.Add(x.Wait)
}

// found notes for how long a server is of no use.
func (sv *servers) found(a graspsync.HostPort, failures int, until time.Time) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	s := sv.servers[a]
	if s == nil || (s.failures == failures && s.brokenUntil.Equal(until)) {
		return
	}
	s.failures, s.brokenUntil = failures, until
	sv.soon(sv.ofServer(a))
}

// inVain notes for how long a repository that nothing waits for is not hunted for.
func (sv *servers) inVain(ref graspsync.RepoRef, p patience) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	h := sv.repository(ref)
	h.vain = p
	sv.soon(sv.ofHunted(ref))
}

// rest notes that a repository lacks nothing. It is called with mu held.
func (sv *servers) rest(ref graspsync.RepoRef) {
	sv.memory.forget(ref)
	if h := sv.hunted[ref]; h != nil {
		h.attempts, h.next, h.vain = 0, time.Time{}, patience{}
		sv.soon(sv.ofHunted(ref))
	}
}

// begin has a request on the disk before it is made. end must be called after it; it
// is on the disk soon.
func (sv *servers) begin(ctx context.Context, q question, wait time.Duration) (end func(), err error) {
	ofServer, ofHunted := sv.ofServer(q.from.HostPort()), sv.ofHunted(q.repo)
	add := func(n int) {
		s, h := sv.server(q.from.HostPort()), sv.repository(q.repo)
		s.underWay += n
		if q.stranger {
			h.underWayStrangers += n
		} else {
			h.underWay += n
		}
		if n < 0 && h.attempts > 0 {
			h.next = time.Now().Add(wait)
		}
	}
	end = func() {
		sv.mu.Lock()
		defer sv.mu.Unlock()
		add(-1)
		sv.soon(ofServer)
		sv.soon(ofHunted)
		trim(sv, sv.servers, sv.ofServer, sv.cfg.fixed.MaxKept) // many may have been in use at once
		trim(sv, sv.hunted, sv.ofHunted, sv.cfg.fixed.MaxKept)
	}
	sv.mu.Lock()
	add(1)
	sv.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, sv.cfg.fixed.Timeout)
	defer cancel()
	if err := sv.buffer.Save(ctx, ofServer, ofHunted); err != nil {
		end()
		return nil, fmt.Errorf("keeping that a server is asked: %w", err)
	}
	return end, nil
}

// server returns what is kept of a server, making room for it. It is called with mu
// held, as repository is.
func (sv *servers) server(a graspsync.HostPort) *server {
	if s := sv.servers[a]; s != nil {
		return s
	}
	trim(sv, sv.servers, sv.ofServer, sv.cfg.fixed.MaxKept-1)
	s := &server{}
	sv.servers[a] = s
	return s
}

func (sv *servers) repository(ref graspsync.RepoRef) *hunted {
	if h := sv.hunted[ref]; h != nil {
		return h
	}
	trim(sv, sv.hunted, sv.ofHunted, sv.cfg.fixed.MaxKept-1)
	h := &hunted{}
	sv.hunted[ref] = h
	return h
}

// recall reads what earlier processes kept of hunting. What can't be read is counted and
// dropped: the next request writes it anew.
func (sv *servers) recall(ctx context.Context, now time.Time) (repos []syncqueue.PastRepo, domains []syncqueue.PastDomain, vain map[graspsync.RepoRef]patience, err error) {
	err = sv.recallEach(ctx, keyServer, func(value []byte) (worth bool, err error) {
		d, worth, err := sv.recallServer(value, now)
		if err == nil && worth {
			domains = append(domains, d)
		}
		return worth, err
	})
	if err != nil {
		return nil, nil, nil, err
	}
	vain = make(map[graspsync.RepoRef]patience)
	err = sv.recallEach(ctx, keyHunted, func(value []byte) (worth bool, err error) {
		r, worth, err := sv.recallHunted(value, now)
		if err == nil && worth {
			if r.Attempts > 0 {
				repos = append(repos, r)
			}
			if h := sv.hunted[r.Repo]; h.vain.failures > 0 {
				vain[r.Repo] = h.vain
			}
		}
		return worth, err
	})
	return repos, domains, vain, err
}

// recallEach reads the records under a prefix, and drops those that are of no use.
func (sv *servers) recallEach(ctx context.Context, prefix string, read func(value []byte) (worth bool, err error)) error {
	err := sv.buffer.Load(ctx, prefix, func(key string, value []byte) (there bool, err error) {
		worth, err := read(value)
		if err != nil {
			sv.report.unreadable.Add(1)
			sv.cfg.Logger.Error("what was kept of hunting can't be read", "key", graspsync.Printable(key), keyError, graspsync.Printable(err.Error()))
		}
		if err != nil || !worth {
			return false, sv.keep.Delete(ctx, key)
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("recalling what was kept of hunting: %w", err)
	}
	return nil
}

func (sv *servers) recallServer(value []byte, now time.Time) (d syncqueue.PastDomain, worth bool, err error) {
	var r serverRecord
	if err := json.Unmarshal(value, &r); err != nil {
		return d, false, fmt.Errorf("%w: %w", errRecord, err)
	}
	u, err := graspsync.ParseCloneURL("https://" + r.Server)
	if err != nil || u.HostPort().String() != r.Server {
		return d, false, fmt.Errorf("%w: server %s", errRecord, graspsync.Printable(r.Server))
	}
	sv.mu.Lock()
	defer sv.mu.Unlock()
	a := u.HostPort()
	if len(sv.servers) >= sv.cfg.fixed.MaxKept {
		sv.report.drop("kept")
		return d, false, nil
	}
	if b := r.Day.budget(now); b != nil {
		sv.memory.hosts[a] = b
	}
	s := sv.server(a)
	s.last, s.recent, s.failures = recalled(now, r.Last, 0), r.Recent, r.Failures
	s.brokenUntil = recalled(now, r.BrokenUntil, brokenMost)
	if _, worth = sv.serverRecord(a, now); !worth {
		delete(sv.servers, a)
	}
	return syncqueue.PastDomain{Domain: a, Last: s.last, Recent: s.recent, Failures: s.failures, BrokenUntil: s.brokenUntil}, worth, nil
}

func (sv *servers) recallHunted(value []byte, now time.Time) (p syncqueue.PastRepo, worth bool, err error) {
	var r huntedRecord
	if err := json.Unmarshal(value, &r); err != nil {
		return p, false, fmt.Errorf("%w: %w", errRecord, err)
	}
	ref, err := graspsync.ParseRepoRef(r.Repo)
	if err != nil || len(r.Lacks) > maxLacks {
		return p, false, errors.Join(errRecord, err)
	}
	sv.mu.Lock()
	defer sv.mu.Unlock()
	if len(sv.hunted) >= sv.cfg.fixed.MaxKept {
		sv.report.drop("kept")
		return p, false, nil
	}
	for _, d := range []struct {
		day      dayRecord
		stranger bool
	}{{r.Own, false}, {r.Strangers, true}} {
		if b := d.day.budget(now); b != nil {
			sv.memory.repos[repoDay{ref, d.stranger}] = b
		}
	}
	for _, l := range r.Lacks {
		if err := sv.memory.recall(ref, l, now); err != nil {
			return p, false, err
		}
	}
	h := sv.repository(ref)
	h.attempts, h.next = r.Attempts, recalled(now, r.Next, sv.cfg.fixed.MaxBackoff)
	h.vain = patience{failures: max(0, min(r.Vain, mostVain)), until: recalled(now, r.VainUntil, patienceMost)}
	if _, worth = sv.huntedRecord(ref, now); !worth {
		delete(sv.hunted, ref)
	}
	return syncqueue.PastRepo{Repo: ref, Attempts: h.attempts, Next: h.next}, worth, nil
}

// The keys of what is kept of hunting: without it whoever makes us crash makes us an
// attack on others, who are asked anew after each start.
const (
	keyServer = "purgatory/server/"
	keyHunted = "purgatory/hunted/"
)

// serverRecord is a git server as it is kept. The names of the JSON fields of all
// records never change their meaning.
type serverRecord struct {
	Server      string    `json:"server"`
	Last        time.Time `json:"last"`             // when it was asked
	Recent      int       `json:"recent,omitempty"` // requests in the minute before that
	Failures    int       `json:"failures,omitempty"`
	BrokenUntil time.Time `json:"broken_until,omitzero"`
	Day         dayRecord `json:"day,omitzero"`
}

// huntedRecord is what is kept of hunting for a repository.
type huntedRecord struct {
	Repo      string       `json:"repo"`
	Attempts  int          `json:"attempts,omitempty"`
	Next      time.Time    `json:"next,omitzero"`
	Vain      int          `json:"vain,omitempty"` // checks that were followed by a hunt in vain
	VainUntil time.Time    `json:"vain_until,omitzero"`
	Own       dayRecord    `json:"own,omitzero"`       // from servers of its maintainers
	Strangers dayRecord    `json:"strangers,omitzero"` // from those that only pull requests name
	Lacks     []lackRecord `json:"lacks,omitempty"`
}

type dayRecord struct {
	Since time.Time `json:"since"`
	Bytes int64     `json:"bytes"`
}

type lackRecord struct {
	URL   string    `json:"url"`            // hashed
	IDs   string    `json:"ids,omitempty"`  // hashed; none: whatever is asked for
	Times int       `json:"times,omitzero"` // in a row
	Until time.Time `json:"until"`
}

// budget is what is left of a day; nil if it is over.
func (r dayRecord) budget(now time.Time) *dayBudget {
	since := recalled(now, r.Since, 0)
	if r.Bytes <= 0 || now.Sub(since) >= day {
		return nil
	}
	return &dayBudget{since: since, bytes: r.Bytes}
}

func lackToRecord(u urlKey, l lack) lackRecord {
	r := lackRecord{URL: hex.EncodeToString(u[:]), Times: l.times, Until: saved(l.until)}
	if !l.whatever {
		r.IDs = hex.EncodeToString(l.hash[:])
	}
	return r
}

// saved drops the reading of the monotonic clock, which means nothing to another
// process.
func saved(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return t.Round(0).UTC()
}

func serverKey(a graspsync.HostPort) string { return keyServer + hashedText(a.String()) }

func huntedKey(ref graspsync.RepoRef) string { return keyHunted + hashed(ref) }

// trim drops what is not in use where there is more than most.
func trim[K comparable, B book](sv *servers, books map[K]B, of func(K) writebehind.Change, most int) {
	for k, b := range books {
		if len(books) <= most {
			return
		}
		if !b.inUse() {
			delete(books, k)
			sv.soon(of(k))
			sv.report.drop("kept")
		}
	}
}

const (
	// keepDelay is how long changes are gathered. It is short: until the end of a request is on
	// the disk, the request counts there for all that it could have brought.
	keepDelay = time.Second
	keepSweep = time.Hour       // between two looks at what may go
	lastWords = 2 * time.Second // at the end
	maxRecord = 1 << 20         // bytes, which no record has: an event is smaller, lacks are few
	// maxChanges is of how many records changes wait while the disk fails: all that are kept,
	// and more that had no room and are to go.
	maxChanges = 100_000
)

// mostVain is what is believed of a count on the disk: doubling has ended long before.
const mostVain = 1000

func decodeHex(to []byte, s string) error {
	if len(s) != hex.EncodedLen(len(to)) {
		return fmt.Errorf("%w: hash of %d digits", errRecord, len(s))
	}
	if _, err := hex.Decode(to, []byte(s)); err != nil {
		return fmt.Errorf("%w: %w", errRecord, err)
	}
	return nil
}

// recalled is a time that was read from a disk, which is not later than so long from now.
// It goes by the monotonic clock, as all else does: one that is set from here on moves
// nothing.
func recalled(now, at time.Time, most time.Duration) time.Time {
	if at.IsZero() {
		return at
	}
	return now.Add(min(at.Sub(now), most))
}
