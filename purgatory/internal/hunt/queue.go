package hunt

import (
	"maps"
	"slices"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
)

// Config holds the constants of a [Queue]. All but Limits must be set.
type Config struct {
	UserDelay    time.Duration // before the first attempt for what a user submitted: a push usually follows
	SyncDelay    time.Duration // the same for what came by sync
	Backoff      time.Duration // after a first attempt that did not complete, doubling
	MaxBackoff   time.Duration // where doubling ends
	BrokenMin    time.Duration // before a server is asked again that is broken for good, doubling
	BrokenMax    time.Duration // where that ends
	MaxAttempts  int           // attempts under way at once; as many requests beside them, half of them second ones
	MaxRepos     int           // repositories in the queue
	MaxDomains   int           // domains that are remembered though nothing waits for them
	DefaultLimit Limit
	Limits       map[graspsync.HostPort]Limit // instead of DefaultLimit
	// Seed is of the lengths at random by which waits are made longer, up to a tenth: who
	// began together does not come together for ever. 0: none.
	Seed uint64
}

// Limit is what one domain (host and port) is burdened with. A request is one
// attempt at one URL.
type Limit struct {
	Concurrent int // requests at once, to all domains of its site together that have no Limit of their own
	PerMinute  int // requests in any 60 s
}

// Origin says how an event came that waits for git data.
type Origin uint8

// The origins.
const (
	BySync Origin = iota
	ByUser
)

// Outcome is what a request came to.
type Outcome uint8

// The outcomes of a request.
const (
	// Complete: nothing of the repository is missing any more.
	Complete Outcome = iota
	// Partial: the server was of use, but something is still missing.
	Partial
	// Nothing: it had none of what is missing, or failed in a way that may pass.
	Nothing
	// Broken: it failed in a way that does not pass soon, such as an unknown name.
	Broken
	// Unasked: it was known not to be of use, and no request was made.
	Unasked
)

// Input is something that happened.
type Input interface{ input() }

// The inputs.
type (
	// Wanted says that an event of the repository waits for git data that may be
	// had from these URLs, and from those that strangers name, of which there is any number. The
	// attempts begin anew.
	Wanted struct {
		Repo      graspsync.RepoRef
		URLs      []graspsync.CloneURL
		Origin    Origin
		Strangers []graspsync.CloneURL
	}
	// Renew has it not count any more what earlier attempts at a repository came to: it is asked
	// for now, and those of its servers as well that are broken. These URLs are known besides
	// those that it waits for.
	Renew struct {
		Repo graspsync.RepoRef
		URLs []graspsync.CloneURL
	}
	// Whole says that nothing of the repository is missing any more.
	Whole struct{ Repo graspsync.RepoRef }
	// Fetched ends a Fetch. Pause, if not 0, is how long the server asks to be left alone.
	// More says that it may have something that is missing and that it was not asked for,
	// Received how many bytes came.
	Fetched struct {
		ID       RequestID
		Outcome  Outcome
		Pause    time.Duration
		More     bool
		Received int64
	}
	// Tick says that the time of [Queue.NextWake] has come.
	Tick struct{}
)

func (Wanted) input()  {}
func (Renew) input()   {}
func (Whole) input()   {}
func (Fetched) input() {}
func (Tick) input()    {}

// Effect is something to be done.
type Effect interface{ effect() }

// The effects.
type (
	// Fetch asks a URL for what is missing; the answer is Fetched, always. The rest is
	// for Restore, should the process end before that: the attempts that did not
	// complete, this one included, the wait after it, and the requests to the domain
	// in the last 60 s, this one included.
	Fetch struct {
		ID      RequestID
		Repo    graspsync.RepoRef
		URL     graspsync.CloneURL
		Attempt int
		Wait    time.Duration
		Recent  int
	}
	// Stop ends a Fetch before it comes to anything, for others that wait. The answer is Fetched all the same.
	Stop struct{ ID RequestID }
	// Attempted reports the end of an attempt. Next is when the next one is due;
	// zero if the repository needs none.
	Attempted struct {
		Repo   graspsync.RepoRef
		Number int // in a row, from 1
		Next   time.Time
	}
	// Dropped reports a repository for which there was no room.
	Dropped struct{ Repo graspsync.RepoRef }
)

func (Fetch) effect()     {}
func (Stop) effect()      {}
func (Attempted) effect() {}
func (Dropped) effect()   {}

// RequestID names a Fetch; it is never used twice.
type RequestID uint64

