package session

import (
	"time"

	"github.com/nbd-wtf/go-nostr"
)

// Budget is how many events of history a relay may be asked for, as long as it is not
// known whether they are of use. The zero value is no bound.
type Budget struct {
	Now   int           // as many as that; below 0 if too many were
	Full  int           // when nothing of it is used; a larger request waits for that
	Every time.Duration // until there may be one more
}

// budgets are what a relay may be asked for by now. No more is asked for at once than may
// be of no use, so that all that comes can be read at once: what a connection does not
// read holds up what comes live behind it.
type budgets struct {
	at            time.Time
	foreign, ours Budget
	short         map[bool]bool // ours or not: a request waits for that
}

// Afford says what may be asked for now. What waits for more is opened when that is due.
func (s *Session) Afford(now time.Time, foreign, ours Budget) {
	s.budgets.at, s.budgets.foreign, s.budgets.ours = now, foreign, ours
}

// Short reports whether history waits for a budget.
func (s *Session) Short(ours bool) bool { return s.budgets.short[ours] }

// OfOurs reports whether all that matches f refers to something of ours.
func OfOurs(f nostr.Filter) bool {
	for _, name := range []string{"a", "A", "e", "E", "q"} {
		if len(f.Tags[name]) > 0 {
			return true
		}
	}
	return false
}

func (b *budgets) of(x *sub) Budget {
	if OfOurs(x.q.filter) {
		return b.ours
	}
	return b.foreign
}

// most is how many events were, or will be, asked for; 0 if it is no matter of events.
func (x *sub) most() (n int) {
	switch x.kind {
	case subPage:
		for _, f := range x.filters {
			n += f.Limit
		}
	case subIDs:
		n = x.asked
	}
	return n
}

// lacks is how many events more must be there before a request that waits may be opened.
func (s *Session) lacks(x *sub) int {
	b := s.budgets.of(x)
	if b.Full == 0 {
		return 0
	}
	need := min(x.most(), b.Full)
	for _, y := range s.subs {
		if y.most() > 0 && OfOurs(y.q.filter) == OfOurs(x.q.filter) {
			need += max(0, y.most()-y.events)
		}
	}
	return need - b.Now
}

// affordable returns a test of what waits, to be asked in that order: nothing overtakes
// what waits for the same budget.
func (s *Session) affordable() func(x *sub) bool {
	short := make(map[bool]bool)
	s.budgets.short = short
	return func(x *sub) bool {
		if x.most() == 0 {
			return true
		}
		ours := OfOurs(x.q.filter)
		if !short[ours] && s.lacks(x) > 0 {
			short[ours] = true
		}
		return !short[ours]
	}
}

// affordedAt is when the first request that waits for its budget may be opened.
func (s *Session) affordedAt() (at time.Time, ok bool) {
	seen := make(map[bool]bool)
	for _, x := range s.waiting {
		if x.most() == 0 || seen[OfOurs(x.q.filter)] {
			continue
		}
		seen[OfOurs(x.q.filter)] = true
		if n := s.lacks(x); n > 0 {
			due := s.budgets.at.Add(time.Duration(n) * s.budgets.of(x).Every)
			if !ok || due.Before(at) {
				at, ok = due, true
			}
		}
	}
	return at, ok
}
