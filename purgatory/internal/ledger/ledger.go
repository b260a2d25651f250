package ledger

import (
	"slices"
	"time"

	"github.com/graspsync/graspsync"
)

// Config configures a [Ledger]. All must be set.
type Config struct {
	Hold       time.Duration // how long an entry waits
	Longest    time.Duration // how long signs of life can make it wait in all
	Soft       time.Duration // how long an announcement that expired can be revived
	Remember   time.Duration // how long an expired id is remembered, and a version by which somebody left
	Entries    int           // events that wait, in all
	Bytes      int64         // of these
	PerAuthor  int           // states of one author, and as much else
	Remembered int           // expired ids, and as many versions

	InUse func(Entry) bool // reports whether an entry must not be evicted
}

// Ledger is the book: what waits, who may, until when, and what is remembered of it. Make one
// with [New].
type Ledger struct {
	cfg Config
	index
	past

	due    deadlines
	places places

	reservedFor map[payer]int // entries that are about to wait
}

// New returns an empty ledger.
func New(cfg Config) *Ledger {
	return &Ledger{
		cfg: cfg, index: newIndex(), past: newPast(cfg.Remembered, cfg.Remember), places: newPlaces(cfg),
		reservedFor: make(map[payer]int),
	}
}

// Put makes an entry one that waits and returns the ones that it replaces: itself, if
// a newer version of the announcement waits. What else Check says of it is not looked
// at: it may have been read from a disk.
func (l *Ledger) Put(e Entry) (replaced []Entry) {
	if e.announces() {
		if old := l.announces(e.Repos[0]); old != nil && old.ID != e.ID {
			if old.Version.Newer(e.Version) {
				l.places.table.Delete(e.ID)
				return []Entry{e}
			}
			replaced = append(replaced, *old)
			l.remove(old)
		}
	}
	if old, ok := l.entries[e.ID]; ok {
		l.drop(old) // it keeps its place
	}
	l.add(&e)
	l.expect(&e)
	if _, has := l.places.table.Get(e.ID); !has {
		replaced = append(replaced, l.put(&e)...)
	}
	return replaced
}

// Fill is Put for an entry for which there is room by Reserve.
func (l *Ledger) Fill(e Entry) (replaced []Entry) {
	l.unreserve(e)
	return l.Put(e)
}

// SortByAge makes the entries that have waited for longest the oldest ones of their strangers.
func (l *Ledger) SortByAge() {
	all := l.All()
	slices.SortStableFunc(all, func(a, b Entry) int { return a.Seen.Compare(b.Seen) })
	for _, e := range all {
		l.places.table.Touch(e.ID)
	}
}

// set makes e what is known under its id, and its deadline one that is looked at.
func (l *Ledger) set(e *Entry) {
	l.replace(e)
	l.expect(e)
}

// expect has the deadline of an entry looked at.
func (l *Ledger) expect(e *Entry) {
	l.due.add(e.due(), e.ID)
	if l.due.Len() > 2*len(l.entries)+100 {
		l.due.clean(l.isDeadline)
	}
}

// Restore is Put for an entry that was read from a disk: a clock that was set back
// can't make it wait longer than it could have at most, and one that is set from here
// on does not matter.
func (l *Ledger) Restore(now time.Time, e Entry) (replaced []Entry) {
	most := l.cfg.Hold
	switch {
	case e.Soft:
		most = l.cfg.Soft
	case e.Class == Relative:
		most = l.waits(&e)
	}
	if latest := now.Add(most); e.Deadline.After(latest) {
		e.Deadline = latest
	}
	if e.Seen.After(now) {
		e.Seen = now
	}
	e.Seen, e.Deadline = steady(now, e.Seen), steady(now, e.Deadline)
	return l.Put(e)
}

// steady is a time with the monotonic reading of now, if that has one.
func steady(now, at time.Time) time.Time { return now.Add(at.Sub(now)) }

// Remove ends the waiting of an entry: it was released, or deleted.
func (l *Ledger) Remove(id graspsync.EventID) {
	if e, ok := l.entries[id]; ok {
		l.remove(e)
	}
}

