package hunt

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/graspsync/graspsync"
)

// share is how many attempts of slow ones may be under way at once, and how many
// requests beside the attempts.
func (q *Queue) share() int { return max(1, q.cfg.MaxAttempts/2) }

// isSlow reports whether the last request of a repository was slow, or the last one to
// the server that is to be asked next, or one to the site of that, which may be one of those that take long by now.
func (q *Queue) isSlow(e *entry, long map[string]struct{}) bool {
	if e.slow {
		return true
	}
	if !q.servers.anySlow() && len(long) == 0 {
		return false
	}
	if e.looked != q.steps { // all that wait are looked at several times in a step
		e.looked, e.looks = q.steps, q.servers.looksSlow(e, long)
	}
	return e.looks
}

// slowOnes counts the attempts under way that were slow when they began to ask, or whose
// request is by now.
func (q *Queue) slowOnes(now time.Time) (n int) {
	n = q.requests.slow(now)
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
	for _, r := range q.requests.all {
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
