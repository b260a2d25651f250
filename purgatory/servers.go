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
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/internal/writebehind"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
	"github.com/graspsync/graspsync/purgatory/internal/syncqueue"
	"github.com/graspsync/graspsync/state"
)

const (
	day = 24 * time.Hour
	// brokenMin and brokenMost bound the pause of a broken server. The first pause is short,
	// because a single DNS failure must not outlast the events that wait for the server.
	brokenMin, brokenMost = time.Minute, day
	patienceMost          = day
	// lackMost is the longest pause of a server that lacks objects, because it may get them.
	lackMost = 10 * time.Minute
	// maxLacks is the maximum number of lacks of one repository in memory, savedLacks in its
	// record.
	maxLacks, savedLacks = 1000, 64
	// hostHardly is the divisor of the daily bytes of a host that every owner may use.
	hostHardly = 1024
	// maxOwners is the maximum number of owners whose bytes from one host are counted per day.
	maxOwners = 10_000
	// keepDelay is the time from a change to its write. It is short, because until the end of a
	// request is on the disk, the record charges the maximum size of the request.
	keepDelay = time.Second
	keepSweep = time.Hour       // period of the search for empty records
	lastWords = 2 * time.Second // maximum time of the last write
	maxRecord = 1 << 20         // bytes
	// maxChanges is the maximum number of unwritten records while the disk fails.
	maxChanges = 100_000
)

// servers holds the records of git servers and of repositories that need them: received bytes,
// missing objects, and waits. Records are written in the background, but a request is durable
// before it is sent.
type servers struct {
	// set by newServers, read-only
	cfg    *Config
	report *report
	keep   state.Store
	buffer *writebehind.Buffer // Put may be called with mu held, Save and Flush must not

	mu sync.Mutex
	// guarded by mu
	hosts  *limit.Table[graspsync.HostPort, *server]
	hunted *limit.Table[graspsync.RepoRef, *repoFetches]
}

// usage counts the bytes of a day and the requests in flight.
type usage struct {
	limit.Day
	requests int
}

// today returns the bytes of the current day. A day starts with its first bytes.
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
	owners map[graspsync.PubKey]int64 // bytes of the day by owner; not on the disk
}

type repoFetches struct {
	attempts backoff.Streak // incomplete attempts
	vain     backoff.Streak // attempts for data that no held event needs
	own      usage          // bytes from servers of maintainers
	strange  usage          // bytes of requests whose server or objects only pull requests name
	lacks    map[lackKey]lack
}

func (h *repoFetches) usage(q fetchRequest) *usage {
	if q.stranger {
		return &h.strange
	}
	return &h.own
}

func newServers(cfg *Config, report *report, keep state.Store) *servers {
	return &servers{
		cfg: cfg, report: report, keep: keep,
		buffer: writebehind.New(keep, writebehind.Config{
			Delay: keepDelay, Timeout: cfg.fixed.Timeout, MaxValue: maxRecord, MaxQueue: maxChanges,
			Logger: cfg.Logger, Dropped: func(_ string, n int) { report.dropSome("server_memory", n) },
		}),
		hosts:  limit.NewTable[graspsync.HostPort, *server](cfg.fixed.MaxKept, 0),
		hunted: limit.NewTable[graspsync.RepoRef, *repoFetches](cfg.fixed.MaxKept, 0),
	}
}

// question returns the next request to a URL for the missing objects of a repository.
func (sv *servers) question(ref graspsync.RepoRef, from graspsync.CloneURL, n refplan.Need) fetchRequest {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	h, _ := sv.hunted.Get(ref)
	return h.choose(sv, time.Now(), ref, from, n)
}

// refuses returns the reason why a request may not be sent now, or "".
func (sv *servers) refuses(q fetchRequest) string {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	return sv.refusesAt(time.Now(), q)
}

func (sv *servers) refusesAt(now time.Time, q fetchRequest) string {
	h, known := sv.hunted.Get(q.repo)
	if known {
		own, strangers, most := h.own.today(now), h.strange.today(now), sv.cfg.Limits.MaxRepoDay
		if own+strangers >= most || q.stranger && strangers >= most/2 {
			return "repo_day"
		}
	}
	switch {
	case sv.hostSpent(now, q):
		return "host_day"
	case len(q.ids) == 0 || h.lacking(now, q) && h.full(q) == 0:
		return "server_lacks"
	}
	return ""
}

