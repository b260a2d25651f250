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

func (b *budgets) afford(now time.Time, foreign, ours Budget) {
	b.at, b.foreign, b.ours = now, foreign, ours
}

func (b *budgets) of(x *sub) Budget {
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
