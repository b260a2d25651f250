// Package syncqueue decides which clone URL is asked for the missing git data of which repository,
// and when. It is pure: [SyncQueue.Step] takes an input and returns effects. refplan.Group.urls orders
// the clone URLs. [servers.Records.Next] refuses a server by its bytes per day and missing objects.
//
// An attempt asks the clone URLs of the members of a repository, one after another, and a second one
// if the first takes long. A URL whose domain is throttled is queued, so that the attempt can end.
// URLs that only pull requests name are always queued, with one request at a time.
//
// All requests share [Config.MaxFetchJobs] slots. Owners of repositories get slots in turn, each at
// most half of them.
package syncqueue

import (
	"cmp"
	"container/list"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/limit"
)

const (
	// AtOnce is the maximum number of concurrent requests for one repository: two to servers of
	// members, and one to a server that only pull requests name.
	AtOnce = maxOwn + maxPulls

	maxOwn, maxPulls = 2, 1

	secondAfter = 30 * time.Second
	// A request older than slowAfter with fewer than slowRate bytes per second, or older than
	// silentAfter without any byte, is stopped while another owner or pull request waits. The URL
	// then pauses for stopMin, doubling to stopMax.
	slowAfter        = time.Minute
	silentAfter      = 10 * time.Second
	slowRate         = 64 << 10
	stopMin, stopMax = 2 * time.Minute, 32 * time.Minute
	// maxFurther is the maximum number of extra requests of one attempt to a server.
	maxFurther = 3
	// maxPatience is the longest wait between attempts for data that no held event needs.
	maxPatience = 24 * time.Hour
)

// Config is the settings of a [SyncQueue]. All fields except Limits and Seed must be set.
type Config struct {
	UserDelay           time.Duration // before the first attempt for a client's event, whose push usually follows
	SyncDelay           time.Duration // before the first attempt for a synced event
	Backoff, MaxBackoff time.Duration // wait after an incomplete attempt, doubling
	// BrokenMin and BrokenMax bound the doubling pause of a broken server. BrokenMax also bounds
	// the pause of a busy one.
	BrokenMin, BrokenMax time.Duration
	MaxFetchJobs         int // requests in flight
	MaxRepos             int // repositories in the queue
	MaxDomains           int // domains in memory
	DefaultLimit         Limit
	Limits               map[graspsync.HostPort]Limit // exceptions from DefaultLimit
	// Seed seeds the random extension of waits by up to a tenth. If it is 0, waits are exact.
	Seed uint64
}

// Origin is the source of an event.
type Origin uint8

// The sources of events.
const (
	BySync Origin = iota
	ByUser
)

// Outcome is the result of a request.
type Outcome uint8

// The outcomes of a request. From TooMuch on, the reply exceeded a limit.
const (
	Complete Outcome = iota // nothing is missing any more
	Partial                 // objects arrived, and others are missing
	Nothing                 // the server had none of the missing objects
	Failed                  // for example a lost connection
	Broken                  // the server has a lasting failure, such as an unknown name
	Unasked                 // no request was sent, for example because [servers.Records.Next] refused it
	Full                    // our repositories have no room
	TooMuch                 // too many bytes or objects
	NoRoom                  // a pull request may have no ref
	Slow                    // the time limit was exceeded
)

// Input is an input of [SyncQueue.Step].
type Input interface{ input() }

type (
	// Incomplete adds a repository that lacks data. MemberURLs are the clone URLs of its members, those
	// of the owner first, PullURLs the others in the pull requests of each author.
	Incomplete struct {
		Repo       graspsync.RepoRef
		MemberURLs []graspsync.CloneURL
		PullURLs   [][]graspsync.CloneURL
		Origin     Origin
		Fresh      bool // for a new event, which resets the attempt count
		Patient    bool // no held event needs the data, so that the wait doubles to 24 h
	}
	// NothingMissing removes a repository that lacks nothing.
	NothingMissing struct{ Repo graspsync.RepoRef }
	// Fetched ends a Fetch. Pause is the pause that a busy server asks for. More means that the
	// server may have other missing objects.
	Fetched struct {
		ID      RequestID
		Outcome Outcome
		Pause   time.Duration
		More    bool
	}
	// Tick is due at [SyncQueue.NextWake]. Received is the number of bytes of each request.
	Tick struct{ Received map[RequestID]int64 }
)

