package session

import (
	"math"
	"slices"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/plan"
)

// hasRoom reports whether a request that waits may be opened. Live subscriptions and
// history share the places that the relay gives; those for history are lent to live
// ones as they are needed.
func (s *Session) hasRoom(x *sub) bool {
	switch x.kind {
	case subNeg:
		return true // relays count them apart
	case subLive:
		if x.last {
			return s.free() > 0 && s.retains(x) && s.othersLive(x) < s.mostLive()
		}
		if s.historic > 0 && !s.retains(x) {
			return false
		}
		// With nothing else to end, waiting would be for ever: the relay may say so.
		return s.historic == 0 || s.free() > 0
	}
	if s.historic >= s.mostHistoric {
		return false
	}
	if s.historic == 0 && (s.free() > 0 || len(s.closing) == 0 || x.kind == subProbe && s.tried.kind == subLive) {
		// It must go on somehow; the relay may say that there is no room. What is to be closed
		// may wait for the subscription that is being tried.
		return true
	}
	return s.free() > 0 && s.retains(x) && (x.kind == subProbe || !s.liveWaits())
}

// mostLive is how many live subscriptions there may be where some come last.
func (s *Session) mostLive() int {
	if s.terms.MaxSubscriptions == 0 {
		return math.MaxInt
	}
	return plan.Limits{MaxSubscriptions: s.terms.MaxSubscriptions}.LiveSubscriptions()
}

// othersLive is how many requests of live subscriptions are open, or wait before x.
func (s *Session) othersLive(x *sub) (n int) {
	for _, y := range s.subs {
		if y.kind == subLive {
			n++
		}
	}
	for _, y := range s.waiting {
		if y.kind == subLive && (!y.last || y.order < x.order) && y != x {
			n++
		}
	}
	return n
}

// turnAway gives up what comes last, waits, and would wait for more than an answer to end.
func (s *Session) turnAway() {
	if s.tried != nil {
		return
	}
	for _, x := range slices.Clone(s.waiting) {
		if x.last && !s.hasRoom(x) && (s.historic == 0 || s.othersLive(x) >= s.mostLive()) && slices.Contains(s.waiting, x) {
			s.giveWay(x)
		}
	}
}

// makeRoom has what comes last give way to a request that is about to be sent.
func (s *Session) makeRoom(x *sub) {
	if x.kind == subNeg || x.last {
		return
	}
	for s.free() < 1 || !s.retains(x) {
		y := s.lastOpen()
		if y == nil {
			return
		}
		s.giveWay(y)
	}
}

// lastOpen returns the request sent last of those that give way, nil if there is none. Of
// what is being tried there is another part.
func (s *Session) lastOpen() (newest *sub) {
	for _, y := range s.subs {
		tried := s.tried != nil && s.tried.live == y.live
		if y.last && !tried && (newest == nil || y.number > newest.number) {
			newest = y
		}
	}
	return newest
}

// giveWay ends a live subscription that comes last.
func (s *Session) giveWay(x *sub) {
	wanted := !s.unwanted(x)
	s.dropLive(x.live)
	if wanted {
		s.out.do(LiveClosed{Live: x.live, Reason: "its place is needed", GaveWay: true})
	}
}

// retains reports whether the relay takes one more request of the size of x beside those
// that are open.
func (s *Session) retains(x *sub) bool {
	return s.terms.MaxRetained == 0 || s.retained()+x.size() <= s.terms.MaxRetained
}

// retained is how many bytes the open requests have that the relay keeps.
func (s *Session) retained() (n int) {
	for _, y := range s.subs {
		if y.kind != subNeg {
			n += y.size()
		}
	}
	return n
}

// requestOverhead is what a REQ takes besides its filters and their commas.
const requestOverhead = len(`["REQ","r18446744073709551615"]`)

// size is how many bytes the request has.
func (x *sub) size() int {
	if x.bytes == 0 {
		x.bytes = requestOverhead
		for _, f := range x.filters {
			x.bytes += filters.Size(f) + 1
		}
	}
	return x.bytes
}

// free is how many subscriptions more the relay takes.
func (s *Session) free() int {
	most := s.terms.MaxSubscriptions
	if most == 0 {
		return s.mostHistoric
	}
	return most - s.requests()
}

func (s *Session) liveWaits() bool {
	return slices.ContainsFunc(s.waiting, func(x *sub) bool { return x.kind == subLive })
}
