package session

import (
	"slices"

	"github.com/graspsync/graspsync/filters"
)

// hasRoom reports whether a request that waits may be opened. Live subscriptions and
// history share the places that the relay gives; those for history are lent to live
// ones as they are needed.
func (s *Session) hasRoom(x *sub) bool {
	switch x.kind {
	case subNeg:
		return true // relays count them apart
	case subLive:
		if s.historic > 0 && !s.retains(x) {
			return false
		}
		// With nothing else to end, waiting would be for ever: the relay may say so.
		return s.historic == 0 || s.free() > 0
	}
	if s.historic >= s.cfg.Historic {
		return false
	}
	if s.historic == 0 && (s.free() > 0 || len(s.closing) == 0 || x.kind == subProbe && s.trial.origin.kind == subLive) {
		// It must go on somehow; the relay may say that there is no room. What is to be closed
		// may wait for the subscription that is being tried.
		return true
	}
	return s.free() > 0 && s.retains(x) && (x.kind == subProbe || !s.liveWaits())
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
		return s.cfg.Historic
	}
	return most - s.requests()
}

func (s *Session) liveWaits() bool {
	return slices.ContainsFunc(s.waiting, func(x *sub) bool { return x.kind == subLive })
}
