package purgatory

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory/internal/hunt"
)

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

const (
	// maxLacks bounds what is kept that servers lack for one repository.
	maxLacks = 64
	// brokenMin and brokenMost are how long a server is left alone that is of no use.
	brokenMin, brokenMost = time.Hour, 24 * time.Hour
)

// server is what is kept of a git server, besides the bytes that it sent. It is
// guarded by fetches.mu, as hunted is.
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

// serverRecord is called with mu held. A request under way counts for as much as it
// can bring: should we not see its end, that may have come.
func (f *fetches) serverRecord(a graspsync.HostPort, now time.Time) (r serverRecord, worth bool) {
	s := f.servers[a]
	r = serverRecord{
		Server: a.String(), Last: saved(s.last), Recent: s.recent, Failures: s.failures, BrokenUntil: saved(s.brokenUntil),
		Day: f.day(f.memory.hosts[a], s.underWay, now),
	}
	return r, r.Day.Bytes > 0 || now.Before(s.brokenUntil.Add(brokenMost)) || now.Sub(s.last) < time.Minute
}

// huntedRecord is called with mu held.
func (f *fetches) huntedRecord(ref graspsync.RepoRef, now time.Time) (r huntedRecord, worth bool) {
	h := f.hunted[ref]
	r = huntedRecord{
		Repo: ref.String(), Attempts: h.attempts, Next: saved(h.next), Vain: h.vain.failures, VainUntil: saved(h.vain.until),
		Own:       f.day(f.memory.repos[repoDay{ref, false}], h.underWay, now),
		Strangers: f.day(f.memory.repos[repoDay{ref, true}], h.underWayStrangers, now),
	}
	for u, l := range f.memory.lacks[ref] {
		if now.Before(l.until) || !l.whatever {
			r.Lacks = append(r.Lacks, lackToRecord(u, l))
		}
	}
	slices.SortFunc(r.Lacks, func(a, b lackRecord) int { return b.Until.Compare(a.Until) })
	r.Lacks = r.Lacks[:min(len(r.Lacks), maxLacks)]
	waits := h.attempts > 0 && now.Before(h.next.Add(f.p.cfg.Times.MaxBackoff))
	lacks := len(r.Lacks) > 0 && now.Before(r.Lacks[0].Until)
	vain := h.vain.failures > 0 && now.Before(h.vain.until.Add(patienceMost)) // it goes on growing
	return r, waits || lacks || vain || r.Own.Bytes+r.Strangers.Bytes > 0
}

func lackToRecord(u urlKey, l lack) lackRecord {
	r := lackRecord{URL: hex.EncodeToString(u[:]), Times: l.times, Until: saved(l.until)}
	if !l.whatever {
		r.IDs = hex.EncodeToString(l.hash[:])
	}
	return r
}

