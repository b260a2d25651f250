package sync

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/allowance"
	"github.com/graspsync/graspsync/sync/internal/session"
)

// work is the allowance of a relay for events that were asked for, until they turn out
// to be of use. What a relay holds that is not for us slows down how fast that relay is
// asked for history, and costs it nothing else. What was asked for never waits: it is
// looked at on credit, and the next request waits. It bounds as well what of one relay is
// in the pipeline. What seems to belong to our repositories has an allowance of its own, so
// that it never waits for the rest. It may be used by any goroutine.
type work struct {
	most  int64
	freed chan struct{} // one slot: some came back

	// Bytes in the pipeline; what is ours has a share of its own of these, too.
	foreignInside, oursInside *semaphore.Weighted

	mu sync.Mutex
	// guarded by mu
	foreign, ours, trusted allowance.Bucket
	// Of these, what may go to events that come live while history waits for the rest.
	foreignLive, oursLive   allowance.Bucket
	foreignNeeds, oursNeeds needs
	waiter                  waiter
	unread                  allowance.Bucket // bytes of live events that are not looked at
	record                  record
}

// lane is which allowance an event takes from.
type lane uint8

const (
	foreignLane  lane = iota // what is not for us
	oursLane                 // what seems to belong to our repositories
	trustedLane              // of that, what comes live and is not expected to be refused
	newcomerLane             // and what is expected to be, by authors of whom nothing is known
)

func laneOf(ours bool) lane {
	if ours {
		return oursLane
	}
	return foreignLane
}

// mostUnread is how many times its allowance a relay may send live without being looked
// at before it is read from slowly as well.
const mostUnread = 4

// liveShare is the part of its allowance that a relay may use up live while history waits:
// that is asked for a page at once, and the allowance for one would never be there if
// whatever came back went to a live event in the same moment.
const liveShare = 2

func newWork(most int64) *work {
	live := max(1, most/liveShare)
	return &work{
		foreignLive: allowance.NewWork(live), oursLive: allowance.NewWork(live),
		most: most, freed: make(chan struct{}, 1),
		foreignInside: semaphore.NewWeighted(most), oursInside: semaphore.NewWeighted(most),
		foreign: allowance.NewWork(most), ours: allowance.NewWork(most), trusted: allowance.NewWork(most),
		unread: allowance.NewWork(mostUnread * most),
	}
}

func (w *work) bucket(of lane) *allowance.Bucket {
	switch of {
	case trustedLane:
		return &w.trusted
	case oursLane, newcomerLane:
		return &w.ours
	case foreignLane:
	}
	return &w.foreign
}

// liveBucket returns the share of what comes live, and whether that is all that it may take.
// History takes nothing of what is trusted.
func (w *work) liveBucket(of lane) (share *allowance.Bucket, bound bool) {
	switch of {
	case trustedLane:
		return &w.trusted, false
	case oursLane, newcomerLane:
		return &w.oursLive, w.oursNeeds.bytes > 0
	case foreignLane:
	}
	return &w.foreignLive, w.foreignNeeds.bytes > 0
}

// waiter is the connection that is told when what it needs is there, the last one that there was.
type waiter struct {
	epoch uint64
	ready chan struct{} // one slot
}

// reserve says for how many events of a budget the history of a connection waits, 0 if it does
// not. What an earlier connection says does not count any more.
func (w *work) reserve(by waiter, foreign, ours int) {
	each := allowance.Forgery(w.most)
	w.mu.Lock()
	defer w.mu.Unlock()
	if by.epoch < w.waiter.epoch {
		return
	}
	if by != w.waiter {
		w.waiter, w.foreignNeeds, w.oursNeeds = by, needs{}, needs{}
	}
	w.foreignNeeds.set(int64(foreign) * each)
	w.oursNeeds.set(int64(ours) * each)
	w.tell()
}

// needs is what history waits for of a bucket.
type needs struct {
	bytes int64 // 0: it does not wait
	told  bool  // that it is there; it may wait for something else as well
}

func (n *needs) set(bytes int64) {
	if bytes != n.bytes {
		*n = needs{bytes: bytes}
	}
}

// come reports whether it is there now, once.
func (n *needs) come(now time.Time, from *allowance.Bucket) bool {
	if n.bytes == 0 {
		return false
	}
	before := n.told
	n.told = from.Left(now) >= n.bytes
	return n.told && !before
}

// tell says it if what history waits for is there: by itself that takes a tenth of a second an
// event, and what turned out to be of use comes back at once. w.mu is held.
func (w *work) tell() {
	if w.foreignNeeds.bytes == 0 && w.oursNeeds.bytes == 0 {
		return
	}
	now := time.Now()
	foreign, ours := w.foreignNeeds.come(now, &w.foreign), w.oursNeeds.come(now, &w.ours)
	if !foreign && !ours {
		return
	}
	select {
	case w.waiter.ready <- struct{}{}:
	default:
	}
}

