package ledger

import (
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/nip34"
)

// Config holds the constants of a [Ledger]. All must be set.
type Config struct {
	Hold        time.Duration // how long an entry waits
	Longest     time.Duration // how long signs of life can make it wait in all
	Soft        time.Duration // how long an announcement that expired can be revived
	Placeholder time.Duration // how long a push waits for its event
	Remember    time.Duration // how long an expired id is remembered
	Entries     int           // events that wait, in all
	Bytes       int64         // of these
	PerAuthor   int           // those of one author
	Pushed      int           // placeholders, in all
	PerRepo     int           // those of one repository
	Remembered  int           // expired ids
}

// Class is what kind of thing waits.
type Class uint8

// The classes.
const (
	Announcement Class = iota + 1
	State
	PullRequest // and updates of one
	Placeholder // of a pull request's event, whose data came first
)

// String returns the name of the class.
func (c Class) String() string {
	switch c {
	case Announcement:
		return "announcement"
	case State:
		return "state"
	case PullRequest:
		return "pull request"
	case Placeholder:
		return "placeholder"
	}
	return "invalid"
}

// Entry is something that waits. It is never changed; a copy replaces it.
type Entry struct {
	ID     filters.EventID
	Class  Class
	Event  *nostr.Event // nil for a Placeholder
	Author filters.PubKey
	// Repos are the repositories that it names: an announcement its own, a state the
	// one of its author, a pull request those of its a tags, a placeholder the one
	// that was pushed to.
	Repos    []filters.RepoRef
	Version  nip34.Version // of an announcement or state
	ByUser   bool          // it was submitted, not synced
	Size     int64         // bytes
	Seen     time.Time     // when it came
	Deadline time.Time     // when it expires
	// Soft: it has expired once; its repository is gone, and a state event revives
	// it. Deadline is when that ends.
	Soft bool
	// Strays are repositories that data for a pull request was pushed to before its
	// event came, which does not name them.
	Strays []filters.RepoRef

	try time.Time // not to be expired before; zero: at its Deadline
}

// due is when an entry is to be expired.
func (e *Entry) due() time.Time {
	if e.try.After(e.Deadline) {
		return e.try
	}
	return e.Deadline
}

// Ledger is the book. Make one with [New].
type Ledger struct {
	cfg     Config
	entries map[filters.EventID]*Entry
	byRepo  map[filters.RepoRef]map[filters.EventID]struct{}
	byName  map[string]map[filters.EventID]struct{} // announcements and states, by identifier
	due     deadlines
	payers  map[payer]map[filters.EventID]struct{}
	pushed  int // of entries, the placeholders
	bytes   int64
	gone    gone

	// places taken for what is about to wait
	reserved       int
	reservedPushed int
	reservedBytes  int64
	reservedFor    map[payer]int
}

