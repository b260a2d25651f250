package hunt

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/graspsync/graspsync"
)

// A server that takes as long as it may has a place all that time, and strangers have
// any number of those. Whoever is slow has a part of the places only, and counts as
// having waited less: those who are not find a place within slowAfter. It is a site that is slow, but for servers that have delivered, since
// another name or port of it costs nothing.
//
// How large a repository is nobody knows. So each has a short time first, and those that need more have longer each time, of fewer
// places: what is small is done soon, and what is large at last.
const (
	slowAfter  = time.Minute      // a request that takes longer is slow, unless it brings much
	longAfter  = 5 * time.Minute  // one that takes longer is, whatever it brings
	quickPace  = 64 << 10         // bytes a second that are much
	slowBehind = 10 * time.Minute // so much later

	largeAfter   = 30 * time.Minute // what a request that brings much has beside others that were stopped
	mostLarge    = 2                // how often that doubles
	mostOver     = 5                // how often slowAfter does for one that brings little, beside these
	mostPatience = 3                // and beside what is new
	manyNew      = 8                // so many that are new for each place are many: each has less then
)

// share is how many attempts of slow ones may be under way at once, and how many
// requests beside the attempts.
func (q *Queue) share() int { return max(1, q.cfg.MaxAttempts/2) }

// timed notes how long a request took that has ended.
func (q *Queue) timed(now time.Time, r *request) {
	slow := r.isLong(now)
	if d := q.domain(r.url); d.slow != slow {
		d.slow = slow
		if q.slow--; slow {
			q.slow += 2
		}
	}
	if slow {
		q.slowSites[r.site] = now
	} else {
		delete(q.slowSites, r.site)
	}
	if !r.left && !r.second {
		r.entry.slow = slow
	}
}

// brings takes note of how many bytes have come.
func (r *request) brings(now time.Time, n int64) {
	r.speed = float64(max(0, n)) / max(1, now.Sub(r.at).Seconds())
}

// isLong reports whether a request is slow by now.
func (r *request) isLong(now time.Time) bool { return r.lasts(now, slowAfter, longAfter) }

// isOver reports whether one has had its time by now, and gives its place to others that were stopped. It has longer each time that it
// was itself.
func (r *request) isOver(now time.Time) bool {
	if r.stops == 0 {
		return r.isLong(now)
	}
	return r.isOverAtSite(now)
}

// isOverAtSite is isOver where the others wait for the same servers: of a hub many are large, and to stop one there gains nobody much.
func (r *request) isOverAtSite(now time.Time) bool {
	stops := max(1, r.stops)
	return r.lasts(now, slowAfter<<min(stops, mostOver), largeAfter<<min(stops-1, mostLarge))
}

// isInTheWay reports whether one gives its place to what is new, of which so much waits for so many places.
func (r *request) isInTheWay(now time.Time, waiting, places int) bool {
	few := time.Duration(manyNew * places)
	much := max(slowAfter, (longAfter * few / max(few, time.Duration(waiting))).Truncate(slowAfter)) // NextWake knows whole minutes
	return r.lasts(now, r.patience(), max(much, r.patience()))
}

// bringsLittle reports whether one has had its time, and does not bring much.
func (r *request) bringsLittle(now time.Time) bool {
	return r.speed < quickPace && now.Sub(r.at) >= r.patience()
}

// patience is how long a request may bring little. A server may have to count what it has before it sends any of that.
func (r *request) patience() time.Duration { return slowAfter << min(r.stops, mostPatience) }

func (r *request) lasts(now time.Time, little, much time.Duration) bool {
	if r.speed < quickPace {
		return now.Sub(r.at) >= little
	}
	return now.Sub(r.at) >= much
}

// longAt returns when a request may take long for somebody for whom it does not by now; false: it does for all.
func (r *request) longAt(now time.Time) (time.Time, bool) {
	if r.isOverAtSite(now) && r.isInTheWay(now, 0, 1) && r.bringsLittle(now) {
		return time.Time{}, false
	}
	return r.at.Add((now.Sub(r.at)/slowAfter + 1) * slowAfter), true
}

// longSites are those of which a request takes long by now.
func (q *Queue) longSites(now time.Time) map[string]struct{} {
	var long map[string]struct{}
	for _, r := range q.requests {
		if r.isLong(now) {
			if long == nil {
				long = make(map[string]struct{})
			}
			long[r.site] = struct{}{}
		}
	}
	return long
}

// isSlow reports whether the last request of a repository was slow, or the last one to
// the server that is to be asked next, or one to the site of that, which may be one of those that take long by now.
func (q *Queue) isSlow(e *entry, long map[string]struct{}) bool {
	if e.slow {
		return true
	}
	if q.slow == 0 && len(q.slowSites) == 0 && len(long) == 0 {
		return false
	}
	if e.looked != q.steps { // all that wait are looked at several times in a step
		e.looked, e.looks = q.steps, q.looksSlow(e, long)
	}
	return e.looks
}