// try takes what an event of that size costs if it is there, and returns of which lane.
func (w *work) try(size int64, of lane, live bool) (cost int64, from lane, wait time.Duration) {
	cost, now := allowance.Work(w.most, size), time.Now()
	w.mu.Lock()
	defer w.mu.Unlock()
	if of == newcomerLane && w.oursNeeds.bytes > 0 { // history gets on
		if from, lent := w.borrow(now, cost, live); lent {
			return cost, from, 0
		}
	}
	if wait = w.takeFrom(now, cost, of, live); wait > 0 && of == newcomerLane {
		if from, lent := w.borrow(now, cost, live); lent {
			return cost, from, 0
		}
	}
	return cost, of, wait
}

// borrow takes what a newcomer's event costs of what others do not use: nothing tells an
// honest one from whoever has a key for each event. w.mu is held.
func (w *work) borrow(now time.Time, cost int64, live bool) (from lane, ok bool) {
	for _, from := range []lane{foreignLane, trustedLane} {
		b := w.bucket(from)
		if b.Left(now)-cost >= b.Most()/2 && w.takeFrom(now, cost, from, live) == 0 {
			return from, true
		}
	}
	return 0, false
}

// takeFrom takes a cost from a lane if it is there; of what comes live while history waits,
// from its share as well. w.mu is held.
func (w *work) takeFrom(now time.Time, cost int64, of lane, live bool) (wait time.Duration) {
	share, bound := w.liveBucket(of)
	if !live || !bound {
		return w.bucket(of).Take(now, cost)
	}
	part := min(cost, share.Most())
	if wait = share.Take(now, part); wait > 0 {
		return wait
	}
	if wait = w.bucket(of).Take(now, cost); wait > 0 {
		share.Earn(part)
	}
	return wait
}

// owe takes what an event of that size costs, whether or not it is there.
func (w *work) owe(size int64, ours bool) (cost int64) {
	cost = allowance.Work(w.most, size)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.bucket(laneOf(ours)).Owe(time.Now(), cost)
	return cost
}

// budget is how many events may be asked for before they turn out to be of use. What waits
// for all of it waits for what no live event can take.
func (w *work) budget(now time.Time, ours bool) session.Budget {
	each := allowance.Forgery(w.most)
	w.mu.Lock()
	defer w.mu.Unlock()
	b := w.bucket(laneOf(ours))
	return session.Budget{Now: int(b.Left(now) / each), Full: max(1, int(b.Most()/liveShare/each)), Every: b.Per(each)}
}

func (w *work) inside(ours bool) *semaphore.Weighted {
	if ours {
		return w.oursInside
	}
	return w.foreignInside
}

// enter waits until there is room for an event of that size among what of the relay is in
// the pipeline, so that none fills that alone.
func (w *work) enter(ctx context.Context, size int64, ours bool) error {
	return w.inside(ours).Acquire(ctx, min(size, w.most))
}

// leave makes room for others.
func (w *work) leave(size int64, ours bool) { w.inside(ours).Release(min(size, w.most)) }

// skip takes what it costs to leave an event of that size out, and reports whether that
// was there.
func (w *work) skip(size int64) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.unread.Take(time.Now(), size) == 0
}

// take is try, when it is there. The error is that of ctx.
func (w *work) take(ctx context.Context, size int64, of lane, live bool) (cost int64, from lane, err error) {
	for {
		cost, from, wait := w.try(size, of, live)
		if wait == 0 {
			return cost, from, nil
		}
		select {
		case <-time.After(wait):
		case <-w.freed:
		case <-ctx.Done():
			return 0, of, context.Cause(ctx)
		}
	}
}

// full reports whether nothing of it is used.
func (w *work) full(now time.Time) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, b := range []*allowance.Bucket{&w.foreign, &w.ours, &w.trusted, &w.foreignLive, &w.oursLive, &w.unread} {
		if b.Left(now) < b.Most() {
			return false
		}
	}
	return true
}

// give gives back what was of use.
func (w *work) give(n int64, of lane) {
	w.mu.Lock()
	w.bucket(of).Earn(n)
	if share, _ := w.liveBucket(of); share != w.bucket(of) {
		share.Earn(n)
	}
	w.tell()
	w.mu.Unlock()
	select {
	case w.freed <- struct{}{}:
	default:
	}
}

// laneFor returns what a live event of ours takes from.
func (w *work) laneFor(author graspsync.PubKey, of category) lane {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.record.trusts(author, of):
		return trustedLane
	case w.record.distrusts(author):
		return oursLane
	}
	return newcomerLane
}

// judged notes what became of a live event of ours of that size.
func (w *work) judged(author graspsync.PubKey, of category, useful bool, size int64) {
	each := allowance.Forgery(w.most)
	weight := int((allowance.Work(w.most, size) + each - 1) / each)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.record.judged(author, of, useful, weight)
}
