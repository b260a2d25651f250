// Package upkeep decides which of our repositories is put in order next. It is pure: it
// has no clock, no goroutine and no disk.
//
// It is the turn of the owner for whom the least time was spent lately, whatever number of
// repositories others have, or how much they make of theirs.
package upkeep

import (
	"container/heap"
	"time"

	"github.com/graspsync/graspsync"
)

// Queue is the state. Make one with [New]. It is not safe for concurrent use.
type Queue struct {
	most   int
	due    map[graspsync.RepoRef]bool
	pushes map[graspsync.RepoRef]int // since each was taken last
	owners map[graspsync.PubKey]*owner
	turns  turns
	last   uint64
}

// owner is whose repositories are due, or were lately.
type owner struct {
	spent time.Duration
	since uint64 // numbers when something of his began to wait
	due   []graspsync.RepoRef
	at    int // in turns; -1: nothing is due
}

// New returns an empty queue that has room for most repositories.
func New(most int) *Queue {
	return &Queue{
		most: most, due: make(map[graspsync.RepoRef]bool), pushes: make(map[graspsync.RepoRef]int),
		owners: make(map[graspsync.PubKey]*owner),
	}
}

// Len is how many repositories are due.
func (q *Queue) Len() int { return len(q.due) }

// Add has a repository be due; false if there is no room for it.
func (q *Queue) Add(ref graspsync.RepoRef) bool {
	if q.due[ref] {
		return true
	}
	if len(q.due) >= q.most {
		return false
	}
	q.due[ref] = true
	delete(q.pushes, ref)
	o := q.owners[ref.Owner]
	if o == nil {
		o = &owner{at: -1}
		q.owners[ref.Owner] = o
	}
	o.due = append(o.due, ref)
	if o.at < 0 {
		q.last++
		o.since = q.last
		heap.Push(&q.turns, o)
	}
	return true
}

// Pushed counts what has come to a repository, which is due after many times. It reports
// whether it is by now.
func (q *Queue) Pushed(ref graspsync.RepoRef, many int) bool {
	if q.due[ref] {
		return true
	}
	if _, known := q.pushes[ref]; !known && len(q.pushes) >= q.most {
		for other := range q.pushes { // any: it has its turn all the same, a day later
			delete(q.pushes, other)
			break
		}
	}
	q.pushes[ref]++
	return q.pushes[ref] >= many && q.Add(ref)
}

// Next takes the repository whose turn it is; false if none is due.
func (q *Queue) Next() (ref graspsync.RepoRef, ok bool) {
	if len(q.turns) == 0 {
		return ref, false
	}
	o := q.turns[0]
	ref, o.due = o.due[0], o.due[1:]
	delete(q.due, ref)
	if len(o.due) == 0 {
		o.due = nil
		heap.Pop(&q.turns)
		return ref, true
	}
	q.last++
	o.since = q.last
	heap.Fix(&q.turns, 0)
	return ref, true
}

// Spent charges an owner with the time that was spent for him.
func (q *Queue) Spent(who graspsync.PubKey, took time.Duration) {
	o := q.owners[who]
	if o == nil {
		return
	}
	o.spent += took
	if o.at >= 0 {
		heap.Fix(&q.turns, o.at)
	}
}

// Forgive halves what everybody was charged with, and forgets those of whom nothing is
// left.
func (q *Queue) Forgive() {
	for who, o := range q.owners {
		if o.spent /= 2; o.spent < time.Second && o.at < 0 {
			delete(q.owners, who)
		}
	}
	heap.Init(&q.turns)
}

// turns are the owners of whom something is due, as a heap.
type turns []*owner

func (t turns) Len() int { return len(t) }

func (t turns) Less(i, j int) bool {
	if t[i].spent != t[j].spent {
		return t[i].spent < t[j].spent
	}
	return t[i].since < t[j].since
}

func (t turns) Swap(i, j int) {
	t[i], t[j] = t[j], t[i]
	t[i].at, t[j].at = i, j
}

// Push implements [heap.Interface].
func (t *turns) Push(x any) {
	o := x.(*owner)
	o.at = len(*t)
	*t = append(*t, o)
}

// Pop implements [heap.Interface].
func (t *turns) Pop() any {
	old := *t
	o := old[len(old)-1]
	old[len(old)-1] = nil
	*t = old[:len(old)-1]
	o.at = -1
	return o
}