// Queue is the state of the machine. Make one with [New]. It is not safe for
// concurrent use.
type Queue struct {
	cfg      Config
	repos    map[graspsync.RepoRef]*entry
	active   map[graspsync.RepoRef]*entry         // those whose attempt is running
	past     map[graspsync.RepoRef]backoff.Streak // attempts that did not complete; not in repos
	servers  servers
	requests requests // under way
	attempts int      // under way, with the requests of those that were forgotten meanwhile
	steps    uint64   // counts how often it changed who is slow, or may have
	effects  []Effect
}

// AtOnce is how many servers are asked for one repository at once, at most; of those that strangers name one less.
const AtOnce = 2

// mostFurther is how often one attempt asks a server for more, besides the first time: what
// states need and what pull requests need is asked for apart, of which there are any number.
const mostFurther = 3

// New returns an empty queue.
func New(cfg Config) *Queue {
	return &Queue{
		cfg: cfg, repos: make(map[graspsync.RepoRef]*entry), active: make(map[graspsync.RepoRef]*entry), past: make(map[graspsync.RepoRef]backoff.Streak),
		servers: newServers(cfg), requests: newRequests(), steps: 1,
	}
}

// Len is how many repositories wait for git data.
func (q *Queue) Len() int { return len(q.repos) }

// Step takes in what happened at now and returns what is to be done about it. received is how many bytes each request under way has
// brought by now: any step may find that one of them gives way.
func (q *Queue) Step(now time.Time, in Input, received map[RequestID]int64) []Effect {
	for id, n := range received {
		if r := q.requests.all[id]; r != nil {
			r.brings(now, n)
		}
	}
	switch in := in.(type) {
	case Wanted:
		q.wanted(now, in)
	case Renew:
		q.renew(now, in)
	case Whole:
		q.forget(in.Repo)
	case Fetched:
		q.fetched(now, in)
	}
	q.steps++
	q.work(now)
	out := q.effects
	q.effects = nil
	return out
}

func (q *Queue) wanted(now time.Time, in Wanted) {
	delay := q.cfg.SyncDelay
	if in.Origin == ByUser {
		delay = q.cfg.UserDelay
	}
	e := q.repos[in.Repo]
	number, urls := 0, slices.Concat(in.URLs, in.Strangers)
	if e != nil {
		e.urls, e.own, e.sites = urls, len(in.URLs), nil
		for u := range e.queued {
			if !slices.Contains(urls, u) { // nobody names it any more
				q.servers.domain(u).leave(u, e)
				delete(e.queued, u)
			}
		}
	}
	switch {
	case e == nil && len(q.repos) >= q.cfg.MaxRepos:
		q.effects = append(q.effects, Dropped{in.Repo})
		return
	case e == nil:
		e = &entry{
			repo: in.Repo, due: now.Add(delay), urls: urls, own: len(in.URLs),
			queued: make(map[graspsync.CloneURL]time.Time), asked: make(map[graspsync.CloneURL]time.Time),
			stops: make(map[graspsync.CloneURL]int),
		}
		q.repos[in.Repo] = e
		if p, ok := q.past[in.Repo]; ok { // it is not new: we are
			delete(q.past, in.Repo)
			number = p.Times
			for _, u := range urls {
				e.asked[u] = now // had it waited for its turn only, nothing would be known of it
			}
			e.due = backoff.Later(e.due, p.Until)
		}
	case e.tried != nil:
		if !e.again || delay < e.delay {
			e.delay = delay
		}
		e.again = true
		q.askAgain(e)
	case now.Add(delay).Before(e.due):
		e.due = now.Add(delay)
	}
	maps.DeleteFunc(e.asked, func(u graspsync.CloneURL, _ time.Time) bool { return !slices.Contains(e.urls, u) })
	maps.DeleteFunc(e.stops, func(u graspsync.CloneURL, _ int) bool { return !slices.Contains(e.urls, u) })
	e.version++
	e.number = number
}

func (q *Queue) renew(now time.Time, in Renew) {
	delete(q.past, in.Repo)
	urls := in.URLs
	if e := q.repos[in.Repo]; e != nil {
		e.due, e.number = now, 0
		clear(e.asked)
		urls = slices.Concat(urls, e.urls)
	}
	for _, u := range urls {
		if d := q.servers.domains[u.HostPort()]; d != nil {
			d.broken = backoff.Streak{}
		}
	}
}

// Due returns when the attempt that a repository waits for is due; one that is under way was due
// when it began. It is zero for a repository that does not wait.
func (q *Queue) Due(repo graspsync.RepoRef) time.Time {
	if e := q.repos[repo]; e != nil {
		return e.due
	}
	return time.Time{}
}