func (Incomplete) input()     {}
func (NothingMissing) input() {}
func (Fetched) input()        {}
func (Tick) input()           {}

// Effect is an action for the caller.
type Effect interface{ effect() }

type (
	// Fetch requests the missing objects from a URL. The caller answers with Fetched. Attempt and
	// Recent (requests to the domain in 60 s) include this one, for Restore.
	Fetch struct {
		ID      RequestID
		Repo    graspsync.RepoRef
		URL     graspsync.CloneURL
		Attempt int
		Wait    time.Duration
		Recent  int
	}
	// Stop stops a slow Fetch because another owner or author waits. The caller answers with
	// Fetched.
	Stop struct{ ID RequestID }
	// Dropped reports a repository without room in the queue.
	Dropped struct{ Repo graspsync.RepoRef }
)

func (Fetch) effect()   {}
func (Stop) effect()    {}
func (Dropped) effect() {}

// RequestID identifies a Fetch.
type RequestID uint64

// SyncQueue is a queue of repositories that lack git data. It is not safe for concurrent use.
type SyncQueue struct {
	cfg      Config
	repos    map[graspsync.RepoRef]*entry
	owners   map[graspsync.PubKey]*owner
	ring     list.List                            // of *owner, least recently served first
	past     map[graspsync.RepoRef]backoff.Streak // attempts of an earlier process; kept until the first attempt
	throttle domainThrottle
	places   *limit.Slots
	requests map[RequestID]*request
	last     RequestID
	ticking  bool // the step is a Tick, with received bytes
	wake     time.Time
	effects  []Effect
}

type owner struct {
	key     graspsync.PubKey
	entries list.List // of *entry, least recently served first
	place   *list.Element
}

// entry is a repository in the queue. It is idle until due, then active during an attempt. A Fresh
// Incomplete brings due forward. During an attempt it sets renewed, when the attempt tries all URLs
// again or, if it has ended, the next attempt is due.
type entry struct {
	repo    graspsync.RepoRef
	owner   *owner
	place   *list.Element
	own     []graspsync.CloneURL   // from the announcements of its members
	pulls   [][]graspsync.CloneURL // named only by pull requests, by author
	targets map[graspsync.CloneURL]*target
	queued  []graspsync.CloneURL // URLs that wait for their turn, also while idle
	version uint64               // number of Fresh Incomplete inputs
	patient bool
	since   time.Time // last Fresh Incomplete
	number  int       // consecutive incomplete attempts
	due     time.Time // next attempt
	active  bool
	renewed time.Time // zero: no new event
}

type target struct {
	tried   bool      // by the current attempt
	asked   time.Time // last request
	turn    RequestID // last request or, before it, the last one of all at its arrival
	further int       // extra requests of the current attempt
	stopped backoff.Streak
}

type request struct {
	id       RequestID
	entry    *entry
	url      graspsync.CloneURL
	domain   *domain
	place    *limit.Slot
	at       time.Time
	version  uint64
	received int64
	own      bool
	stopped  bool
	reserved bool // its slot is for a waiting owner; only within a step
}

func (r *request) isSlow(now time.Time) bool {
	age := now.Sub(r.at)
	if age >= silentAfter && r.received == 0 {
		return true
	}
	return age >= slowAfter && float64(r.received) < slowRate*age.Seconds()
}

// New returns an empty queue.
func New(cfg Config) *SyncQueue {
	return &SyncQueue{
		cfg: cfg, repos: make(map[graspsync.RepoRef]*entry), owners: make(map[graspsync.PubKey]*owner),
		past:     make(map[graspsync.RepoRef]backoff.Streak),
		throttle: domainThrottle{limit: cfg.DefaultLimit, limits: cfg.Limits, domains: make(map[graspsync.HostPort]*domain)},
		places:   limit.NewSlots(int64(cfg.MaxFetchJobs), int64(cfg.MaxFetchJobs+1)/2),
		requests: make(map[RequestID]*request),
	}
}

