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
	needs         needs
}

// needs is until how many events may be asked for what waits for its budget does; 0: nothing.
type needs struct{ foreign, ours int }

func (n *needs) of(ours bool) *int {
	if ours {
		return &n.ours
	}
	return &n.foreign
}

func (b *budgets) afford(now time.Time, foreign, ours Budget) {
	b.at, b.foreign, b.ours = now, foreign, ours
}

func (b *budgets) of(x *request) Budget {
	if OfOurs(x.q.filter) {
		return b.ours
	}
	return b.foreign
}

// OfOurs reports whether all that matches f refers to something of ours.
func OfOurs(f nostr.Filter) bool {
	for _, name := range []string{"a", "A", "e", "E", "q"} {
		if len(f.Tags[name]) > 0 {
			return true
		}
	}
	return false
}

// need is how many events must be there before a request that waits may be opened, beside what
// is open.
func (b *budgets) need(x *request, open map[string]*request) int {
	need := min(x.most(), b.of(x).Full)
	for _, y := range open {
		if y.most() > 0 && OfOurs(y.q.filter) == OfOurs(x.q.filter) {
			need += max(0, y.most()-y.events)
		}
	}
	return need
}

// lacks is how many of these are not there.
func (b *budgets) lacks(x *request, open map[string]*request) int {
	of := b.of(x)
	if of.Full == 0 {
		return 0
	}
	return b.need(x, open) - of.Now
}

// affordable returns a test of what waits, to be asked in that order: nothing overtakes
// what waits for the same budget.
func (b *budgets) affordable(open map[string]*request) func(x *request) bool {
	b.needs = needs{}
	return func(x *request) bool {
		if x.most() == 0 {
			return true
		}
		needs := b.needs.of(OfOurs(x.q.filter))
		if *needs == 0 && b.lacks(x, open) > 0 {
			*needs = b.need(x, open)
		}
		return *needs == 0
	}
}

// count finds out what is needed where nothing can be opened now.
func (b *budgets) count(open map[string]*request, waiting []*request) {
	affordable := b.affordable(open)
	for _, x := range waiting {
		_ = affordable(x)
	}
}

// affordedAt is when the first request that waits for its budget may be opened.
func (b *budgets) affordedAt(open map[string]*request, waiting []*request) (at time.Time, ok bool) {
	seen := make(map[bool]bool)
	for _, x := range waiting {
		if x.most() == 0 || seen[OfOurs(x.q.filter)] {
			continue
		}
		seen[OfOurs(x.q.filter)] = true
		if n := b.lacks(x, open); n > 0 {
			due := b.at.Add(time.Duration(n) * b.of(x).Every)
			if !ok || due.Before(at) {
				at, ok = due, true
			}
		}
	}
	return at, ok
}
