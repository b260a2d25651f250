package purgatory

import (
	"slices"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// looks decides which repository is looked at next. The owners of repositories take turns, and an owner has
// at most half of the places. A look that used up its share of time, or would move very many refs, is
// repeated in one of a few places of its own, because the objects and refs of an owner decide how long a
// look takes. A new look at the same repository does not wait for that. looks is owned by the engine.
type looks struct {
	lanes   [2]lookLane
	running map[graspsync.RepoRef]turn
	granted func(turn) // called when a repository has a place, by any goroutine
}

// lookLane is the repositories that wait for a place in one lane.
type lookLane struct {
	places *limit.Slots
	todo   map[graspsync.RepoRef]*todo
}

type todo struct {
	why    refplan.Reasons
	queued bool // for a place; else it is looked at for another reason now
}

// turn is a place for a look at a repository.
type turn struct {
	ref   graspsync.RepoRef
	in    lane
	place *limit.Slot
}

// lane is where a look has its place.
type lane uint8

const (
	quick lane = iota
	slow       // the last look at it used up its share of time, or would have moved very many refs
)

// quickMoves is how many refs a look moves at most that has a share of time: a tenth of a second
// or so. For one of thousands git writes as many files, for some seconds.
const quickMoves = 100

// budget is what a look may use up at most.
type budget struct {
	share time.Duration // of git in this repository, whatever it has to wait for others
	moves int           // of refs at once; 0: any number
}

// budget is that of a look in a lane.
func (in lane) budget(timeout time.Duration) budget {
	if in == quick {
		return budget{share: timeout / lockShare, moves: quickMoves}
	}
	return budget{share: timeout}
}

// newLooks returns looks with so many places, and half as many for those that take long.
func newLooks(places int, granted func(turn)) looks {
	l := looks{running: make(map[graspsync.RepoRef]turn), granted: granted}
	for in, n := range map[lane]int{quick: places, slow: max(1, places/2)} {
		l.lanes[in] = lookLane{limit.NewSlots(int64(n), int64(max(1, n/2))), make(map[graspsync.RepoRef]*todo)}
	}
	return l
}

// want has a repository looked at. One that is being looked at is looked at again.
func (l *looks) want(ref graspsync.RepoRef, why refplan.Reasons, in lane) {
	x, waits := l.lanes[in].todo[ref]
	if waits {
		x.why = x.why.And(why)
		return
	}
	l.lanes[in].todo[ref] = &todo{why: why}
	if _, runs := l.running[ref]; !runs {
		l.queue(ref, in)
	}
}

// queue has a repository wait for a place.
func (l *looks) queue(ref graspsync.RepoRef, in lane) {
	l.lanes[in].todo[ref].queued = true
	l.lanes[in].places.Queue(limit.Stranger{ID: ref.Owner.String()}, 1, func(place *limit.Slot) {
		l.granted(turn{ref, in, place})
	})
}

// begin notes that a look begins, and returns what it is for. It gives the place back, and returns false,
// if a look at the same repository goes on in the other lane.
func (l *looks) begin(t turn) (why refplan.Reasons, ok bool) {
	x := l.lanes[t.in].todo[t.ref]
	x.queued = false
	if _, runs := l.running[t.ref]; runs {
		t.place.Release()
		return why, false
	}
	delete(l.lanes[t.in].todo, t.ref)
	l.running[t.ref] = t
	return x.why, true
}

// done gives a place back, and returns where it was.
func (l *looks) done(ref graspsync.RepoRef) (in lane) {
	t := l.running[ref]
	delete(l.running, ref)
	t.place.Release()
	for _, in := range []lane{quick, slow} {
		if x := l.lanes[in].todo[ref]; x != nil && !x.queued {
			l.queue(ref, in)
		}
	}
	return t.in
}

// retries are what failed, and is tried again later and later.
type retries[K comparable] map[K]retry

// retry is when something is tried again.
type retry struct {
	at       time.Time // zero: it is being tried
	failures int
	slow     bool // it used up its share of time
	why      refplan.Reasons
}

func (r retries[K]) failed(k K, why refplan.Reasons, now time.Time) {
	x := r[k]
	x.failures++
	x.why = x.why.And(why)
	x.at = now.Add(backoff.Doubled(retryFirst, retryMost, x.failures))
	r[k] = x
}

// slow notes whether something used up its share of time when it was tried last.
func (r retries[K]) slow(k K, is bool) {
	x := r[k]
	x.slow = is
	r[k] = x
}

// begin notes that something is tried. It returns why, with what it failed for before.
func (r retries[K]) begin(k K, why refplan.Reasons) refplan.Reasons {
	x, failed := r[k]
	if !failed {
		return why
	}
	why = why.And(x.why)
	x.at, x.why = time.Time{}, refplan.Reasons{}
	r[k] = x
	return why
}

// due yields what is to be tried now.
func (r retries[K]) due(now time.Time) map[K]refplan.Reasons {
	out := make(map[K]refplan.Reasons)
	for k, x := range r {
		if !x.at.IsZero() && !now.Before(x.at) {
			out[k] = x.why
			x.at = time.Time{}
			r[k] = x
		}
	}
	return out
}

// next is when something is to be tried; zero if nothing is.
func (r retries[K]) next() (at time.Time) {
	for _, x := range r {
		if !x.at.IsZero() && (at.IsZero() || x.at.Before(at)) {
			at = x.at
		}
	}
	return at
}

// surveys says which identifier is looked up next. A survey takes no git, and so as long
// as the relay takes to answer: who came first has the first turn.
type surveys struct {
	places  int
	running map[string]bool
	todo    map[string]refplan.Reasons
	order   []string // of todo
	retries retries[string]
}

func newSurveys(places int) surveys {
	return surveys{places: places, running: make(map[string]bool), todo: make(map[string]refplan.Reasons), retries: make(retries[string])}
}

func (s *surveys) want(identifier string, why refplan.Reasons) {
	if old, ok := s.todo[identifier]; ok {
		why = old.And(why)
	} else {
		s.order = append(s.order, identifier)
	}
	s.todo[identifier] = why
}

// next takes the first identifier that is not being looked up, if there is a place.
func (s *surveys) next() (identifier string, why refplan.Reasons, ok bool) {
	i := slices.IndexFunc(s.order, func(name string) bool { return !s.running[name] })
	if i < 0 || len(s.running) >= s.places {
		return "", refplan.Reasons{}, false
	}
	identifier = s.order[i]
	s.order = slices.Delete(s.order, i, i+1)
	why = s.retries.begin(identifier, s.todo[identifier])
	delete(s.todo, identifier)
	s.running[identifier] = true
	return identifier, why, true
}

func (s *surveys) done(identifier string) { delete(s.running, identifier) }