// Len returns the number of repositories.
func (q *SyncQueue) Len() int { return len(q.repos) }

// Step processes an input.
func (q *SyncQueue) Step(now time.Time, in Input) []Effect {
	q.ticking = false
	switch in := in.(type) {
	case Incomplete:
		q.update(now, in)
	case NothingMissing:
		delete(q.past, in.Repo)
		if e := q.repos[in.Repo]; e != nil {
			q.remove(e)
		}
	case Fetched:
		q.fetched(now, in)
	case Tick:
		q.ticking = true
		for id, n := range in.Received {
			if r := q.requests[id]; r != nil {
				r.received = n
			}
		}
	}
	q.startAll(now)
	out := q.effects
	q.effects = nil
	return out
}

func (q *SyncQueue) update(now time.Time, in Incomplete) {
	at := now.Add(q.cfg.SyncDelay)
	if in.Origin == ByUser {
		at = now.Add(q.cfg.UserDelay)
	}
	e := q.repos[in.Repo]
	if e == nil {
		if len(q.repos) >= q.cfg.MaxRepos && !q.evict(in) {
			q.effects = append(q.effects, Dropped{in.Repo})
			return
		}
		e = q.add(in.Repo)
		e.due, in.Fresh = at, true
	}
	e.own, e.pulls, e.patient = in.MemberURLs, in.PullURLs, in.Patient
	names := make(map[graspsync.CloneURL]struct{})
	for _, u := range e.all() {
		names[u] = struct{}{}
		if e.targets[u] == nil {
			e.targets[u] = &target{turn: q.last}
		}
		if in.Fresh {
			e.targets[u].stopped = backoff.Streak{}
		}
	}
	named := func(u graspsync.CloneURL) bool { _, ok := names[u]; return ok }
	e.queued = slices.DeleteFunc(e.queued, func(u graspsync.CloneURL) bool { return !named(u) })
	maps.DeleteFunc(e.targets, func(u graspsync.CloneURL, _ *target) bool { return !named(u) })
	if !in.Fresh {
		return
	}
	e.version++
	e.number, e.since = 0, now
	switch p, ok := q.past[in.Repo]; {
	case ok: // also for further events that the earlier process held
		e.number = p.Times
		if !e.patient {
			p.Until = backoff.Earlier(p.Until, now.Add(q.cfg.MaxBackoff))
		}
		e.due = backoff.Later(e.due, p.Until)
		for _, t := range e.targets {
			t.asked = now
		}
	case !e.active:
		e.due = backoff.Earlier(e.due, at)
	case e.renewed.IsZero() || at.Before(e.renewed):
		e.renewed = at
	}
}

// evict removes a patient repository of the owner with most repositories, to make room for an
// impatient one or for an owner with fewer.
func (q *SyncQueue) evict(in Incomplete) bool {
	var most *entry
	for _, e := range q.repos {
		if e.patient && (most == nil || e.owner.entries.Len() > most.owner.entries.Len()) {
			most = e
		}
	}
	own := 0
	if o := q.owners[in.Repo.Owner]; o != nil {
		own = o.entries.Len()
	}
	if most == nil || in.Patient && most.owner.entries.Len() <= own+1 {
		return false
	}
	q.remove(most)
	return true
}

func (q *SyncQueue) add(repo graspsync.RepoRef) *entry {
	o := q.owners[repo.Owner]
	if o == nil {
		o = &owner{key: repo.Owner}
		o.place = q.ring.PushBack(o)
		q.owners[repo.Owner] = o
	}
	e := &entry{repo: repo, owner: o, targets: make(map[graspsync.CloneURL]*target)}
	e.place = o.entries.PushBack(e)
	q.repos[repo] = e
	return e
}

// remove removes a repository. Its requests in flight keep their slots.
func (q *SyncQueue) remove(e *entry) {
	delete(q.repos, e.repo)
	if e.owner.entries.Remove(e.place); e.owner.entries.Len() == 0 {
		q.ring.Remove(e.owner.place)
		delete(q.owners, e.owner.key)
	}
}