func (q *Queue) looksSlow(e *entry, long map[string]struct{}) bool {
	var next domain // one that is not known
	at := -1
	for i, u := range e.urls {
		if _, tried := e.tried[u]; tried {
			continue
		}
		var d domain
		if known := q.domains[u.HostPort()]; known != nil {
			d.delivered, d.slow = known.delivered, known.slow
		}
		if at < 0 || sooner(&d, &next) < 0 {
			next, at = d, i
		}
	}
	if next.slow || at < 0 || next.delivered > 0 { // of a hub that delivers one repository may be large
		return next.slow
	}
	return q.isSlowSite(q.siteOf(e, at), long)
}

// isSlowSite reports whether the last request to a site was slow, or one that is under way takes long by now.
func (q *Queue) isSlowSite(name string, long map[string]struct{}) bool {
	_, was := q.slowSites[name]
	_, is := long[name]
	return was || is
}

// siteOf is the site of one of the URLs of a repository. It is remembered: all that wait are looked at each time.
func (q *Queue) siteOf(e *entry, i int) string {
	if len(e.sites) != len(e.urls) {
		e.sites = make([]string, len(e.urls))
	}
	if e.sites[i] == "" {
		e.sites[i] = q.site(e.urls[i].HostPort())
	}
	return e.sites[i]
}

// sooner orders servers of a repository: those that delivered before the others, and then
// the slow ones last.
func sooner(a, b *domain) int {
	switch {
	case a.delivered != b.delivered || a.slow == b.slow:
		return cmp.Compare(b.delivered, a.delivered)
	case b.slow:
		return -1
	}
	return 1
}

// slowOnes counts the attempts under way that were slow when they began to ask, or whose
// request is by now.
func (q *Queue) slowOnes(now time.Time) (n int) {
	for _, r := range q.requests {
		if !r.left && !r.second && !r.stopped && (r.slow || r.isLong(now)) {
			n++
		}
	}
	for _, e := range q.sorted() {
		if e.asking == 0 && e.slow {
			n++
		}
	}
	return n
}

// leaveSlow has slow attempts that are between two requests left while these have their
// share, for other slow ones. It returns how many slow ones are under way then.
func (q *Queue) leaveSlow(now time.Time) int {
	slow := q.slowOnes(now)
	if slow < q.share() {
		return slow
	}
	for _, e := range q.sorted() {
		if e.slow && e.asking == 0 {
			q.leave(now, e)
			slow--
		}
	}
	return slow
}

// longUnderWay reports whether a domain has a request under way that is slow by now.
func (q *Queue) longUnderWay(now time.Time, a graspsync.HostPort) bool {
	for _, r := range q.requests {
		if r.url.HostPort() == a && r.isLong(now) {
			return true
		}
	}
	return false
}

// yield has attempts that are between two requests left for others, up to n: one whose
// servers all take as long as they may would have its place for hours. It returns how
// many of them are slow.
func (q *Queue) yield(now time.Time, n int) (slow int) {
	if n <= 0 {
		return 0
	}
	for _, e := range q.sorted() {
		if n > 0 && e.asking == 0 && len(e.tried)+len(e.further) > 0 {
			q.leave(now, e)
			n--
			if e.slow {
				slow++
			}
		}
	}
	return slow
}

// leave has an attempt wait for its next turn, in which it goes on.
func (q *Queue) leave(now time.Time, e *entry) {
	e.running, e.due = false, now
	delete(q.active, e.repo)
	q.attempts--
}

// most is how many attempts of one owner may be under way at once: the rest is for who
// comes next, however many repositories with slow servers he has.
func (q *Queue) most() int { return q.cfg.MaxAttempts - q.cfg.MaxAttempts/4 }

// running counts the attempts under way by owner, with those that were forgotten and are
// still being asked for.
func (q *Queue) running() map[graspsync.PubKey]int {
	out := make(map[graspsync.PubKey]int)
	for _, e := range q.active {
		out[e.repo.Owner]++
	}
	for _, r := range q.requests {
		if r.loose {
			out[r.entry.repo.Owner]++
		}
	}
	return out
}

// due is a repository whose attempt may start, and since when: slow ones count as having
// waited less.
type due struct {
	e     *entry
	since time.Time
}

// inTurn sorts those that wait, as things are: first those whose owner has the fewest attempts
// under way, which it returns, however many repositories others have, and of these the one that has waited longest.
func (q *Queue) inTurn(waiting []due) (running map[graspsync.PubKey]int) {
	running = q.running()
	slices.SortFunc(waiting, func(a, b due) int {
		return cmp.Or(cmp.Compare(running[a.e.repo.Owner], running[b.e.repo.Owner]), a.since.Compare(b.since), a.e.repo.Compare(b.e.repo))
	})
	return running
}

// ready returns the repositories whose attempt is due and may start, and those of them that are slow.
func (q *Queue) ready(now time.Time, long map[string]struct{}) (quick, slow []due) {
	for _, e := range q.repos {
		switch {
		case e.running || now.Before(e.due):
		case q.isSlow(e, long):
			slow = append(slow, due{e, e.due.Add(slowBehind)})
		default:
			quick = append(quick, due{e, e.due})
		}
	}
	return quick, slow
}

// sorted returns the repositories whose attempt is running, in an order that is always the same.
func (q *Queue) sorted() []*entry {
	out := slices.Collect(maps.Values(q.active))
	slices.SortFunc(out, func(a, b *entry) int { return a.repo.Compare(b.repo) })
	return out
}
