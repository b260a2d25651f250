package session

import (
	"slices"
	"time"
)

type subscriptions map[string]*request

func (s subscriptions) where(is func(x *request) bool) (out []*request) {
	for _, x := range s {
		if is(x) {
			out = append(out, x)
		}
	}
	slices.SortFunc(out, byNumber)
	return out
}

func (s subscriptions) wake(w *wake) {
	for _, x := range s {
		if x.kind != reqLive {
			w.consider(x.idleBy)
			w.consider(x.totalBy)
		}
	}
}

func (s subscriptions) excuse(d time.Duration) {
	for _, x := range s {
		x.idleBy = x.idleBy.Add(d)
		x.totalBy = x.totalBy.Add(d)
	}
}

func (s subscriptions) unansweredNeg() (oldest *request) {
	for _, x := range s {
		if x.kind == reqNeg && x.events == 0 && (oldest == nil || byNumber(x, oldest) < 0) {
			oldest = x
		}
	}
	return oldest
}

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

func (s subscriptions) live() (n int) {
	for _, x := range s {
		if x.kind == reqLive {
			n++
		}
	}
	return n
}

// suspect marks the open requests after a complaint that belongs to no known request. An empty
// answer to a marked request may be a failure.
func (s subscriptions) suspect() {
	for _, x := range s {
		if x.kind != reqLive && x.events == 0 {
			x.noticed = true
		}
	}
}

// last returns the newest subscription that may give way, or nil. Parts of a subscription under
// bisection do not give way.
func (s subscriptions) last(bisected *request) (newest *request) {
	for _, y := range s {
		tried := bisected != nil && bisected.live == y.live
		if y.last && !tried && (newest == nil || y.number > newest.number) {
			newest = y
		}
	}
	return newest
}

// retained returns the size in bytes of the open requests, without NEG-OPENs.
func (s subscriptions) retained() (n int) {
	for _, y := range s {
		if y.kind != reqNeg {
			n += y.size()
		}
	}
	return n
}

// reqs returns the number of open REQs. Relays count NEG-OPENs separately.
func (s subscriptions) reqs() (n int) {
	for _, x := range s {
		if x.kind != reqNeg {
			n++
		}
	}
	return n
}