// New returns an empty ledger.
func New(cfg Config) *Ledger {
	return &Ledger{
		cfg:     cfg,
		entries: make(map[filters.EventID]*Entry),
		byRepo:  make(map[filters.RepoRef]map[filters.EventID]struct{}),
		byName:  make(map[string]map[filters.EventID]struct{}),
		payers:  make(map[payer]map[filters.EventID]struct{}),
		gone:    newGone(cfg.Remembered),

		reservedFor: make(map[payer]int),
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

// MaxPushed is how many repositories one placeholder can be for.
const MaxPushed = 16

// Join returns the entry of a placeholder, or of a pull request, as it is when data
// for its event was pushed to one more repository. False means that nothing changes,
// or that there is no room.
func (l *Ledger) Join(id filters.EventID, ref filters.RepoRef) (e Entry, changed, room bool) {
	old, ok := l.entries[id]
	if !ok {
		return Entry{}, false, false
	}
	e = *old
	if slices.Contains(e.Repos, ref) || slices.Contains(e.Strays, ref) {
		return e, false, true
	}
	if len(e.Repos)+len(e.Strays) >= 2*MaxPushed || (e.Class != Placeholder && e.Class != PullRequest) {
		return e, false, false
	}
	if e.Class == Placeholder {
		if !l.room(Entry{Class: Placeholder, Repos: []filters.RepoRef{ref}}) {
			return e, false, false
		}
		e.Repos = append(slices.Clone(e.Repos), ref)
	} else {
		e.Strays = append(slices.Clone(e.Strays), ref)
	}
	return e, true, true
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

// Put makes an entry one that waits and returns the ones that it replaces: itself, if
// a newer version of the announcement waits. What else Check says of it is not looked
// at: it may have been read from a disk.
func (l *Ledger) Put(e Entry) (replaced []Entry) {
	if e.Class == Announcement {
		if old := l.announcement(e.Repos[0]); old != nil && old.ID != e.ID {
			if nip34.Newer(old.Version, e.Version) {
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
	for _, r := range e.Repos {
		into(l.byRepo, r, e.ID)
		if e.Class == Announcement || e.Class == State {
			into(l.byName, r.Identifier, e.ID)
		}
	}
	for _, p := range e.payers() {
		into(l.payers, p, e.ID)
	}
	l.count(&e, 1)
	return replaced
}

// set makes e what is known under its id, and its deadline one that is looked at.
func (l *Ledger) set(e *Entry) {
	l.entries[e.ID] = e
	l.due.add(e.due(), e.ID)
	if l.due.Len() > 2*len(l.entries)+100 {
		l.due.clean(l.isDeadline)
	}
}

// isDeadline reports whether an entry expires at this time.
func (l *Ledger) isDeadline(at time.Time, id filters.EventID) bool {
	e, ok := l.entries[id]
	return ok && e.due().Equal(at)
}

// Restore is Put for an entry that was read from a disk: a clock that was set back
// can't make it wait longer than it could have at most.
func (l *Ledger) Restore(now time.Time, e Entry) (replaced []Entry) {
	most := l.cfg.Hold
	switch {
	case e.Soft:
		most = l.cfg.Soft
	case e.Class == Placeholder:
		most = l.cfg.Placeholder
	}
	if latest := now.Add(most); e.Deadline.After(latest) {
		e.Deadline = latest
	}
	if e.Seen.After(now) {
		e.Seen = now
	}
	return l.Put(e)
}

func into[K comparable](m map[K]map[filters.EventID]struct{}, k K, id filters.EventID) {
	if m[k] == nil {
		m[k] = make(map[filters.EventID]struct{})
	}
	m[k][id] = struct{}{}
}

func outOf[K comparable](m map[K]map[filters.EventID]struct{}, k K, id filters.EventID) {
	delete(m[k], id)
	if len(m[k]) == 0 {
		delete(m, k)
	}
}

func (l *Ledger) remove(e *Entry) {
	delete(l.entries, e.ID)
	for _, r := range e.Repos {
		outOf(l.byRepo, r, e.ID)
		if e.Class == Announcement || e.Class == State {
			outOf(l.byName, r.Identifier, e.ID)
		}
	}
	for _, p := range e.payers() {
		outOf(l.payers, p, e.ID)
	}
	l.count(e, -1)
}

// Remove ends the waiting of an entry: it was released, or deleted.
func (l *Ledger) Remove(id filters.EventID) {
	if e, ok := l.entries[id]; ok {
		l.remove(e)
	}
}

// ByAuthor returns the events of an author that wait, in order of their ids.
func (l *Ledger) ByAuthor(author filters.PubKey) (out []Entry) {
	for id := range l.payers[payer{author: author}] {
		out = append(out, *l.entries[id])
	}
	sortByID(out)
	return out
}

// Get returns an entry.
func (l *Ledger) Get(id filters.EventID) (Entry, bool) {
	e, ok := l.entries[id]
	if !ok {
		return Entry{}, false
	}
	return *e, true
}

// Announcement returns the announcement of a repository that waits, softly expired
// or not.
func (l *Ledger) Announcement(ref filters.RepoRef) (Entry, bool) {
	if e := l.announcement(ref); e != nil {
		return *e, true
	}
	return Entry{}, false
}

func (l *Ledger) announcement(ref filters.RepoRef) *Entry {
	for id := range l.byRepo[ref] {
		if e := l.entries[id]; e.Class == Announcement {
			return e
		}
	}
	return nil
}

// Of returns the entries that name a repository, and the states with its
// identifier, whoever wrote them: which of these concern it is for its maintainers
// to say. They are in order of their ids.
func (l *Ledger) Of(ref filters.RepoRef) []Entry {
	ids := make(map[filters.EventID]struct{})
	for id := range l.byRepo[ref] {
		ids[id] = struct{}{}
	}
	for id := range l.byName[ref.Identifier] {
		if l.entries[id].Class == State {
			ids[id] = struct{}{}
		}
	}
	out := make([]Entry, 0, len(ids))
	for id := range ids {
		out = append(out, *l.entries[id])
	}
	sortByID(out)
	return out
}

// All returns every entry, in order of their ids.
func (l *Ledger) All() []Entry {
	out := make([]Entry, 0, len(l.entries))
	for _, e := range l.entries {
		out = append(out, *e)
	}
	sortByID(out)
	return out
}

func sortByID(es []Entry) {
	slices.SortFunc(es, func(a, b Entry) int { return a.ID.Compare(b.ID) })
}

// Announcements returns the announcements that wait under an identifier, those that
// expired softly only if soft is set.
func (l *Ledger) Announcements(identifier string, soft bool) (out []Entry) {
	for id := range l.byName[identifier] {
		if e := l.entries[id]; e.Class == Announcement && (soft || !e.Soft) {
			out = append(out, *e)
		}
	}
	sortByID(out)
	return out
}

// Len is how many entries wait, Bytes how large their events are.
func (l *Ledger) Len() int { return len(l.entries) }

// Bytes is how large the events are that wait.
func (l *Ledger) Bytes() int64 { return l.bytes }

// Sign notes a sign of life of a repository whose announcement waits, and returns
// the announcement as it is then. Revived means that it had expired softly and waits
// again; only a new state event does that.
func (l *Ledger) Sign(now time.Time, ref filters.RepoRef, newState bool) (e Entry, revived, changed bool) {
	old := l.announcement(ref)
	if old == nil {
		return Entry{}, false, false
	}
	e = *old
	if e.Soft {
		if !newState {
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
	return e, revived, true
}

// Due returns at most n of the entries whose time is over, those that are due the
// longest first. They stay until [Ledger.Expire] or [Ledger.Postpone].
func (l *Ledger) Due(now time.Time, n int) (out []Entry) {
	seen := make(map[filters.EventID]bool)
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
func (l *Ledger) Postpone(id filters.EventID, until time.Time) {
	if old, ok := l.entries[id]; ok {
		e := *old
		e.try = until
		l.set(&e)
	}
}

// Expire ends the waiting of an entry that is due. An announcement expires softly
// the first time, and is returned as it is then; all else is remembered, so that it
// is not taken in again. What is forgotten for it is returned as well.
func (l *Ledger) Expire(now time.Time, id filters.EventID) (soft Entry, isSoft bool, forgotten []filters.EventID) {
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
	if e.Class != Placeholder {
		forgotten = l.gone.add(id, now, now.Add(l.cfg.Remember))
	}
	return Entry{}, false, forgotten
}

// NextDue returns when the next entry is due; false if none waits.
func (l *Ledger) NextDue() (time.Time, bool) { return l.due.first(l.isDeadline) }
