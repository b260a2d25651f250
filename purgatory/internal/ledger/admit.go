package ledger

import (
	"slices"
	"time"

	"github.com/graspsync/graspsync/nip34"
)

// Verdict is what [Ledger.Check] says of an entry.
type Verdict uint8

// The verdicts.
const (
	// Welcome: it may wait.
	Welcome Verdict = iota
	// Known: it waits already.
	Known
	// Superseded: a newer version of the announcement waits.
	Superseded
	// Expired: it has waited in vain before.
	Expired
	// AuthorFull: its author has too many entries.
	AuthorFull
	// Full: there are too many entries, or too many bytes.
	Full
)

// Check says whether an entry may wait. It changes nothing.
func (l *Ledger) Check(now time.Time, e Entry) Verdict {
	old, ok := l.entries[e.ID]
	if ok && (old.Class == e.Class || e.Class == Placeholder) {
		return Known
	}
	if l.gone.has(e.ID, now) {
		return Expired
	}
	if e.Class == Announcement {
		if old = l.announcement(e.Repos[0]); old != nil && !nip34.Newer(e.Version, old.Version) {
			return Superseded
		}
	}
	// What it replaces makes place for it.
	freed, place, mine := int64(0), 0, 0
	if old != nil {
		freed, place = old.Size, 1
		if old.payer() == e.payer() {
			mine = 1
		}
	}
	switch {
	case len(l.payers[e.payer()])+l.reservedFor[e.payer()]-mine >= l.cfg.PerAuthor:
		return AuthorFull
	case len(l.entries)+l.reserved-place >= l.cfg.Entries, l.bytes+l.reservedBytes-freed+e.Size > l.cfg.Bytes:
		return Full
	}
	return Welcome
}

// Reserve takes the place of an entry that is about to be Put, so that the quotas
// hold for those as well. It is given back by Unreserve.
func (l *Ledger) Reserve(e Entry) {
	l.reserved++
	l.reservedBytes += e.Size
	l.reservedFor[e.payer()]++
}

// Unreserve takes back Reserve.
func (l *Ledger) Unreserve(e Entry) {
	l.reserved--
	l.reservedBytes -= e.Size
	if l.reservedFor[e.payer()]--; l.reservedFor[e.payer()] == 0 {
		delete(l.reservedFor, e.payer())
	}
}

// Admit completes an entry that is about to wait: its times. An announcement that
// replaces one that waits is a sign of life, but inherits since when the repository
// has waited.
func (l *Ledger) Admit(now time.Time, e Entry) Entry {
	e.Seen, e.Deadline = now, now.Add(l.cfg.Hold)
	if e.Class == Placeholder {
		e.Deadline = now.Add(l.cfg.Placeholder)
	}
	if e.Class == Announcement {
		if old := l.announcement(e.Repos[0]); old != nil {
			e.Seen, e.Soft = old.Seen, old.Soft
			e.Deadline = old.Deadline
			e.Deadline = l.extended(now, e)
		}
	}
	if old, ok := l.entries[e.ID]; ok && old.Class == Placeholder && e.Class == PullRequest {
		for _, r := range old.Repos {
			if !slices.Contains(e.Repos, r) {
				e.Strays = append(e.Strays, r)
			}
		}
	}
	return e
}
