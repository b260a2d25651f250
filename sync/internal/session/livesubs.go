package session

import (
	"iter"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/sync/internal/plan"
)

type liveSubs struct {
	parts map[plan.LiveID][]*request
	from  int64 // earliest openAt, 0 if none is open
}

func (l *liveSubs) add(xs ...*request) {
	for _, x := range xs {
		l.parts[x.live] = append(l.parts[x.live], x)
	}
}

func (l *liveSubs) remove(x *request) {
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

// stands records the EOSE of a request, which delivers new events from now on.
func (l *liveSubs) stands(x *request, now time.Time) {
	if x.openAt == 0 {
		x.openAt, x.limited = now.Unix(), 0
		l.findFrom()
	}
}

func (l *liveSubs) all() iter.Seq[*request] {
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

func (l *liveSubs) findFrom() {
	l.from = 0
	for x := range l.all() {
		if x.openAt != 0 && (l.from == 0 || x.openAt < l.from) {
			l.from = x.openAt
		}
	}
}

// missed reports whether a live request should have delivered an event, because it was open for age
// before the event was created.
func (l *liveSubs) missed(now time.Time, age time.Duration, ev *nostr.Event) bool {
	least := int64(age / time.Second)
	at := int64(ev.CreatedAt)
	if l.from == 0 || at < l.from+least || at > now.Unix()-least {
		return false
	}
	for x := range l.all() {
		if x.openAt != 0 && at >= x.openAt+least && x.match.Match(ev) {
			return true
		}
	}
	return false
}

// before returns the number of requests that do not give way to x.
func (l *liveSubs) before(x *request) (n int) {
	for y := range l.all() {
		if x.last || !y.last {
			n++
		}
	}
	return n
}
