package session

import (
	"slices"
	"time"
)

// subscriptions are the requests that are open, by their ids.
type subscriptions map[string]*request

// where returns those of which is says so, in the order in which they were sent.
func (s subscriptions) where(is func(x *request) bool) (out []*request) {
	for _, x := range s {
		if is(x) {
			out = append(out, x)
		}
	}
	slices.SortFunc(out, byNumber)
	return out
}

// wake considers when an answer is late.
func (s subscriptions) wake(w *wake) {
	for _, x := range s {
		if x.kind != reqLive {
			w.consider(x.idleBy)
			w.consider(x.totalBy)
		}
	}
}

// excuse puts all deadlines off.
func (s subscriptions) excuse(d time.Duration) {
	for _, x := range s {
		x.idleBy = x.idleBy.Add(d)
		x.totalBy = x.totalBy.Add(d)
	}
}

// unansweredNeg returns the oldest NEG-OPEN that got no answer.
func (s subscriptions) unansweredNeg() (oldest *request) {
	for _, x := range s {
		if x.kind == reqNeg && x.events == 0 && (oldest == nil || byNumber(x, oldest) < 0) {
			oldest = x
		}
	}
	return oldest
}

// late returns the requests whose answer took too long, in the order in which they were sent.
func (s subscriptions) late(now time.Time) []*request {
	late := make([]*request, 0, 4)
	for _, x := range s {
		if x.kind != reqLive && (!now.Before(x.idleBy) || !now.Before(x.totalBy)) {
			late = append(late, x)
		}
	}
	slices.SortFunc(late, byNumber)
	return late
}

// live is how many of them are of live subscriptions.
func (s subscriptions) live() (n int) {
	for _, x := range s {
		if x.kind == reqLive {
			n++
		}
	}
	return n
}

// suspect notes a complaint that can't be told to belong to any request: an
// answer that is empty may be no answer.
func (s subscriptions) suspect() {
	for _, x := range s {
		if x.kind != reqLive && x.events == 0 {
			x.noticed = true
		}
	}
}

// last returns the request sent last of those that give way, nil if there is none. Of what is
// being tried there is another part.
func (s subscriptions) last(bisected *request) (newest *request) {
	for _, y := range s {
		tried := bisected != nil && bisected.live == y.live
		if y.last && !tried && (newest == nil || y.number > newest.number) {
			newest = y
		}
	}
	return newest
}

// retained is how many bytes the open requests have that the relay keeps.
func (s subscriptions) retained() (n int) {
	for _, y := range s {
		if y.kind != reqNeg {
			n += y.size()
		}
	}
	return n
}

// reqs is how many REQs there are: relays count NEG-OPENs apart.
func (s subscriptions) reqs() (n int) {
	for _, x := range s {
		if x.kind != reqNeg {
			n++
		}
	}
	return n
}