// Renew makes the next attempt due now, and ends the pauses of its servers and of urls. A Tick must
// follow.
func (q *SyncQueue) Renew(now time.Time, repo graspsync.RepoRef, urls []graspsync.CloneURL) {
	delete(q.past, repo)
	if e := q.repos[repo]; e != nil {
		e.due, e.number = now, 0
		for _, t := range e.targets {
			t.asked, t.stopped = time.Time{}, backoff.Streak{}
		}
		urls = append(e.all(), urls...)
	}
	for _, u := range urls {
		if d := q.throttle.domains[u.HostPort()]; d != nil {
			d.broken = backoff.Streak{}
		}
	}
	q.wakeAt(now)
}

func (q *SyncQueue) fetched(now time.Time, in Fetched) {
	r := q.requests[in.ID]
	if r == nil {
		return
	}
	delete(q.requests, in.ID)
	r.place.Release()
	r.domain.end(now, r.at, in, q.cfg)
	e := r.entry
	t := e.targets[r.url]
	if q.repos[e.repo] != e || t == nil {
		return
	}
	switch {
	case in.Outcome == Complete && e.version == r.version: // else a newer event may need more
		q.remove(e)
		return
	case in.Outcome == Complete || in.Outcome == Partial:
		t.stopped = backoff.Streak{}
	case r.stopped:
		t.stopped.Fail(now, stopMin, stopMax)
	}
	if in.More && t.further < maxFurther {
		t.further++
		if t.tried = false; !e.active || !r.own {
			e.enqueue(r.url)
		}
	}
}

// startAll starts all requests that may start, and stops slow ones while others wait.
func (q *SyncQueue) startAll(now time.Time) {
	q.wake = time.Time{}
	for _, r := range q.requests {
		r.reserved = false
	}
	for el := q.ring.Front(); el != nil; {
		next := el.Next()
		if q.startNext(now, el.Value.(*owner)) {
			q.ring.MoveToBack(el)
			if next == nil {
				next = el
			}
		}
		el = next
	}
	for _, id := range slices.Sorted(maps.Keys(q.requests)) {
		q.askSecond(now, q.requests[id])
	}
	q.throttle.forget(now, q.cfg.MaxDomains)
}

func (q *SyncQueue) startNext(now time.Time, o *owner) bool {
	for el := o.entries.Front(); el != nil; el = el.Next() {
		e := el.Value.(*entry)
		u, found := q.nextURL(now, e)
		if !found {
			continue
		}
		if !q.start(now, e, u) {
			q.makeRoom(now, e, func(*request) bool { return true })
			return false
		}
		o.entries.MoveToBack(el)
		return true
	}
	return false
}

// nextURL returns a URL that may be asked now, apart from the slots of the owner.
func (q *SyncQueue) nextURL(now time.Time, e *entry) (u graspsync.CloneURL, found bool) {
	switch {
	case !e.active && now.Before(e.due):
		q.wakeAt(e.due)
	case !e.active:
		e.active = true
		delete(q.past, e.repo)
		q.askAll(now, e)
	case !e.renewed.IsZero() && now.Before(e.renewed):
		q.wakeAt(e.renewed)
	case !e.renewed.IsZero():
		q.askAll(now, e)
	}
	if !e.active && len(e.queued) == 0 {
		return u, false
	}
	own, pulls := q.inFlight(e)
	if e.active && own == 0 {
		if u, found = q.nextOwn(now, e, ""); found {
			return u, true
		}
		q.endAttempt(now, e)
	}
	return q.nextQueued(now, e, own, pulls)
}

func (q *SyncQueue) askAll(now time.Time, e *entry) {
	e.renewed = time.Time{}
	for _, t := range e.targets {
		t.tried, t.further = false, 0
	}
	for _, u := range slices.Concat(e.pulls...) {
		if !q.throttle.of(u.HostPort()).broken.Waits(now) && !e.targets[u].stopped.Waits(now) && !q.isAsking(e, u) {
			e.enqueue(u)
		}
	}
}