// Owes reports whether a repository waits for its turn with a server that may have what is
// missing of it, and was not asked for that since a time.
func (q *Queue) Owes(now time.Time, repo graspsync.RepoRef, since time.Time) bool {
	e := q.repos[repo]
	return e != nil && slices.ContainsFunc(e.urls, func(u graspsync.CloneURL) bool {
		_, waits := e.queued[u]
		waits = waits || !e.running && !now.Before(e.due)
		return waits && e.asked[u].Before(since) && !q.servers.domain(u).broken.Waits(now)
	})
}

// forget forgets a repository. Requests that are under way for it still count for
// their domains.
func (q *Queue) forget(repo graspsync.RepoRef) {
	e := q.repos[repo]
	if e == nil {
		delete(q.past, repo)
		return
	}
	if e.tried != nil {
		q.endAttempt(e, time.Time{})
	}
	for u := range e.queued {
		q.servers.domain(u).leave(u, e)
	}
	delete(q.repos, repo)
}

func (q *Queue) fetched(now time.Time, in Fetched) {
	r := q.requests.end(in.ID)
	if r == nil {
		return
	}
	r.brings(now, in.Received)
	if d := r.domain; in.Outcome == Unasked {
		d.takeBack(r)
	} else {
		d.finished(now, r, in.Outcome, q.cfg)
		if in.Outcome == Complete || in.Outcome == Partial {
			d.served.add(r.entry.repo.Owner)
		}
		if in.Pause > 0 {
			d.broken.Until = backoff.Later(d.broken.Until, now.Add(min(max(in.Pause, pauseLeast), q.cfg.BrokenMax)))
		}
		q.servers.timed(now, r)
	}
	e := r.entry
	if r.aside && e.tried != nil {
		delete(e.tried, r.url)
	}
	if r.loose {
		q.attempts--
	}
	switch in.ID {
	case e.asking:
		e.asking = 0
	case e.second:
		e.second = 0
	}
	// What came to be wanted meanwhile may not be complete.
	if in.Outcome == Complete && e.version == r.version && q.repos[e.repo] == e {
		q.forget(e.repo)
	}
	if in.More && q.repos[e.repo] == e {
		q.goOn(now, r.url, e)
	}
}

// goOn has a server asked again that was not asked for all that it may have: by the attempt,
// or if that has ended by its domain, when it is the repository's turn.
func (q *Queue) goOn(now time.Time, u graspsync.CloneURL, e *entry) {
	_, queued := e.queued[u]
	if queued || e.further[u] >= mostFurther || !slices.Contains(e.urls, u) {
		return
	}
	e.further[u]++
	if e.tried != nil {
		delete(e.tried, u)
		return
	}
	e.queued[u] = now
	q.servers.domain(u).enter(u, e)
}

// fetch starts a request.
func (q *Queue) fetch(now time.Time, e *entry, u graspsync.CloneURL, at place) RequestID {
	d := q.servers.domain(u)
	r := &request{
		entry: e, url: u, domain: d, place: at, version: e.version, at: now, stops: e.stops[u], known: d.delivered > 0, strange: !e.isOwn(u),
	}
	r.slow = e.slow || d.slow || d.delivered == 0 && q.servers.isSlowSite(d.site, q.requests.longSites(now))
	id := q.requests.begin(r)
	e.asked[u] = now
	d.start(now)
	q.effects = append(q.effects, Fetch{
		ID: id, Repo: e.repo, URL: u, Attempt: e.number + 1, Wait: q.backoff(e.repo, e.number+1), Recent: len(d.starts),
	})
	return id
}

// work starts what may start now.
func (q *Queue) work(now time.Time) {
	slow, long := q.leaveSlow(now), q.requests.longSites(now)
	waiting, behind := q.ready(now, long)
	if slow < q.share() {
		waiting = append(waiting, behind...)
	}
	slow -= q.yield(now, q.attempts+len(waiting)-q.cfg.MaxAttempts)
	for _, e := range q.sorted() {
		if e.asking == 0 {
			q.advance(now, e)
		}
	}
	running := q.inTurn(waiting)
	for q.attempts < q.cfg.MaxAttempts && len(waiting) > 0 {
		e := waiting[0].e
		waiting = waiting[1:]
		if running[e.repo.Owner] >= q.most() {
			break // all that wait are of owners who have as many
		}
		isSlow := q.isSlow(e, long)
		if isSlow && slow >= q.share() {
			continue
		}
		q.attempt(now, e)
		if !e.running { // its servers have others before it, and its place is the next one's
			continue
		}
		if isSlow {
			slow++
		}
		running = q.inTurn(waiting)
	}
	for _, e := range q.sorted() {
		q.hedge(now, e)
	}
	q.workDomains(now)
	for _, p := range q.pools(now) {
		for _, id := range q.requests.giveWay(now, p) {
			q.effects = append(q.effects, Stop{id})
		}
	}
	q.unblock(now)
	if q.servers.forget(now, q.cfg.MaxDomains) {
		q.steps++
	}
}