func (f *fetches) day(b *dayBudget, underWay int, now time.Time) (r dayRecord) {
	if b != nil && now.Sub(b.since) < day {
		r = dayRecord{Since: saved(b.since), Bytes: b.bytes}
	}
	if underWay > 0 {
		if r.Bytes == 0 {
			r.Since = saved(now)
		}
		r.Bytes += int64(underWay) * f.p.cfg.Limits.MaxFetch
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

// started notes a request, in the order of the queue. It is written down by begin, if
// it is made.
func (f *fetches) started(x hunt.Fetch) {
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	s, h := f.server(x.URL.HostPort), f.repository(x.Repo)
	s.last, s.recent = now, x.Recent
	h.attempts, h.next = x.Attempt, now.Add(x.Wait)
}

// found notes for how long a server is of no use.
func (f *fetches) found(a graspsync.HostPort, failures int, until time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	s := f.servers[a]
	if s == nil || (s.failures == failures && s.brokenUntil.Equal(until)) {
		return
	}
	s.failures, s.brokenUntil = failures, until
	s.version.now++
	f.ring()
}

// inVain notes for how long a repository that nothing waits for is not hunted for.
func (f *fetches) inVain(ref graspsync.RepoRef, p patience) {
	f.mu.Lock()
	defer f.mu.Unlock()
	h := f.repository(ref)
	h.vain = p
	h.version.now++
	f.ring()
}

// rest notes that a repository lacks nothing. It is called with mu held.
func (f *fetches) rest(ref graspsync.RepoRef) {
	f.memory.forget(ref)
	if h := f.hunted[ref]; h != nil {
		h.attempts, h.next, h.vain = 0, time.Time{}, patience{}
		h.version.now++
		f.ring()
	}
}

// begin has a request on the disk before it is made. end must be called after it; it
// is on the disk soon.
func (f *fetches) begin(ctx context.Context, q question, wait time.Duration) (end func(), err error) {
	add := func(n int) {
		f.mu.Lock()
		defer f.mu.Unlock()
		s, h := f.server(q.from.HostPort), f.repository(q.repo)
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
		f.ring()
	}
	add(1)
	end = func() { add(-1) }
	ctx, cancel := context.WithTimeout(ctx, f.p.cfg.fixed.Timeout)
	defer cancel()
	written := make(chan error, 1) // at the same time, so that the disk has to be waited for once
	go func() { written <- f.keepServer(ctx, q.from.HostPort) }()
	err = f.keepHunted(ctx, q.repo)
	if err := errors.Join(err, <-written); err != nil {
		end()
		return nil, err
	}
	return end, nil
}

// book is one of the things of which something is kept.
type book interface {
	versions() *version
	inUse() bool // what is kept of it can't be dropped
}

func (s *server) versions() *version { return &s.version }
func (h *hunted) versions() *version { return &h.version }
func (s *server) inUse() bool        { return s.underWay > 0 || s.version.dirty() }
func (h *hunted) inUse() bool {
	return h.underWay+h.underWayStrangers > 0 || h.version.dirty()
}

func serverKey(a graspsync.HostPort) string  { return keyServer + hashedText(a.String()) }
func huntedKey(ref graspsync.RepoRef) string { return keyHunted + hashed(ref) }

func (f *fetches) keepServer(ctx context.Context, a graspsync.HostPort) error {
	return keep(ctx, f, serverKey(a), f.servers, a, func(now time.Time) (any, bool) { return f.serverRecord(a, now) })
}

func (f *fetches) keepHunted(ctx context.Context, ref graspsync.RepoRef) error {
	return keep(ctx, f, huntedKey(ref), f.hunted, ref, func(now time.Time) (any, bool) { return f.huntedRecord(ref, now) })
}

// keep puts a record on the disk as it is now, unless somebody else has done so since
// it was changed: requests to one server share a write.
func keep[K comparable, B book](ctx context.Context, f *fetches, key string, books map[K]B, k K, record func(time.Time) (any, bool)) error {
	done, err := f.writing.lock(ctx, key)
	if err != nil {
		return err
	}
	defer done()
	now := time.Now()
	f.mu.Lock()
	b, ok := books[k]
	if !ok || !b.versions().dirty() {
		f.mu.Unlock()
		return nil
	}
	r, worth := record(now)
	was := b.versions().now
	f.mu.Unlock()
	data, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("encoding what is kept of hunting: %w", err)
	}
	if worth {
		err = f.p.keep.put(ctx, key, data)
	} else {
		err = f.p.keep.drop(ctx, key)
	}
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	b.versions().kept = was
	if !worth && !b.versions().dirty() {
		delete(books, k)
	}
	return nil
}

// server returns what is kept of a server, making room for it. It is called with mu
// held, as repository is.
func (f *fetches) server(a graspsync.HostPort) *server {
	if s := f.servers[a]; s != nil {
		return s
	}
	trim(f, f.servers, serverKey, f.p.cfg.fixed.MaxKept-1)
	s := &server{}
	f.servers[a] = s
	return s
}

func (f *fetches) repository(ref graspsync.RepoRef) *hunted {
	if h := f.hunted[ref]; h != nil {
		return h
	}
	trim(f, f.hunted, huntedKey, f.p.cfg.fixed.MaxKept-1)
	h := &hunted{}
	f.hunted[ref] = h
	return h
}