func (e *entry) all() []graspsync.CloneURL {
	return slices.Concat(slices.Concat(e.pulls...), e.own)
}

func (e *entry) enqueue(u graspsync.CloneURL) {
	if !slices.Contains(e.queued, u) {
		e.queued = append(e.queued, u)
	}
}

// nextOwn returns the member's URL that an attempt asks next, on another host than notHost.
func (q *SyncQueue) nextOwn(now time.Time, e *entry, notHost string) (u graspsync.CloneURL, found bool) {
	for {
		u, found = q.untried(e, notHost)
		if !found {
			return u, false
		}
		d, t := q.throttle.of(u.HostPort()), e.targets[u]
		switch {
		case d.broken.Waits(now), t.stopped.Waits(now), q.isAsking(e, u):
			t.tried = true
		case !d.isOpen(now), !q.sharedUntil(now, e, u).IsZero():
			t.tried = true
			e.enqueue(u)
		default:
			return u, true
		}
	}
}

// untried returns the next member's URL that the attempt has not tried, those never asked and those
// that delivered first.
func (q *SyncQueue) untried(e *entry, notHost string) (next graspsync.CloneURL, found bool) {
	open := slices.DeleteFunc(slices.Clone(e.own), func(u graspsync.CloneURL) bool {
		return e.targets[u].tried || slices.Contains(e.queued, u) || u.HostPort().Host == notHost
	})
	if len(open) == 0 {
		return next, false
	}
	rank := func(u graspsync.CloneURL) int {
		if d := q.throttle.domains[u.HostPort()]; d != nil && d.delivered {
			return 2 * e.targets[u].further
		}
		return 2*e.targets[u].further + 1
	}
	return slices.MinFunc(open, func(a, b graspsync.CloneURL) int { return rank(a) - rank(b) }), true
}

// sortQueued sorts by the last turn of the author, those of members first. A URL of several authors
// has the turns of each.
func (e *entry) sortQueued() {
	if len(e.queued) < 2 {
		return
	}
	turns := make(map[graspsync.CloneURL]RequestID)
	for _, us := range e.pulls {
		last := RequestID(0)
		for _, u := range us {
			last = max(last, e.targets[u].turn)
		}
		for _, u := range us {
			if turn, known := turns[u]; !known || last < turn {
				turns[u] = last
			}
		}
	}
	slices.SortStableFunc(e.queued, func(a, b graspsync.CloneURL) int { return cmp.Compare(turns[a], turns[b]) })
}

// nextQueued returns the next queued URL that may be asked now.
func (q *SyncQueue) nextQueued(now time.Time, e *entry, own, pulls int) (u graspsync.CloneURL, found bool) {
	e.queued = slices.DeleteFunc(e.queued, func(u graspsync.CloneURL) bool {
		return q.throttle.of(u.HostPort()).broken.Waits(now) || e.targets[u].stopped.Waits(now)
	})
	e.sortQueued()
	for _, u := range e.queued {
		if slices.Contains(e.own, u) && own >= maxOwn || q.isAsking(e, u) {
			continue
		}
		d, shared := q.throttle.of(u.HostPort()), q.sharedUntil(now, e, u)
		switch opens := d.nextAllowed(now); {
		case !shared.IsZero():
			q.wakeAt(shared)
		case opens.After(now):
			q.wakeAt(opens)
		case pulls >= maxPulls && !slices.Contains(e.own, u):
			q.makeRoom(now, e, func(r *request) bool { return r.entry.repo == e.repo && !r.own })
		case d.full():
			q.makeRoom(now, e, func(r *request) bool { return r.domain == d })
		default:
			return u, true
		}
	}
	return u, false
}

func (q *SyncQueue) endAttempt(now time.Time, e *entry) {
	e.number++
	next := now.Add(q.backoff(e, e.number))
	if !e.renewed.IsZero() {
		e.number, next = 0, backoff.Earlier(next, e.renewed)
	}
	e.active, e.due, e.renewed = false, next, time.Time{}
	q.wakeAt(next)
}

