package hunt

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
)

// requests are those under way, and the places that they take.
type requests struct {
	all     map[RequestID]*request
	last    RequestID
	ofRepo  map[graspsync.RepoRef]int  // how many there are for each repository
	strange map[graspsync.RepoRef]int  // of these, those to servers that strangers name
	busy    map[exchange]struct{}      // what they ask
	asked   map[graspsync.CloneURL]int // and where
	left    int                        // of all, those that were left to their domains
	second  int                        // of all, those besides that of an attempt
}

// exchange is what a request asks: others list the same URL, and are answered for their own repositories.
type exchange struct {
	repo graspsync.RepoRef
	url  graspsync.CloneURL
}

func newRequests() requests {
	return requests{
		all: make(map[RequestID]*request), ofRepo: make(map[graspsync.RepoRef]int), strange: make(map[graspsync.RepoRef]int),
		busy: make(map[exchange]struct{}), asked: make(map[graspsync.CloneURL]int),
	}
}

// begin has a request be under way.
func (x *requests) begin(r *request) RequestID {
	x.last++
	x.all[x.last] = r
	x.ofRepo[r.entry.repo]++
	if r.strange {
		x.strange[r.entry.repo]++
	}
	x.busy[exchange{r.entry.repo, r.url}] = struct{}{}
	x.asked[r.url]++
	switch r.place {
	case leftToDomain:
		x.left++
	case besidesAttempt:
		x.second++
	case ofAttempt:
	}
	return x.last
}

// end returns a request that is under way no more; nil if it was not.
func (x *requests) end(id RequestID) *request {
	r := x.all[id]
	if r == nil {
		return nil
	}
	delete(x.all, id)
	less(x.ofRepo, r.entry.repo)
	if r.strange {
		less(x.strange, r.entry.repo)
	}
	delete(x.busy, exchange{r.entry.repo, r.url})
	less(x.asked, r.url)
	switch r.place {
	case leftToDomain:
		x.left--
	case besidesAttempt:
		x.second--
	case ofAttempt:
	}
	return r
}

func less[K comparable](counts map[K]int, k K) {
	if counts[k]--; counts[k] == 0 {
		delete(counts, k)
	}
}

// asks reports whether a URL is being asked for a repository.
func (x *requests) asks(e *entry, u graspsync.CloneURL) bool {
	_, busy := x.busy[exchange{e.repo, u}]
	return busy
}

// hasPlace reports whether one more server may be asked for a repository. Those that strangers name never have all places: they may take
// as long as they like.
func (x *requests) hasPlace(e *entry, u graspsync.CloneURL) bool {
	return x.ofRepo[e.repo] < AtOnce && (e.isOwn(u) || x.strange[e.repo] < AtOnce-1)
}

// mayAsk says at a time whether a repository may be asked for at a URL, as far as that is not a matter of its domain: at as many
// servers at once as gather apart, and not while the same is asked for another one of that identifier, which shares what comes. For
// that nobody waits longer than for anything that takes long: anybody can list somebody's URL.
func (x *requests) mayAsk(now time.Time) mayAsk {
	return func(e *entry, u graspsync.CloneURL) bool {
		if !x.hasPlace(e, u) {
			return false
		}
		since, queued := e.queued[u]
		return x.sharedUntil(now, e, u).IsZero() || queued && now.Sub(since) >= slowAfter
	}
}

// sharedUntil returns until when a URL is being asked for another repository of the same identifier, as long as that does not take
// long; zero: it is not.
func (x *requests) sharedUntil(now time.Time, e *entry, u graspsync.CloneURL) (at time.Time) {
	if x.asked[u] == 0 { // all that wait are looked at
		return at
	}
	for _, r := range x.all {
		if r.url == u && r.entry.repo != e.repo && r.entry.repo.Identifier == e.repo.Identifier {
			if by, may := r.longAt(now); may && !r.isLong(now) {
				at = backoff.Later(at, by)
			}
		}
	}
	return at
}

// secondsOf counts the second requests for one owner: strangers have any number of slow
// servers, and all have one bound.
func (x *requests) secondsOf(owner graspsync.PubKey) (n int) {
	for _, r := range x.all {
		if r.place == besidesAttempt && r.entry.repo.Owner == owner {
			n++
		}
	}
	return n
}

// stoppedOf counts the requests that have places of a half, and were stopped before.
func (x *requests) stoppedOf(h half) (n int) {
	for _, r := range x.all {
		if r.half() == h && r.stops > 0 {
			n++
		}
	}
	return n
}

// slow counts the attempts that were slow when they began to ask, or whose request is by now.
func (x *requests) slow(now time.Time) (n int) {
	for _, r := range x.all {
		if r.place == ofAttempt && !r.stopped && (r.slow || r.isLong(now)) {
			n++
		}
	}
	return n
}

