package ledger

import (
	"slices"
	"time"

	"github.com/graspsync/graspsync"
)

// payer is whose quota an entry counts for: that of its author, or, since anybody can
// push, that of each repository that was pushed to. What strangers push does not count
// for what its owner has waiting, nor do the announcements of those whom they list, of which
// there may be as many again.
type payer struct {
	author graspsync.PubKey
	pushed graspsync.RepoRef
	wants  bool
}

func (e *Entry) payers() []payer {
	if e.Class != Placeholder {
		return []payer{{author: e.owes(), wants: e.Class == Relative}}
	}
	out := make([]payer, len(e.Repos))
	for i, ref := range e.Repos {
		out[i].pushed = ref
	}
	return out
}

// Verdict is what [Ledger.Check] says of an entry.
type Verdict uint8

// The verdicts.
const (
	// Welcome: it may wait.
	Welcome Verdict = iota
	// Known: it waits already.
	Known
	// Superseded: a newer version of the announcement waits, or did and was no repository of ours.
	Superseded
	// Expired: it has waited in vain before, and nobody submits it anew.
	Expired
	// AuthorFull: its author has too many entries.
	AuthorFull
	// PushedFull: too much was pushed for events that are not here.
	PushedFull
	// Full: there are too many entries, or too many bytes.
	Full
)

// Check says whether an entry may wait. It changes nothing.
func (l *Ledger) Check(now time.Time, e Entry) Verdict {
	old, ok := l.entries[e.ID]
	if ok && (old.Class == e.Class || e.Class == Placeholder) {
		return Known
	}
	// Who has the data now may try again; so may whoever brings the event for data that is
	// here by now.
	if l.gone.has(e.ID, now) && !e.ByUser && !(ok && old.Class == Placeholder) {
		return Expired
	}
	if e.announces() {
		if old = l.announces(e.Repos[0]); old != nil && !e.Version.Newer(old.Version) {
			return Superseded
		}
	}
	if l.HasLeft(now, e) {
		return Superseded
	}
	if e.Class == Placeholder {
		if !l.room(e) || l.pushed+l.reservedPushed >= l.cfg.Pushed {
			return PushedFull
		}
		return Welcome
	}
	mine, author := 0, e.payers()[0]
	if old = l.replacedBy(&e); old != nil && old.payers()[0] == author {
		mine = 1
	}
	switch {
	case len(l.payers[author])+l.reservedFor[author]-mine >= l.cfg.PerAuthor:
		return AuthorFull
	case !l.fits(&e):
		return Full
	}
	return Welcome
}

// Charge returns a Relative as it is when it counts for the first of some who have room for
// it in their quotas; false if none has. It waits as one does that has come just now.
func (l *Ledger) Charge(now time.Time, e Entry, among []graspsync.PubKey) (Entry, bool) {
	for _, e.For = range among {
		p := e.payers()[0]
		if len(l.payers[p])+l.reservedFor[p] < l.cfg.PerAuthor {
			e.Deadline, e.try = now.Add(l.waits(&e)), time.Time{}
			return e, true
		}
	}
	return e, false
}

// room reports whether the repositories of a placeholder have room for one more.
func (l *Ledger) room(e Entry) bool {
	return !slices.ContainsFunc(e.payers(), func(p payer) bool {
		return len(l.payers[p])+l.reservedFor[p] >= l.cfg.PerRepo
	})
}

// Reserve takes the place of an entry that is about to be Put, so that the quotas
// hold for those as well. It is given back by Unreserve.
func (l *Ledger) Reserve(e Entry) { l.reserve(e, 1) }

// Unreserve takes back Reserve.
func (l *Ledger) Unreserve(e Entry) { l.reserve(e, -1) }

func (l *Ledger) reserve(e Entry, n int) {
	if e.Class == Placeholder {
		l.reservedPushed += n
	} else {
		l.pool(&e).reserve(sum{n, int64(n) * e.Size})
	}
	for _, p := range e.payers() {
		if l.reservedFor[p] += n; l.reservedFor[p] == 0 {
			delete(l.reservedFor, p)
		}
	}
}
