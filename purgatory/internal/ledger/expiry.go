package ledger

import (
	"time"

	"github.com/graspsync/graspsync"
)

// Sign notes a sign of life of a repository whose announcement waits, and returns
// the announcement as it is then. Revived means that it had expired softly and waits
// again; only what is submitted anew does that.
func (l *Ledger) Sign(now time.Time, ref graspsync.RepoRef, submitted bool) (e Entry, revived, changed bool) {
	old := l.announcement(ref)
	if old == nil {
		return Entry{}, false, false
	}
	e = *old
	if e.Soft {
		if !submitted {
			return e, false, false
		}
		e.Soft, e.Seen, e.Deadline, revived = false, now, now.Add(l.cfg.Hold), true
	} else {
		e.Deadline = l.extended(now, e)
	}
	if e.Deadline.Equal(old.Deadline) && !revived {
		return e, false, false
	}
	l.set(&e)
	if x := l.places[e.ID]; x.since.Before(now) {
		x.since = now // something comes of it
		l.pool(&e).fix(x)
	}
	return e, revived, true
}

// Prolong has an entry wait on that is due through no fault of its own. False means that it
// does not wait, has waited as long as may be, or is of a kind that others decide about.
func (l *Ledger) Prolong(now time.Time, id graspsync.EventID) bool {
	old, ok := l.entries[id]
	if !ok || old.Class == Placeholder || old.Class == Relative {
		return false
	}
	e := *old
	if e.Deadline = l.extended(now, e); !e.Deadline.After(now) {
		return false
	}
	e.try = time.Time{}
	l.set(&e)
	return true
}

// extended is the deadline after a sign of life.
func (l *Ledger) extended(now time.Time, e Entry) time.Time {
	if e.Soft {
		return e.Deadline
	}
	limit := e.Seen.Add(l.cfg.Longest)
	d := now.Add(l.cfg.Hold)
	if d.After(limit) {
		d = limit
	}
	if d.Before(e.Deadline) {
		return e.Deadline
	}
	return d
}

// Due returns at most n of the entries whose time is over, those that are due the
// longest first. They stay until [Ledger.Expire] or [Ledger.Postpone].
func (l *Ledger) Due(now time.Time, n int) (out []Entry) {
	seen := make(map[graspsync.EventID]bool)
	for len(out) < n {
		at, ok := l.NextDue()
		if !ok || now.Before(at) {
			break
		}
		if id := l.due.pop(); !seen[id] {
			seen[id] = true
			out = append(out, *l.entries[id])
		}
	}
	for _, e := range out {
		l.due.add(e.due(), e.ID)
	}
	return out
}

// Postpone has an entry be due no sooner than at a time. Its Deadline stays what it
// is.
func (l *Ledger) Postpone(id graspsync.EventID, until time.Time) {
	if old, ok := l.entries[id]; ok {
		e := *old
		e.try = until
		l.set(&e)
	}
}

// Expire ends the waiting of an entry that is due. An announcement expires softly
// the first time, and is returned as it is then; all else is remembered, so that it
// is not taken in again. What is forgotten for it is returned as well.
func (l *Ledger) Expire(now time.Time, id graspsync.EventID) (soft Entry, isSoft bool, forgotten []graspsync.EventID) {
	e, ok := l.entries[id]
	if !ok {
		return Entry{}, false, nil
	}
	if e.Class == Announcement && !e.Soft {
		soft = *e
		soft.Soft, soft.Deadline, soft.try = true, e.Deadline.Add(l.cfg.Soft), time.Time{}
		l.set(&soft)
		return soft, true, nil
	}
	l.remove(e)
	if e.Class != Placeholder && e.Class != Relative {
		forgotten = l.gone.add(id, now, now.Add(l.cfg.Remember))
	}
	return Entry{}, false, forgotten
}

// NextDue returns when the next entry is due; false if none waits.
func (l *Ledger) NextDue() (time.Time, bool) { return l.due.first(l.isDeadline) }

// isDeadline reports whether an entry expires at this time.
func (l *Ledger) isDeadline(at time.Time, id graspsync.EventID) bool {
	e, ok := l.entries[id]
	return ok && e.due().Equal(at)
}