// backoff depends only on the arguments and the seed.
func (q *SyncQueue) backoff(e *entry, n int) time.Duration {
	jitter := 0.0
	if q.cfg.Seed != 0 {
		h := fnv.New64a()
		_, _ = fmt.Fprint(h, e.repo, q.cfg.Seed, n) // never fails
		jitter = float64(h.Sum64()%1024) / 1024
	}
	most := q.cfg.MaxBackoff
	if e.patient {
		most = maxPatience
	}
	return backoff.Rules{Base: q.cfg.Backoff, Max: most}.Wait(n, jitter)
}

// start starts a request to an open domain, if a slot is free for the owner.
func (q *SyncQueue) start(now time.Time, e *entry, u graspsync.CloneURL) bool {
	if used, _ := q.places.Stats(); int(used) >= q.cfg.MaxFetchJobs {
		return false
	}
	place := q.places.TryAcquire(limit.Stranger{ID: e.owner.key.String()}, 1)
	if place == nil {
		return false
	}
	d, t := q.throttle.of(u.HostPort()), e.targets[u]
	q.last++
	d.start(now)
	q.requests[q.last] = &request{
		id: q.last, entry: e, url: u, domain: d, place: place, at: now, version: e.version, own: slices.Contains(e.own, u),
	}
	t.tried, t.asked, t.turn = true, now, q.last
	e.queued = slices.DeleteFunc(e.queued, func(o graspsync.CloneURL) bool { return o == u })
	q.effects = append(q.effects, Fetch{
		ID: q.last, Repo: e.repo, URL: u, Attempt: e.number + 1, Wait: q.backoff(e, e.number+1), Recent: len(d.starts),
	})
	return true
}

func (q *SyncQueue) askSecond(now time.Time, r *request) {
	e := r.entry
	own, pulls := q.inFlight(e)
	if !r.own || own >= maxOwn || !e.active || q.repos[e.repo] != e {
		return
	}
	if at := r.at.Add(secondAfter); now.Before(at) {
		q.wakeAt(at)
		return
	}
	u, found := q.nextOwn(now, e, r.url.HostPort().Host)
	if !found {
		u, found = q.nextQueued(now, e, own, pulls)
	}
	if found {
		q.start(now, e, u)
	}
}

// makeRoom stops a slow request of another owner or pull request. frees reports whether the end of a
// request makes room for it.
func (q *SyncQueue) makeRoom(now time.Time, e *entry, frees func(*request) bool) {
	running := 0
	for _, r := range q.requests {
		if r.entry.owner.key == e.owner.key {
			running++
		}
	}
	full := running >= (q.cfg.MaxFetchJobs+1)/2
	var slow *request
	for _, r := range q.requests {
		same := r.entry.owner.key == e.owner.key
		switch {
		case full && !same || same && r.own || !frees(r) || r.reserved:
		case r.stopped:
			r.reserved = true
			return
		case !r.isSlow(now):
			period := slowAfter
			if r.received == 0 {
				period = silentAfter
			}
			q.wakeAt(r.at.Add((now.Sub(r.at)/period + 1) * period))
		case slow == nil || r.id < slow.id:
			slow = r
		}
	}
	switch {
	case slow == nil:
	case !q.ticking:
		q.wakeAt(now)
	default:
		slow.stopped, slow.reserved = true, true
		q.effects = append(q.effects, Stop{slow.id})
	}
}

func (q *SyncQueue) inFlight(e *entry) (own, pulls int) {
	for _, r := range q.requests {
		switch {
		case r.entry.repo != e.repo:
		case r.own:
			own++
		default:
			pulls++
		}
	}
	return own, pulls
}

func (q *SyncQueue) isAsking(e *entry, u graspsync.CloneURL) bool {
	for _, r := range q.requests {
		if r.url == u && r.entry.repo == e.repo {
			return true
		}
	}
	return false
}