// hostSpent reports whether an owner has used its share of a host today. The second half of a day
// is reserved for owners below the mean or below 1/hostHardly, because otherwise a few keys could
// use up the day.
func (sv *servers) hostSpent(now time.Time, q fetchRequest) bool {
	s, known := sv.hosts.Get(q.from.HostPort())
	if !known {
		return false
	}
	all, most := s.today(now), sv.cfg.Limits.MaxHostDay
	return all >= most || all >= most/2 && s.owners[q.repo.Owner] > max(all/int64(max(1, len(s.owners))), most/hostHardly)
}

func (sv *servers) charge(q fetchRequest, seen FetchEnded, complete bool) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	now := time.Now()
	h, s := sv.repository(q.repo), sv.server(q.from.HostPort())
	if seen.Bytes > 0 {
		for _, u := range []*usage{h.usage(q), &s.usage} {
			u.Units = u.today(now) + seen.Bytes
		}
		if s.Units == seen.Bytes || s.owners == nil {
			s.owners = make(map[graspsync.PubKey]int64)
		}
		if _, known := s.owners[q.repo.Owner]; known || len(s.owners) < maxOwners {
			s.owners[q.repo.Owner] += seen.Bytes
		}
	}
	h.learn(now, sv.cfg.Times.Backoff/2, q, seen)
	if complete {
		sv.rest(q.repo)
	}
}

// full returns the number of bytes for which there must be room before a server is asked again.
func (sv *servers) full(q fetchRequest) int64 {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	h, _ := sv.hunted.Get(q.repo)
	return h.full(q)
}

// forget records that a repository lacks nothing.
func (sv *servers) forget(ref graspsync.RepoRef) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	sv.rest(ref)
}

// rest is forget with mu held. It keeps records that last until the next day.
func (sv *servers) rest(ref graspsync.RepoRef) {
	if h, known := sv.hunted.Get(ref); known {
		for u, l := range h.lacks {
			if !l.whatever {
				delete(h.lacks, u)
			}
		}
		h.attempts, h.vain = backoff.Streak{}, backoff.Streak{}
		sv.soonHunted(ref)
	}
}

// started records a request of the queue in memory. begin writes it.
func (sv *servers) started(x syncqueue.Fetch) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	now := time.Now()
	s, h := sv.server(x.URL.HostPort()), sv.repository(x.Repo)
	s.last, s.recent = now, x.Recent
	h.attempts = backoff.Streak{Times: x.Attempt, Until: now.Add(x.Wait)}
}

// broke records the pause of a broken server.
func (sv *servers) broke(a graspsync.HostPort, broken backoff.Streak) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	if s, known := sv.hosts.Get(a); known && s.broken != broken {
		s.broken = broken
		sv.soonServer(a)
	}
}

// vain returns the pause before the next fetch of data that no held event needs.
func (sv *servers) vain(ref graspsync.RepoRef) backoff.Streak {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	if h, known := sv.hunted.Get(ref); known {
		return h.vain
	}
	return backoff.Streak{}
}

// inVain records an attempt for data that no held event needs.
func (sv *servers) inVain(ref graspsync.RepoRef) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	sv.repository(ref).vain.Again(time.Now(), sv.cfg.fixed.Check*9/10, patienceMost)
	sv.soonHunted(ref)
}

func (sv *servers) renewed(ref graspsync.RepoRef) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	if h, known := sv.hunted.Get(ref); known {
		h.vain = backoff.Streak{}
	}
}

// begin writes a request to the disk before it is sent. end must be called after the request.
func (sv *servers) begin(ctx context.Context, q fetchRequest, wait time.Duration) (end func(), err error) {
	a := q.from.HostPort()
	count := func(n int) {
		sv.mu.Lock()
		defer sv.mu.Unlock()
		s, h := sv.server(a), sv.repository(q.repo)
		s.requests = max(0, s.requests+n)
		u := h.usage(q)
		u.requests = max(0, u.requests+n)
		if n < 0 {
			if h.attempts.Times > 0 {
				h.attempts.Until = time.Now().Add(wait)
			}
			sv.soonServer(a)
			sv.soonHunted(q.repo)
		}
	}
	count(1)
	ctx, cancel := context.WithTimeout(ctx, sv.cfg.fixed.Timeout)
	defer cancel()
	err = sv.buffer.Save(ctx, writebehind.Change{Key: serverKey(a), Value: sv.serverValue(a)},
		writebehind.Change{Key: huntedKey(q.repo), Value: sv.huntedValue(q.repo)})
	if err != nil {
		count(-1)
		return nil, fmt.Errorf("keeping that a server is asked: %w", err)
	}
	return func() { count(-1) }, nil
}

