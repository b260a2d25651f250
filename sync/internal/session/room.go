package session

import (
	"slices"
)

// hasRoom reports whether a request that waits may be opened. Live subscriptions and
// history share the places that the relay gives; those for history are lent to live
// ones as they are needed.
func (s *Session) hasRoom(x *sub) bool {
	switch x.kind {
	case subNeg:
		return true // relays count them apart
	case subLive:
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
	return s.free() > 0 && (x.kind == subProbe || !s.liveWaits())
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
