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
	"github.com/graspsync/graspsync/purgatory/internal/hunt"
	"github.com/graspsync/graspsync/purgatory/internal/keyed"
	"github.com/graspsync/graspsync/purgatory/internal/resolve"
)

// servers are what is known of git servers, and of hunting for repositories: what they sent,
// what they lack, and when they may be asked again.
type servers struct {
	// set by newServers, read-only
	cfg    *Config
	report *report
	keep   keeper

	mu sync.Mutex
	// guarded by mu
	memory  memory
	servers map[graspsync.HostPort]*server // of which something is on the disk, or will be
	hunted  map[graspsync.RepoRef]*hunted
	gone    []string // keys of what had no room

	writing *keyed.Locks[string] // who writes a record has the lock of its key
	changed chan struct{}        // one slot: something is not on the disk
}

func newServers(cfg *Config, report *report, keep keeper) *servers {
	return &servers{
		cfg: cfg, report: report, keep: keep, memory: newMemory(*cfg),
		servers: make(map[graspsync.HostPort]*server), hunted: make(map[graspsync.RepoRef]*hunted), changed: make(chan struct{}, 1),
		writing: keyed.NewLocks[string](),
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
	version     version
}

// hunted is what is kept of a repository, besides what memory has.
type hunted struct {
	attempts          int
	next              time.Time
	vain              patience
	underWay          int // requests to servers of its maintainers
	underWayStrangers int
	version           version
}

// version counts the changes of something, and says how many of them are on the disk.
type version struct{ now, kept uint64 }

func (v version) dirty() bool { return v.now != v.kept }

func (s *server) versions() *version { return &s.version }

func (s *server) inUse() bool { return s.underWay > 0 || s.version.dirty() }

func (h *hunted) versions() *version { return &h.version }

func (h *hunted) inUse() bool {
	return h.underWay+h.underWayStrangers > 0 || h.version.dirty()
}

// book is one of the things of which something is kept.
type book interface {
	versions() *version
	inUse() bool // what is kept of it can't be dropped
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
	// brokenMin and brokenMost are how long a server is left alone that is of no use.
	brokenMin, brokenMost = time.Hour, 24 * time.Hour
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

// flush puts everything on the disk that is not there as it is now.
func (sv *servers) flush(ctx context.Context) error {
	sv.mu.Lock()
	servers, repos, gone := dirty(sv.servers), dirty(sv.hunted), sv.gone
	sv.gone = nil
	sv.mu.Unlock()
	var errs []error
	for _, key := range gone { // should that fail, the next start does it
		errs = append(errs, sv.keep.drop(ctx, key))
	}
	for _, a := range servers {
		errs = append(errs, sv.keepServer(ctx, a))
	}
	for _, ref := range repos {
		errs = append(errs, sv.keepHunted(ctx, ref))
	}
	sv.mu.Lock()
	defer sv.mu.Unlock()
	trim(sv, sv.servers, serverKey, sv.cfg.fixed.MaxKept) // many may have been in use at once
	trim(sv, sv.hunted, huntedKey, sv.cfg.fixed.MaxKept)
	return errors.Join(errs...)
}

// sweep has flush drop what says nothing any more.
func (sv *servers) sweep() {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	now := time.Now()
	for a, s := range sv.servers {
		if _, worth := sv.serverRecord(a, now); !worth {
			s.version.now++
		}
	}
	for ref, h := range sv.hunted {
		if _, worth := sv.huntedRecord(ref, now); !worth {
			h.version.now++
		}
	}
}

// ring has runKeeping know that something is not on the disk.
func (sv *servers) ring() {
	select {
	case sv.changed <- struct{}{}:
	default:
	}
}

// runKeeping has what was learned on the disk soon, many changes at once.
func (sv *servers) runKeeping(ctx context.Context) {
	sweep := time.NewTicker(keepSweep)
	defer sweep.Stop()
	for {
		wait := keepDelay
		select {
		case <-sv.changed:
		case <-sweep.C:
			sv.sweep()
		case <-ctx.Done():
			return
		}
		for {
			timer := time.NewTimer(wait)
			select {
			case <-timer.C:
			case <-ctx.Done():
				timer.Stop()
				return
			}
			err := sv.flush(ctx)
			if err == nil || ctx.Err() != nil {
				break
			}
			sv.cfg.Logger.Warn("what was learned of servers could not be kept", keyError, graspsync.Printable(err.Error()))
			wait = keepRetry
		}
	}
}

// keepLast is flush when nothing happens any more.
func (sv *servers) keepLast(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
	defer cancel()
	if err := sv.flush(ctx); err != nil {
		sv.cfg.Logger.Warn("what was learned of servers could not be kept", keyError, graspsync.Printable(err.Error()))
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
func (sv *servers) started(x hunt.Fetch) {
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
	s.version.now++
	sv.ring()
}

// inVain notes for how long a repository that nothing waits for is not hunted for.
func (sv *servers) inVain(ref graspsync.RepoRef, p patience) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	h := sv.repository(ref)
	h.vain = p
	h.version.now++
	sv.ring()
}

// rest notes that a repository lacks nothing. It is called with mu held.
func (sv *servers) rest(ref graspsync.RepoRef) {
	sv.memory.forget(ref)
	if h := sv.hunted[ref]; h != nil {
		h.attempts, h.next, h.vain = 0, time.Time{}, patience{}
		h.version.now++
		sv.ring()
	}
}

// begin has a request on the disk before it is made. end must be called after it; it
// is on the disk soon.
func (sv *servers) begin(ctx context.Context, q question, wait time.Duration) (end func(), err error) {
	add := func(n int) {
		sv.mu.Lock()
		defer sv.mu.Unlock()
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
		s.version.now++
		h.version.now++
		sv.ring()
	}
	add(1)
	end = func() { add(-1) }
	ctx, cancel := context.WithTimeout(ctx, sv.cfg.fixed.Timeout)
	defer cancel()
	written := make(chan error, 1) // at the same time, so that the disk has to be waited for once
	go func() { written <- sv.keepServer(ctx, q.from.HostPort()) }()
	err = sv.keepHunted(ctx, q.repo)
	if err := errors.Join(err, <-written); err != nil {
		end()
		return nil, err
	}
	return end, nil
}

func (sv *servers) keepServer(ctx context.Context, a graspsync.HostPort) error {
	return keep(ctx, sv, serverKey(a), sv.servers, a, func(now time.Time) (any, bool) { return sv.serverRecord(a, now) })
}

func (sv *servers) keepHunted(ctx context.Context, ref graspsync.RepoRef) error {
	return keep(ctx, sv, huntedKey(ref), sv.hunted, ref, func(now time.Time) (any, bool) { return sv.huntedRecord(ref, now) })
}

// server returns what is kept of a server, making room for it. It is called with mu
// held, as repository is.
func (sv *servers) server(a graspsync.HostPort) *server {
	if s := sv.servers[a]; s != nil {
		return s
	}
	trim(sv, sv.servers, serverKey, sv.cfg.fixed.MaxKept-1)
	s := &server{}
	sv.servers[a] = s
	return s
}

func (sv *servers) repository(ref graspsync.RepoRef) *hunted {
	if h := sv.hunted[ref]; h != nil {
		return h
	}
	trim(sv, sv.hunted, huntedKey, sv.cfg.fixed.MaxKept-1)
	h := &hunted{}
	sv.hunted[ref] = h
	return h
}

// recall reads what earlier processes kept of hunting. What can't be read is counted and
// dropped: the next request writes it anew.
func (sv *servers) recall(ctx context.Context, now time.Time) (repos []hunt.PastRepo, domains []hunt.PastDomain, vain map[graspsync.RepoRef]patience, err error) {
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
	return sv.keep.each(ctx, prefix, func(key string, value []byte) error {
		worth, err := read(value)
		if err != nil {
			sv.report.unreadable.Add(1)
			sv.cfg.Logger.Error("what was kept of hunting can't be read", "key", graspsync.Printable(key), keyError, graspsync.Printable(err.Error()))
		}
		if err != nil || !worth {
			return sv.keep.drop(ctx, prefix+key)
		}
		return nil
	})
}

func (sv *servers) recallServer(value []byte, now time.Time) (d hunt.PastDomain, worth bool, err error) {
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
	return hunt.PastDomain{Domain: a, Last: s.last, Recent: s.recent, Failures: s.failures, BrokenUntil: s.brokenUntil}, worth, nil
}

func (sv *servers) recallHunted(value []byte, now time.Time) (p hunt.PastRepo, worth bool, err error) {
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
	return hunt.PastRepo{Repo: ref, Attempts: h.attempts, Next: h.next}, worth, nil
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

// keep puts a record on the disk as it is now, unless somebody else has done so since
// it was changed: requests to one server share a write.
func keep[K comparable, B book](ctx context.Context, sv *servers, key string, books map[K]B, k K, record func(time.Time) (any, bool)) error {
	done, err := sv.writing.Lock(ctx, key)
	if err != nil {
		return err
	}
	defer done()
	now := time.Now()
	sv.mu.Lock()
	b, ok := books[k]
	if !ok || !b.versions().dirty() {
		sv.mu.Unlock()
		return nil
	}
	r, worth := record(now)
	was := b.versions().now
	sv.mu.Unlock()
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encoding what is kept of hunting: %w", err)
	}
	if worth {
		err = sv.keep.put(ctx, key, data)
	} else {
		err = sv.keep.drop(ctx, key)
	}
	if err != nil {
		return err
	}
	sv.mu.Lock()
	defer sv.mu.Unlock()
	b.versions().kept = was
	if !worth && !b.versions().dirty() {
		delete(books, k)
	}
	return nil
}

// trim drops what is not in use where there is more than most.
func trim[K comparable, B book](sv *servers, books map[K]B, key func(K) string, most int) {
	if len(books) <= most {
		return
	}
	for k, b := range books {
		if b.inUse() {
			continue
		}
		delete(books, k)
		sv.gone = append(sv.gone, key(k))
		sv.report.drop("kept")
		sv.ring()
		if len(books) <= most {
			return
		}
	}
}

func dirty[K comparable, B book](books map[K]B) (out []K) {
	for k, b := range books {
		if b.versions().dirty() {
			out = append(out, k)
		}
	}
	return out
}

const (
	keepDelay = time.Second     // in which changes are gathered
	keepRetry = time.Minute     // after a failure
	keepSweep = time.Hour       // between two looks at what may go
	lastWords = 2 * time.Second // at the end
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