// server returns the record of a server, and evicts another record if the table is full. An evicted
// server may be asked again sooner. mu is held.
func (sv *servers) server(a graspsync.HostPort) *server {
	return obtain(sv, sv.hosts, a, &server{}, func(s *server) bool { return s.requests > 0 }, sv.soonServer)
}

func (sv *servers) repository(ref graspsync.RepoRef) *repoFetches {
	return obtain(sv, sv.hunted, ref, &repoFetches{lacks: make(map[lackKey]lack)},
		func(h *repoFetches) bool { return h.own.requests+h.strange.requests > 0 }, sv.soonHunted)
}

func obtain[K comparable, V any](sv *servers, of *limit.Table[K, V], k K, fresh V, inUse func(V) bool, soon func(K)) V {
	v, known := of.Get(k)
	if !known {
		v = fresh
		gone, _ := of.PutKeeping(k, limit.Stranger{}, 0, v, func(k K) bool { v, _ := of.Get(k); return inUse(v) })
		for _, e := range gone {
			soon(e.Key)
			sv.report.drop("server_memory")
		}
	}
	of.Touch(k)
	return v
}

// soonServer queues a record for writing, which includes later changes until the write.
func (sv *servers) soonServer(a graspsync.HostPort) { sv.buffer.Put(serverKey(a), sv.serverValue(a)) }

func (sv *servers) soonHunted(ref graspsync.RepoRef) {
	sv.buffer.Put(huntedKey(ref), sv.huntedValue(ref))
}

func (sv *servers) serverValue(a graspsync.HostPort) writebehind.Value {
	return func() ([]byte, bool) {
		sv.mu.Lock()
		defer sv.mu.Unlock()
		return written(sv.hosts, a, sv.serverRecord)
	}
}

func (sv *servers) huntedValue(ref graspsync.RepoRef) writebehind.Value {
	return func() ([]byte, bool) {
		sv.mu.Lock()
		defer sv.mu.Unlock()
		return written(sv.hunted, ref, sv.huntedRecord)
	}
}

// written returns the JSON of a record. It returns false for an empty record, which is deleted.
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

func (sv *servers) sweep(ctx context.Context) {
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
		for ref, h := range sv.hunted.All() {
			if _, worth := sv.huntedRecord(ref, h, now); !worth {
				sv.soonHunted(ref)
			}
		}
		sv.mu.Unlock()
	}
}

// start starts the writer. end is called after all requests, and returns when the records are
// durable.
func (sv *servers) start(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	var wg sync.WaitGroup
	wg.Go(func() { sv.buffer.Run(ctx) })
	return func() {
		last, stop := context.WithTimeout(ctx, lastWords)
		defer stop()
		if err := sv.buffer.Flush(last); err != nil {
			sv.cfg.Logger.Warn("saving records of git servers failed", keyError, graspsync.Printable(err.Error()))
		}
		cancel()
		wg.Wait()
	}
}

// recall reads the records of earlier processes. Unreadable records are counted and deleted.
func (sv *servers) recall(ctx context.Context, now time.Time) (repos []syncqueue.PastRepo, domains []syncqueue.PastDomain, err error) {
	sv.mu.Lock()
	defer sv.mu.Unlock()
	err = errors.Join(
		recallEach(ctx, sv, keyServer, sv.hosts, func(r *serverRecord) (a graspsync.HostPort, s *server, err error) {
			if a, s, err = r.read(now); err == nil {
				domains = append(domains, syncqueue.PastDomain{Domain: a, Last: s.last, Recent: s.recent, Failures: s.broken.Times, BrokenUntil: s.broken.Until})
			}
			return a, s, err
		}, sv.serverRecord),
		recallEach(ctx, sv, keyHunted, sv.hunted, func(r *repoFetchesRecord) (ref graspsync.RepoRef, h *repoFetches, err error) {
			if ref, h, err = r.read(now, sv.cfg.fixed.MaxBackoff); err == nil && h.attempts.Times > 0 {
				repos = append(repos, syncqueue.PastRepo{Repo: ref, Attempts: h.attempts.Times, Next: h.attempts.Until})
			}
			return ref, h, err
		}, sv.huntedRecord))
	if err != nil {
		return nil, nil, fmt.Errorf("reading records of git fetches: %w", err)
	}
	return repos, domains, nil
}