// sharedUntil returns a later time for URL u if it is being asked for another repository with the
// same identifier, which shares the objects. It is at most slowAfter later.
func (q *SyncQueue) sharedUntil(now time.Time, e *entry, u graspsync.CloneURL) (until time.Time) {
	for _, r := range q.requests {
		at := r.at.Add(slowAfter)
		if r.url == u && r.entry.repo != e.repo && r.entry.repo.Identifier == e.repo.Identifier && now.Before(at) {
			until = backoff.Later(until, at)
		}
	}
	return until
}

func (q *SyncQueue) wakeAt(t time.Time) {
	if q.wake.IsZero() || t.Before(q.wake) {
		q.wake = t
	}
}

// NextWake returns the time of the next Tick, or false if only other inputs can have effects.
func (q *SyncQueue) NextWake() (at time.Time, ok bool) { return q.wake, !q.wake.IsZero() }

const (
	window   = time.Minute // the period of [Limit.PerMinute]
	minPause = time.Minute // minimum pause of a busy server
)

// Limit bounds the requests to one domain (host and port).
type Limit struct {
	Concurrent int // requests in flight
	PerMinute  int // requests in any 60 s
}

type domainThrottle struct {
	limit   Limit
	limits  map[graspsync.HostPort]Limit // exceptions from limit
	domains map[graspsync.HostPort]*domain
}

type domain struct {
	limit     Limit
	inFlight  int            // requests
	starts    []time.Time    // of requests in the last window, oldest first
	delivered bool           // a request brought objects
	broken    backoff.Streak // pause of a broken or busy server
	usedAt    time.Time
}

func (t *domainThrottle) of(a graspsync.HostPort) *domain {
	d := t.domains[a]
	if d == nil {
		l, ok := t.limits[a]
		if !ok {
			l = t.limit
		}
		d = &domain{limit: l}
		t.domains[a] = d
	}
	return d
}

func (d *domain) full() bool { return d.inFlight >= d.limit.Concurrent }

func (d *domain) expire(now time.Time) {
	n := 0
	for n < len(d.starts) && now.Sub(d.starts[n]) >= window {
		n++
	}
	d.starts = slices.Delete(d.starts, 0, n)
}

// nextAllowed returns the earliest time of the next request within the rate.
func (d *domain) nextAllowed(now time.Time) time.Time {
	if d.expire(now); len(d.starts) < d.limit.PerMinute {
		return now
	}
	return d.starts[0].Add(window)
}

func (d *domain) isOpen(now time.Time) bool { return !d.full() && !d.nextAllowed(now).After(now) }

func (d *domain) start(now time.Time) {
	d.starts = append(d.starts, now)
	d.usedAt = now
	d.inFlight++
}

func (d *domain) end(now, began time.Time, in Fetched, cfg Config) {
	d.usedAt = now
	d.inFlight--
	switch in.Outcome {
	case Unasked:
		if i := slices.IndexFunc(d.starts, began.Equal); i >= 0 {
			d.starts = slices.Delete(d.starts, i, i+1)
		}
		return
	case Broken:
		if !d.broken.Waits(now) { // else a concurrent request has counted
			d.broken.Fail(now, cfg.BrokenMin, cfg.BrokenMax)
		}
	default:
		d.broken.Times = 0
		d.delivered = d.delivered || in.Outcome <= Partial
	}
	if in.Pause > 0 {
		d.broken.Until = backoff.Later(d.broken.Until, now.Add(min(max(in.Pause, minPause), cfg.BrokenMax)))
	}
}

// forget removes the least recently used domains without recent requests if there are more than
// most.
func (t *domainThrottle) forget(now time.Time, most int) {
	if len(t.domains) <= most {
		return
	}
	var idle []graspsync.HostPort
	for a, d := range t.domains {
		if d.expire(now); d.inFlight == 0 && len(d.starts) == 0 {
			idle = append(idle, a)
		}
	}
	slices.SortFunc(idle, func(a, b graspsync.HostPort) int {
		return cmp.Or(t.domains[a].usedAt.Compare(t.domains[b].usedAt), cmp.Compare(a.Host, b.Host), cmp.Compare(a.Port, b.Port))
	})
	for _, a := range idle[:min(len(idle), len(t.domains)-most)] {
		delete(t.domains, a)
	}
}
