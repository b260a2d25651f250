package purgatory

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/purgatory/internal/resolve"
)

// looks says which repository is looked at next. It is owned by the engine.
//
// How long a look takes is for whoever made the objects and the refs to say, and keys are free. So
// the owners have turns; who has used places for long comes after who has not; none has the last
// free place beside another one of theirs; and what used up a look's share of time, or moves very
// many refs, is gone on with in one of a few places of its own, where such looks wait for each
// other and for nobody else. What is new about the same repository does not wait for that.
type looks struct {
	places  int // for looks that have a share of time
	running map[graspsync.RepoRef]running
	lanes   [2]turns
}

// running is a look that is being made.
type running struct {
	in    lane
	since time.Time
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

// Who has had a place owes owedTimes as much time, up to mostOwed, which passes: a sixteenth of a
// place costs nothing. However many come who owe nothing, and keys are free, it is everybody's turn
// after mostOwed.
const (
	owedTimes = 16
	mostOwed  = time.Minute
)

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

// turns are the repositories that wait for a place, by owner.
type turns struct {
	todo    map[graspsync.RepoRef]resolve.Reasons
	owners  []graspsync.PubKey // that have some waiting, who was served the longest ago first
	waiting map[graspsync.PubKey][]graspsync.RepoRef
	busy    map[graspsync.PubKey]int // places that an owner has
	used    int                      // in all
	// owing have used a place lately: until when they owe time.
	owing map[graspsync.PubKey]time.Time
}

func newLooks(places int) looks {
	l := looks{places: places, running: make(map[graspsync.RepoRef]running)}
	for i := range l.lanes {
		l.lanes[i] = turns{
			todo: make(map[graspsync.RepoRef]resolve.Reasons), waiting: make(map[graspsync.PubKey][]graspsync.RepoRef), busy: make(map[graspsync.PubKey]int),
			owing: make(map[graspsync.PubKey]time.Time),
		}
	}
	return l
}

// room is how many looks may be made at once in a lane.
func (l *looks) room(in lane) int {
	if in == slow {
		return max(1, l.places/2)
	}
	return l.places
}

// want has a repository looked at. One that is being looked at is looked at again.
func (l *looks) want(ref graspsync.RepoRef, why resolve.Reasons, in lane) { l.lanes[in].add(ref, why) }

// next takes the repository whose turn it is, if there is a place for it.
func (l *looks) next(in lane, now time.Time) (ref graspsync.RepoRef, why resolve.Reasons, ok bool) {
	t := &l.lanes[in]
	ref, ok = t.take(l.room(in), now, func(ref graspsync.RepoRef) bool {
		_, looks := l.running[ref]
		return !looks
	})
	if !ok {
		return ref, why, false
	}
	l.running[ref], why = running{in, now}, t.todo[ref]
	delete(t.todo, ref)
	return ref, why, true
}

// done gives a place back, charges the owner with the time that they had it for, and returns where
// it was.
func (l *looks) done(ref graspsync.RepoRef, now time.Time) (in lane) {
	is := l.running[ref]
	in = is.in
	t := &l.lanes[in]
	delete(l.running, ref)
	t.charge(ref.Owner, now.Sub(is.since), now)
	t.used--
	if t.busy[ref.Owner]--; t.busy[ref.Owner] == 0 {
		delete(t.busy, ref.Owner)
	}
	return in
}

func (t *turns) add(ref graspsync.RepoRef, why resolve.Reasons) {
	if old, waits := t.todo[ref]; waits {
		t.todo[ref] = old.And(why)
		return
	}
	t.todo[ref] = why
	if len(t.waiting[ref.Owner]) == 0 {
		t.owners = append(t.owners, ref.Owner)
	}
	t.waiting[ref.Owner] = append(t.waiting[ref.Owner], ref)
}

// charge has an owner come after those who have used less time.
func (t *turns) charge(owner graspsync.PubKey, took time.Duration, now time.Time) {
	maps.DeleteFunc(t.owing, func(_ graspsync.PubKey, until time.Time) bool { return !until.After(now) })
	t.owing[owner] = now.Add(min(t.owes(owner, now)+owedTimes*min(took, mostOwed), mostOwed))
}

// owes is how much time an owner owes.
func (t *turns) owes(owner graspsync.PubKey, now time.Time) time.Duration {
	return max(0, t.owing[owner].Sub(now))
}

// take takes the next free one of the owner who has the fewest places, of these of who owes the
// least time, and of these of who had a turn the longest ago.
func (t *turns) take(room int, now time.Time, free func(ref graspsync.RepoRef) bool) (ref graspsync.RepoRef, ok bool) {
	best, at := -1, 0
	for i, o := range t.owners {
		if best >= 0 && cmp.Or(cmp.Compare(t.busy[o], t.busy[t.owners[best]]), cmp.Compare(t.owes(o, now), t.owes(t.owners[best], now))) >= 0 {
			continue
		}
		j := slices.IndexFunc(t.waiting[o], free)
		if j < 0 {
			continue
		}
		best, at = i, j
		if t.busy[o] == 0 && t.owes(o, now) == 0 {
			break
		}
	}
	if best < 0 || t.used >= room || (room > 1 && t.busy[t.owners[best]] > 0 && t.used == room-1) {
		return ref, false
	}
	owner := t.owners[best]
	t.owners = slices.Delete(t.owners, best, best+1)
	ref = t.waiting[owner][at]
	if rest := slices.Delete(t.waiting[owner], at, at+1); len(rest) > 0 {
		t.waiting[owner] = rest
		t.owners = append(t.owners, owner)
	} else {
		delete(t.waiting, owner)
	}
	t.busy[owner]++
	t.used++
	return ref, true
}

// retries are what failed, and is tried again later and later.
type retries[K comparable] map[K]retry

// retry is when something is tried again.
type retry struct {
	at       time.Time // zero: it is being tried
	failures int
	slow     bool // it used up its share of time
	why      resolve.Reasons
}

func (r retries[K]) failed(k K, why resolve.Reasons, now time.Time) {
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
func (r retries[K]) begin(k K, why resolve.Reasons) resolve.Reasons {
	x, failed := r[k]
	if !failed {
		return why
	}
	why = why.And(x.why)
	x.at, x.why = time.Time{}, resolve.Reasons{}
	r[k] = x
	return why
}

// due yields what is to be tried now.
func (r retries[K]) due(now time.Time) map[K]resolve.Reasons {
	out := make(map[K]resolve.Reasons)
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
	todo    map[string]resolve.Reasons
	order   []string // of todo
	retries retries[string]
}

func newSurveys(places int) surveys {
	return surveys{places: places, running: make(map[string]bool), todo: make(map[string]resolve.Reasons), retries: make(retries[string])}
}

func (s *surveys) want(identifier string, why resolve.Reasons) {
	if old, ok := s.todo[identifier]; ok {
		why = old.And(why)
	} else {
		s.order = append(s.order, identifier)
	}
	s.todo[identifier] = why
}

// next takes the first identifier that is not being looked up, if there is a place.
func (s *surveys) next() (identifier string, why resolve.Reasons, ok bool) {
	i := slices.IndexFunc(s.order, func(name string) bool { return !s.running[name] })
	if i < 0 || len(s.running) >= s.places {
		return "", resolve.Reasons{}, false
	}
	identifier = s.order[i]
	s.order = slices.Delete(s.order, i, i+1)
	why = s.retries.begin(identifier, s.todo[identifier])
	delete(s.todo, identifier)
	s.running[identifier] = true
	return identifier, why, true
}

func (s *surveys) done(identifier string) { delete(s.running, identifier) }