// recallEach reads the records with a prefix, and deletes unreadable and empty ones.
func recallEach[K comparable, V, R any](ctx context.Context, sv *servers, prefix string, into *limit.Table[K, V],
	read func(*R) (K, V, error), record func(K, V, time.Time) (R, bool),
) error {
	return sv.buffer.Load(ctx, prefix, func(key string, value []byte) (there bool, err error) {
		var r R
		err = json.Unmarshal(value, &r)
		if err == nil {
			var k K
			var v V
			if k, v, err = read(&r); err == nil {
				_, worth := record(k, v, time.Now())
				if worth && into.Len() < sv.cfg.fixed.MaxKept {
					into.Put(k, limit.Stranger{}, 0, v)
					return true, nil
				}
				if worth {
					sv.report.drop("server_memory")
				}
				return false, sv.keep.Delete(ctx, key)
			}
		}
		sv.report.unreadable.Add(1)
		sv.cfg.Logger.Error("reading records of git fetches failed", "key", graspsync.Printable(key), keyError, graspsync.Printable(err.Error()))
		return false, sv.keep.Delete(ctx, key)
	})
}

// The keys of the records. Without records, a stranger who makes us crash would cause repeated
// requests after each start.
const (
	keyServer = "purgatory/server/"
	keyHunted = "purgatory/hunted/"
)

func serverKey(a graspsync.HostPort) string { return keyServer + hashedText(a.String()) }

func huntedKey(ref graspsync.RepoRef) string { return keyHunted + hashed(ref) }

// serverRecord is the stored form of a server. A JSON field name never changes its meaning.
type serverRecord struct {
	Server      string    `json:"server"`
	Last        time.Time `json:"last"`             // last request
	Recent      int       `json:"recent,omitempty"` // requests in the minute before Last
	Failures    int       `json:"failures,omitempty"`
	BrokenUntil time.Time `json:"broken_until,omitzero"`
	Day         dayRecord `json:"day,omitzero"`
}

type repoFetchesRecord struct {
	Repo      string       `json:"repo"`
	Attempts  int          `json:"attempts,omitempty"`
	Next      time.Time    `json:"next,omitzero"`
	Vain      int          `json:"vain,omitempty"` // consecutive checks with a futile fetch
	VainUntil time.Time    `json:"vain_until,omitzero"`
	Own       dayRecord    `json:"own,omitzero"`       // from servers of maintainers
	Strangers dayRecord    `json:"strangers,omitzero"` // from servers that only pull requests name
	Lacks     []lackRecord `json:"lacks,omitempty"`
}

type dayRecord struct {
	Since time.Time `json:"since"`
	Bytes int64     `json:"bytes"`
}

type lackRecord struct {
	URL   string    `json:"url"`            // hashed
	IDs   string    `json:"ids,omitempty"`  // hashed; empty: any objects
	Times int       `json:"times,omitzero"` // consecutive failures
	Until time.Time `json:"until"`
}

// serverRecord returns the record of a server. worth is false if the record is empty.
func (sv *servers) serverRecord(a graspsync.HostPort, s *server, now time.Time) (r serverRecord, worth bool) {
	r = serverRecord{
		Server: a.String(), Last: saved(s.last), Recent: s.recent, Failures: s.broken.Times, BrokenUntil: saved(s.broken.Until),
		Day: sv.day(&s.usage, now),
	}
	return r, r.Day.Bytes > 0 || now.Before(s.broken.Until.Add(brokenMost)) || now.Sub(s.last) < time.Minute
}