// longSites are those of which a request takes long by now.
func (x *requests) longSites(now time.Time) map[string]struct{} {
	var long map[string]struct{}
	for _, r := range x.all {
		if r.isLong(now) {
			if long == nil {
				long = make(map[string]struct{})
			}
			long[r.domain.site] = struct{}{}
		}
	}
	return long
}

// isLong reports whether a domain has a request under way that is slow by now.
func (x *requests) isLong(now time.Time, d *domain) bool {
	for _, r := range x.all {
		if r.domain == d && r.isLong(now) {
			return true
		}
	}
	return false
}

// longAt returns when one of some requests takes long that does not by now for everybody; false if none may.
func (x *requests) longAt(now time.Time, which func(*request) bool) (at time.Time, ok bool) {
	for _, r := range x.all {
		if by, may := r.longAt(now); may && (!ok || by.Before(at)) && which(r) {
			at, ok = by, true
		}
	}
	return at, ok
}

// hopeless returns the request of a repository that brings least of those that bring little, if none was stopped. What brings much is
// what is wanted.
func (x *requests) hopeless(now time.Time, e *entry) (worst RequestID, ok bool) {
	for id, r := range x.all {
		if r.entry.repo != e.repo {
			continue
		}
		if r.stopped {
			return 0, false
		}
		if !r.bringsLittle(now) {
			continue
		}
		w := x.all[worst]
		if w == nil || cmp.Or(cmp.Compare(r.pace(), w.pace()), cmp.Compare(btoi(r.known), btoi(w.known)), cmp.Compare(id, worst)) < 0 {
			worst, ok = id, true
		}
	}
	return worst, ok
}

// stop has a request end before it comes to anything. The next one for its repository there has longer.
func (x *requests) stop(id RequestID) {
	r := x.all[id]
	r.stopped = true
	r.entry.stops[r.url]++
}

// giveWay has requests of a pool stopped for what is new, and those that have had their time for what else waits. It returns which.
func (x *requests) giveWay(now time.Time, p pool) []RequestID {
	if !p.full() {
		return nil
	}
	var fresh, others []waiter
	for _, w := range p.waiting {
		if w.isNew {
			fresh = append(fresh, w)
		} else {
			others = append(others, w)
		}
	}
	stopped := x.giveWayTo(now, p, fresh, 0, p.safe(), func(r *request) bool { return r.isInTheWay(now, len(fresh), p.places) })
	return append(stopped, x.giveWayTo(now, p, others, len(fresh), p.lasting(), func(r *request) bool {
		if p.site {
			return r.isOverAtSite(now)
		}
		return r.isOver(now)
	})...)
}

// giveWayTo has requests of a pool stopped that take long, as many as have owners that wait with fewer under way than theirs. Who has
// many repositories has nobody else's stopped for one more. So many have the first places that others were stopped for, and so many that
// take long are safe.
func (x *requests) giveWayTo(now time.Time, p pool, waiting []waiter, first, safe int, isLong func(*request) bool) (stopped []RequestID) {
	running, stopping, most := make(map[graspsync.PubKey]int), -first, -safe
	for _, id := range p.held {
		r := x.all[id]
		if r.stopped { // its place is for one of those that wait
			stopping++
			continue
		}
		running[r.entry.repo.Owner]++
		if isLong(r) || p.slow && r.slow {
			most++
		}
	}
	var have []int // under way of the owners of those that wait before each
	of := maps.Clone(running)
	for _, w := range waiting {
		have = append(have, of[w.owner])
		of[w.owner]++
	}
	slices.Sort(have)
	have = have[min(len(have), max(0, stopping)):]
	for most > 0 && len(have) > 0 {
		long := x.long(now, p, isLong, running)
		i := slices.IndexFunc(long, func(id RequestID) bool { return running[x.all[id].entry.repo.Owner] > have[0] })
		if i < 0 {
			break
		}
		running[x.all[long[i]].entry.repo.Owner]--
		x.stop(long[i])
		stopped = append(stopped, long[i])
		most, have = most-1, have[1:]
	}
	return stopped
}

// long returns the requests of a pool that take long, those first that are to give way first: those that have had their time, then
// those that bring least, then those to servers that have delivered nothing for their owners, then of the owners who have most under way
// in it, and then which came last.
func (x *requests) long(now time.Time, p pool, isLong func(*request) bool, running map[graspsync.PubKey]int) (all []RequestID) {
	for _, id := range p.held {
		if r := x.all[id]; !r.stopped && isLong(r) {
			all = append(all, id)
		}
	}
	slices.SortFunc(all, func(a, b RequestID) int {
		r, s := x.all[a], x.all[b]
		return cmp.Or(
			cmp.Compare(btoi(s.isOver(now)), btoi(r.isOver(now))), cmp.Compare(r.pace(), s.pace()), cmp.Compare(btoi(r.delivers()), btoi(s.delivers())),
			cmp.Compare(running[s.entry.repo.Owner], running[r.entry.repo.Owner]), s.at.Compare(r.at), cmp.Compare(b, a))
	})
	return all
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}
