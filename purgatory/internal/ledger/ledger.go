package ledger

import (
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// Config holds the constants of a [Ledger]. All must be set.
type Config struct {
	Hold        time.Duration // how long an entry waits
	Longest     time.Duration // how long signs of life can make it wait in all
	Soft        time.Duration // how long an announcement that expired can be revived
	Placeholder time.Duration // how long a push waits for its event
	Remember    time.Duration // how long an expired id is remembered, and a version by which somebody left
	Entries     int           // events that wait, in all
	Bytes       int64         // of these
	Stay        time.Duration // how long whoever has few places keeps them, however many others come
	Kept        int           // of Entries, for the Trusted only
	KeptBytes   int64         // of Bytes, for these
	PerAuthor   int           // those of one author
	Pushed      int           // placeholders, in all
	PerRepo     int           // those of one repository
	Remembered  int           // expired ids, and as many versions
}

// Ledger is the book. Make one with [New].
type Ledger struct {
	cfg     Config
	entries map[graspsync.EventID]*Entry
	byRepo  map[graspsync.RepoRef]map[graspsync.EventID]struct{}
	byName  map[string]map[graspsync.EventID]struct{} // announcements, relatives and states, by identifier
	// announced are the announcements and the relatives of entries
	announced   map[graspsync.RepoRef]graspsync.EventID
	relatives   map[graspsync.PubKey]map[graspsync.EventID]struct{} // by their authors
	generations map[string]*Generation
	known       *nip34.Known // by these
	due         deadlines
	payers      map[payer]map[graspsync.EventID]struct{}
	pushed      int // of entries, the placeholders
	gone        gone[graspsync.EventID]
	left        gone[graspsync.RepoRef] // by their owners
	leftBy      map[graspsync.RepoRef]graspsync.Stamp

	// whose the places of the others are
	places             map[graspsync.EventID]*place
	strangers, trusted *pool

	// places taken for what is about to wait, but for those in the pools
	reservedPushed int
	reservedFor    map[payer]int
}

// New returns an empty ledger.
func New(cfg Config) *Ledger {
	return &Ledger{
		cfg:       cfg,
		entries:   make(map[graspsync.EventID]*Entry),
		byRepo:    make(map[graspsync.RepoRef]map[graspsync.EventID]struct{}),
		byName:    make(map[string]map[graspsync.EventID]struct{}),
		announced: make(map[graspsync.RepoRef]graspsync.EventID),
		payers:    make(map[payer]map[graspsync.EventID]struct{}),
		gone:      newGone[graspsync.EventID](cfg.Remembered),
		left:      newGone[graspsync.RepoRef](cfg.Remembered),
		leftBy:    make(map[graspsync.RepoRef]graspsync.Stamp),

		relatives: make(map[graspsync.PubKey]map[graspsync.EventID]struct{}), generations: make(map[string]*Generation),
		known: nip34.NewKnown(),

		places: make(map[graspsync.EventID]*place), strangers: newPool(), trusted: newPool(),

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
				return []Entry{e}
			}
			replaced = append(replaced, *old)
			l.remove(old)
		}
	}
	if old, ok := l.entries[e.ID]; ok {
		l.remove(old)
	}
	l.set(&e)
	if e.announces() {
		l.announced[e.Repos[0]] = e.ID
		l.known.Add(e.Announces)
	}
	if e.Class == Relative {
		into(l.relatives, e.Author, e.ID)
	}
	for _, r := range e.Repos {
		if e.Class != Relative {
			into(l.byRepo, r, e.ID)
		}
		if e.announces() || e.Class == State {
			into(l.byName, r.Identifier, e.ID)
		}
	}
	for _, p := range e.payers() {
		into(l.payers, p, e.ID)
	}
	if e.Class == Placeholder {
		l.pushed++
		return replaced
	}
	x := &place{entry: &e, since: e.Seen}
	l.places[e.ID] = x
	l.enter(x)
	return replaced
}

// set makes e what is known under its id, and its deadline one that is looked at.
func (l *Ledger) set(e *Entry) {
	l.entries[e.ID] = e
	l.changed(e)
	if x := l.places[e.ID]; x != nil {
		x.entry = e
		l.pool(e).fix(x)
	}
	l.due.add(e.due(), e.ID)
	if l.due.Len() > 2*len(l.entries)+100 {
		l.due.clean(l.isDeadline)
	}
}

// Generation is told from others by where it is.
type Generation struct{ _ byte }

// changed takes note that other announcements may wait under an identifier than before.
func (l *Ledger) changed(e *Entry) {
	if e.announces() {
		l.generations[e.Repos[0].Identifier] = new(Generation)
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
	case e.Class == Placeholder:
		most = l.cfg.Placeholder
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
	delete(l.entries, e.ID)
	for _, r := range e.Repos {
		outOf(l.byRepo, r, e.ID)
		if e.announces() || e.Class == State {
			outOf(l.byName, r.Identifier, e.ID)
		}
	}
	if l.changed(e); e.announces() && l.byName[e.Repos[0].Identifier] == nil {
		delete(l.generations, e.Repos[0].Identifier)
	}
	for _, p := range e.payers() {
		outOf(l.payers, p, e.ID)
	}
	if e.announces() {
		delete(l.announced, e.Repos[0])
		l.known.Remove(e.Announces)
	}
	if e.Class == Relative {
		outOf(l.relatives, e.Author, e.ID)
	}
	if e.Class == Placeholder {
		l.pushed--
		return
	}
	l.leave(l.places[e.ID])
	delete(l.places, e.ID)
}

func into[K comparable](m map[K]map[graspsync.EventID]struct{}, k K, id graspsync.EventID) {
	if m[k] == nil {
		m[k] = make(map[graspsync.EventID]struct{})
	}
	m[k][id] = struct{}{}
}

func outOf[K comparable](m map[K]map[graspsync.EventID]struct{}, k K, id graspsync.EventID) {
	delete(m[k], id)
	if len(m[k]) == 0 {
		delete(m, k)
	}
}