func (sv *servers) huntedRecord(ref graspsync.RepoRef, h *repoFetches, now time.Time) (r repoFetchesRecord, worth bool) {
	r = repoFetchesRecord{
		Repo: ref.String(), Attempts: h.attempts.Times, Next: saved(h.attempts.Until), Vain: h.vain.Times, VainUntil: saved(h.vain.Until),
		Own: sv.day(&h.own, now), Strangers: sv.day(&h.strange, now),
	}
	for u, l := range h.lacks {
		if l.Waits(now) || !l.whatever {
			lr := lackRecord{URL: hex.EncodeToString(u[:]), Times: l.Times, Until: saved(l.Until)}
			if !l.whatever {
				lr.IDs = hex.EncodeToString(l.hash[:])
			}
			r.Lacks = append(r.Lacks, lr)
		}
	}
	slices.SortFunc(r.Lacks, func(a, b lackRecord) int { return b.Until.Compare(a.Until) })
	r.Lacks = r.Lacks[:min(len(r.Lacks), savedLacks)]
	waits := h.attempts.Times > 0 && now.Before(h.attempts.Until.Add(sv.cfg.fixed.MaxBackoff))
	lacks := len(r.Lacks) > 0 && now.Before(r.Lacks[0].Until)
	vain := h.vain.Times > 0 && now.Before(h.vain.Until.Add(patienceMost)) // kept after its end, because the wait goes on doubling
	return r, waits || lacks || vain || r.Own.Bytes+r.Strangers.Bytes > 0
}

// day returns the bytes of a day. A request in flight counts as MaxFetch bytes, because they may
// have arrived when the process ends.
func (sv *servers) day(u *usage, now time.Time) (r dayRecord) {
	if bytes := u.today(now) + int64(u.requests)*sv.cfg.fixed.MaxFetch; bytes > 0 {
		r = dayRecord{Since: saved(u.Since), Bytes: bytes}
	}
	return r
}

func (r *serverRecord) read(now time.Time) (a graspsync.HostPort, s *server, err error) {
	u, err := graspsync.ParseCloneURL("https://" + r.Server)
	if err != nil || u.HostPort().String() != r.Server {
		return a, nil, fmt.Errorf("%w: server %s", errRecord, graspsync.Printable(r.Server))
	}
	return u.HostPort(), &server{
		usage: r.Day.usage(now), last: backoff.Within(r.Last, now, 0), recent: r.Recent,
		broken: backoff.Streak{Times: r.Failures, Until: r.BrokenUntil}.Restored(now, brokenMost),
	}, nil
}

func (r *repoFetchesRecord) read(now time.Time, most time.Duration) (ref graspsync.RepoRef, h *repoFetches, err error) {
	ref, err = graspsync.ParseRepoRef(r.Repo)
	h = &repoFetches{
		attempts: backoff.Streak{Times: r.Attempts, Until: r.Next}.Restored(now, most),
		vain:     backoff.Streak{Times: r.Vain, Until: r.VainUntil}.Restored(now, patienceMost),
		own:      r.Own.usage(now), strange: r.Strangers.usage(now), lacks: make(map[lackKey]lack),
	}
	for _, x := range r.Lacks[:min(len(r.Lacks), savedLacks)] {
		var u lackKey
		l := lack{whatever: x.IDs == ""}
		longest := lackMost
		if l.whatever {
			longest = day
		} else {
			err = errors.Join(err, decodeHex(l.hash[:], x.IDs))
		}
		err = errors.Join(err, decodeHex(u[:], x.URL))
		l.Streak = backoff.Streak{Times: x.Times, Until: x.Until}.Restored(now, longest)
		h.lacks[u] = l
	}
	return ref, h, err
}

func (r dayRecord) usage(now time.Time) usage {
	return usage{Day: limit.Day{Since: backoff.Within(r.Since, now, 0), Units: max(0, r.Bytes)}}
}

// saved removes the monotonic clock reading, which is meaningless in another process.
func saved(t time.Time) time.Time {
	if t.IsZero() {
		return t
	}
	return backoff.Saved(t)
}

func decodeHex(to []byte, s string) error {
	if len(s) != hex.EncodedLen(len(to)) {
		return fmt.Errorf("%w: hash of %d digits", errRecord, len(s))
	}
	if _, err := hex.Decode(to, []byte(s)); err != nil {
		return fmt.Errorf("%w: %w", errRecord, err)
	}
	return nil
}
