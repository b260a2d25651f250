package hunt

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/graspsync/graspsync"
)

// takesPlace reports whether a request has the place of an attempt, and has not been told to give it back.
func (r *request) takesPlace() bool { return !r.left && !r.second && !r.stopped }

// rate is how many bytes a second a request has brought until a time.
func (r *request) rate(now time.Time) float64 {
	return float64(r.bytes) / max(1, now.Sub(r.at).Seconds())
}

// long returns the requests that have places and take long at a time, those first that are to give way first: of the owners who have
// most attempts under way, then those that bring least a second, so that who takes long for a lot is let finish, then of which the
// server has delivered least, and then which have taken longest.
func (q *Queue) long(now time.Time, running map[graspsync.PubKey]int) (all []RequestID) {
	for id, r := range q.requests {
		if r.takesPlace() && r.isLong(now) {
			all = append(all, id)
		}
	}
	slices.SortFunc(all, func(a, b RequestID) int {
		x, y := q.requests[a], q.requests[b]
		return cmp.Or(
			cmp.Compare(running[y.entry.repo.Owner], running[x.entry.repo.Owner]), cmp.Compare(x.rate(now), y.rate(now)),
			cmp.Compare(q.domain(x.url).delivered, q.domain(y.url).delivered), x.at.Compare(y.at), cmp.Compare(a, b))
	})
	return all
}

// giveWay has requests stopped that take long, and more than their share of the places, while others wait that are not slow: as many
// as have owners with fewer attempts under way than theirs. Who has many repositories has nobody else's stopped for one more.
func (q *Queue) giveWay(now time.Time, waiting []graspsync.PubKey) {
	most := q.slowOnes(now) - q.share()
	if q.attempts < q.cfg.MaxAttempts || len(waiting) == 0 || most <= 0 {
		return
	}
	running, stopping := q.running(), 0
	for _, r := range q.requests {
		if r.stopped && !r.left && !r.second { // its place is for one of those that wait
			running[r.entry.repo.Owner]--
			stopping++
		}
	}
	var have []int // attempts that the owners of those that wait would have before each
	of := maps.Clone(running)
	for _, owner := range waiting {
		have = append(have, of[owner])
		of[owner]++
	}
	slices.Sort(have)
	have = have[min(len(have), stopping):]
	for most > 0 && len(have) > 0 {
		long := q.long(now, running)
		if len(long) == 0 || running[q.requests[long[0]].entry.repo.Owner] <= have[0] {
			return
		}
		r := q.requests[long[0]]
		r.stopped = true
		running[r.entry.repo.Owner]--
		q.effects = append(q.effects, Stop{long[0]})
		most, have = most-1, have[1:]
	}
}

// givesWay returns when a request is to give way, if somebody waits; false if none is.
func (q *Queue) givesWay() (at time.Time, ok bool) {
	var times []time.Time
	for _, r := range q.requests {
		if r.takesPlace() {
			times = append(times, r.at.Add(slowAfter))
		}
	}
	for _, e := range q.active {
		if e.asking == 0 && e.slow {
			times = append(times, time.Time{})
		}
	}
	if len(times) <= q.share() {
		return at, false
	}
	slices.SortFunc(times, time.Time.Compare)
	return times[q.share()], true
}
