package session

import (
	"iter"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/internal/standing"
)

// lives are the live subscriptions, each with the requests that it was divided into.
type lives struct {
	parts map[plan.LiveID][]*request
	from  int64 // opening time of the oldest request
}

func (l *lives) add(xs ...*request) {
	for _, x := range xs {
		l.parts[x.live] = append(l.parts[x.live], x)
	}
}

func (l *lives) remove(x *request) {
	i := slices.Index(l.parts[x.live], x)
	if i < 0 {
		return
	}
	l.parts[x.live] = slices.Delete(l.parts[x.live], i, i+1)
	if len(l.parts[x.live]) == 0 {
		delete(l.parts, x.live)
	}
	l.findFrom()
}

// stands takes in that a request brings what is new from now on.
func (l *lives) stands(x *request, now time.Time) {
	if x.openAt == 0 {
		x.openAt, x.limited = now.Unix(), 0
		l.findFrom()
	}
}

// all yields the requests of all.
func (l *lives) all() iter.Seq[*request] {
	return func(yield func(*request) bool) {
		for _, parts := range l.parts {
			for _, x := range parts {
				if !yield(x) {
					return
				}
			}
		}
	}
}

// findFrom finds when the oldest request was opened.
func (l *lives) findFrom() {
	l.from = 0
	for x := range l.all() {
		if x.openAt != 0 && (l.from == 0 || x.openAt < l.from) {
			l.from = x.openAt
		}
	}
}

// missed reports whether a request that had been open for age should have brought an event.
func (l *lives) missed(now time.Time, age time.Duration, ev *nostr.Event) bool {
	least := int64(age / time.Second)
	at := int64(ev.CreatedAt)
	if l.from == 0 || at < l.from+least || at > now.Unix()-least {
		return false
	}
	tags := standing.TagsOf(ev)
	for x := range l.all() {
		if x.openAt != 0 && at >= x.openAt+least && x.standing.Match(ev, tags) {
			return true
		}
	}
	return false
}

// before is how many requests there are that do not give way to x.
func (l *lives) before(x *request) (n int) {
	for y := range l.all() {
		if x.last || !y.last {
			n++
		}
	}
	return n
}