func (l *Ledger) remove(e *Entry) {
	l.drop(e)
	if _, reserved := l.places.reserved[e.ID]; !reserved {
		l.places.table.Delete(e.ID)
	}
}

// Bytes is how large the events are that wait, or are about to.
func (l *Ledger) Bytes() int64 { return l.places.table.Bytes() }

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
	// Full: there are too many entries, or too many bytes. Reserve finds that out.
	Full
)

// Check says whether an entry may wait. It changes nothing.
func (l *Ledger) Check(now time.Time, e Entry) Verdict {
	old, ok := l.entries[e.ID]
	if ok && old.Class == e.Class {
		return Known
	}
	if l.HasExpired(e.ID, now) && !e.ByUser { // who has the data now may try again
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
	mine, author := 0, e.payer()
	if old = l.replacedBy(&e); old != nil && old.payer() == author {
		mine = 1
	}
	if len(l.payers[author])+l.reservedFor[author]-mine >= l.cfg.PerAuthor {
		return AuthorFull
	}
	return Welcome
}

// MakeRoom removes an announcement that has expired softly, of the author of an entry of which Check says
// [AuthorFull], and returns it. Others of the author count apart.
func (l *Ledger) MakeRoom(e Entry) (gone []Entry) {
	if e.Class == Relative || e.Class == State {
		return nil
	}
	var oldest *Entry
	for id := range l.payers[e.payer()] {
		if o := l.entries[id]; o.Soft && !l.isKept(id) && (oldest == nil || o.Deadline.Before(oldest.Deadline)) {
			oldest = o
		}
	}
	if oldest == nil {
		return nil
	}
	return l.evict(oldest)
}

// Charge returns a Relative as it is when it counts for the first of some who have room for
// it in their quotas; false if none has. It waits as one does that has come just now.
func (l *Ledger) Charge(now time.Time, e Entry, among []graspsync.PubKey) (Entry, bool) {
	for _, e.For = range among {
		p := e.payer()
		if len(l.payers[p])+l.reservedFor[p] < l.cfg.PerAuthor {
			e.Deadline, e.try = now.Add(l.waits(&e)), time.Time{}
			return e, true
		}
	}
	return e, false
}

// Admit completes an entry that is about to wait: its times. An announcement that
// replaces one that waits is a sign of life, but inherits since when the repository
// has waited.
func (l *Ledger) Admit(now time.Time, e Entry) Entry {
	e.Seen, e.Deadline = now, now.Add(l.cfg.Hold)
	if e.Class == Relative {
		e.Deadline = now.Add(l.waits(&e))
	}
	if e.Class == Announcement {
		if old := l.announcement(e.Repos[0]); old != nil {
			e.Seen, e.Soft = old.Seen, old.Soft
			e.Deadline = old.Deadline
			e.Deadline = l.extended(now, e)
		}
	}
	return e
}

// waits is how long a Relative does at most: no longer than what wants it can. It goes as
// soon as nothing does.
func (l *Ledger) waits(e *Entry) time.Duration {
	if e.For == e.Author {
		return l.cfg.Hold
	}
	return l.cfg.Longest + l.cfg.Soft
}

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
	l.renew(&e)
	return e, revived, true
}

// Prolong has an entry wait on that is due through no fault of its own. False means that it
// does not wait, has waited as long as may be, or is of a kind that others decide about.
func (l *Ledger) Prolong(now time.Time, id graspsync.EventID) bool {
	old, ok := l.entries[id]
	if !ok || old.Class == Relative {
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

// Await has an entry wait on for another Hold, however long it has waited: it is not others who are awaited. False
// means that it does not wait, or has expired softly.
func (l *Ledger) Await(now time.Time, id graspsync.EventID) bool {
	old, ok := l.entries[id]
	if !ok || old.Soft {
		return false
	}
	e := *old
	e.Deadline, e.try = now.Add(l.cfg.Hold), time.Time{}
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
		l.renew(&soft)
		return soft, true, nil
	}
	l.remove(e)
	if e.Class != Relative {
		forgotten = l.RememberExpired(now, id, now.Add(l.cfg.Remember))
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