// NextWake returns when Tick is due; false if only other inputs can bring news.
func (q *Queue) NextWake(now time.Time) (next time.Time, ok bool) {
	consider := func(t time.Time) {
		if !ok || t.Before(next) {
			next, ok = t, true
		}
	}
	full, running, long := q.slowOnes(now) >= q.share(), q.running(), q.requests.longSites(now)
	for _, e := range q.repos {
		switch {
		case e.running || running[e.repo.Owner] >= q.most():
		case q.attempts < q.cfg.MaxAttempts && (!full || !q.isSlow(e, long)), now.Before(e.due):
			consider(e.due)
		}
	}
	for _, e := range q.active {
		if at, may := q.hedgesAt(now, e); may {
			consider(at)
		}
	}
	for _, e := range q.active {
		for u := range e.tried {
			if at, again := q.triesAgain(e, u); again && at.After(now) {
				consider(at)
			}
		}
	}
	for _, e := range q.active { // what took a turn out of a domain, after it was this one's turn
		if _, may := q.second(now, e); may && q.hasRoom(e) && q.requests.second < q.share() {
			consider(now)
		} else if _, ends := q.requests.hopeless(now, e); may && ends && !q.hasRoom(e) {
			consider(now)
		}
	}
	if q.anyWaits(now) { // for a place of one that takes long by then
		if at, may := q.requests.longAt(now, func(*request) bool { return true }); may {
			consider(at)
		}
	}
	for _, d := range q.servers.domains {
		if t, waits := d.reopens(now); waits {
			consider(t)
		}
		if len(d.turns) > 0 && d.broken.Waits(now) {
			consider(d.broken.Until)
		}
		for _, t := range d.turns {
			for _, u := range t.urls {
				if q.requests.sharedUntil(now, t.entry, u).IsZero() {
					continue
				}
				if at := t.entry.queued[u].Add(slowAfter); at.After(now) {
					consider(at)
				}
			}
		}
	}
	return next, ok
}

// workDomains starts what waits where there is room: as many requests at once as may be
// beside the attempts, or slow servers that many wait for would take all there is. It is
// the turn of the domain that was asked longest ago; slow ones count as asked later.
func (q *Queue) workDomains(now time.Time) {
	for q.requests.left < q.share() {
		d := q.servers.next(now, &q.requests)
		if d == nil {
			return
		}
		e, u := d.next(q.requests.mayAsk(now), q.requests.stoppedOf(d.half()))
		delete(e.queued, u)
		if !d.broken.Waits(now) {
			q.fetch(now, e, u, leftToDomain)
		}
	}
}

// InFlight yields how many requests each domain has under way, for metrics.
func (q *Queue) InFlight() map[graspsync.HostPort]int { return q.servers.inFlight() }

// PastRepo is what an earlier process left of a repository that it hunted for.
type PastRepo struct {
	Repo     graspsync.RepoRef
	Attempts int       // that did not complete, in a row
	Next     time.Time // when the next one was due
}

// PastDomain is what an earlier process left of a domain.
type PastDomain struct {
	Domain      graspsync.HostPort
	Last        time.Time // when it was asked last
	Recent      int       // requests in the minute before that
	Failures    int       // in a row that were Broken
	BrokenUntil time.Time
}

// Restore takes over what an earlier process left, before the first Step: a restart
// must not have anybody asked sooner. All of a domain's recent requests count as made
// when the last one was. What lies further in the future than it can, since the clock
// was set back, is corrected.
func (q *Queue) Restore(now time.Time, repos []PastRepo, domains []PastDomain) {
	for _, r := range repos {
		q.past[r.Repo] = backoff.Streak{Times: r.Attempts, Until: r.Next}.Restored(now, q.cfg.MaxBackoff)
	}
	for _, p := range domains {
		q.servers.restore(now, p, q.cfg.BrokenMax)
	}
}

// Broken returns how often in a row a domain was found to be broken for good, and
// until when it is left alone.
func (q *Queue) Broken(a graspsync.HostPort) (failures int, until time.Time) {
	if d := q.servers.domains[a]; d != nil {
		return d.broken.Times, d.broken.Until
	}
	return 0, time.Time{}
}
