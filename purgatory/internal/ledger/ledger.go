package ledger

import (
	"slices"
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

	places places // whose those of the others are

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

		places: newPlaces(cfg),

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
	l.places.of[e.ID] = x
	l.places.enter(x)
	return replaced
}

// set makes e what is known under its id, and its deadline one that is looked at.
func (l *Ledger) set(e *Entry) {
	l.entries[e.ID] = e
	l.changed(e)
	if x := l.places.of[e.ID]; x != nil {
		x.entry = e
		l.places.pool(e).fix(x)
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
	l.places.leave(l.places.of[e.ID])
	delete(l.places.of, e.ID)
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

// Get returns an entry.
func (l *Ledger) Get(id graspsync.EventID) (Entry, bool) {
	e, ok := l.entries[id]
	if !ok {
		return Entry{}, false
	}
	return *e, true
}

// Announcement returns the announcement of a repository that waits, softly expired
// or not.
func (l *Ledger) Announcement(ref graspsync.RepoRef) (Entry, bool) {
	if e := l.announcement(ref); e != nil {
		return *e, true
	}
	return Entry{}, false
}

func (l *Ledger) announcement(ref graspsync.RepoRef) *Entry {
	if e := l.announces(ref); e != nil && e.Class == Announcement {
		return e
	}
	return nil
}

// announces returns the announcement of a repository, whether it makes that ours or not.
func (l *Ledger) announces(ref graspsync.RepoRef) *Entry {
	if id, ok := l.announced[ref]; ok {
		return l.entries[id]
	}
	return nil
}

// Relatives returns those that wait under an identifier.
func (l *Ledger) Relatives(identifier string) (out []Entry) {
	for id := range l.byName[identifier] {
		if e := l.entries[id]; e.Class == Relative {
			out = append(out, *e)
		}
	}
	sortByID(out)
	return out
}

// Generation is another one whenever the announcements that wait under an identifier have
// changed; nil if none do.
func (l *Ledger) Generation(identifier string) *Generation { return l.generations[identifier] }

// Knows reports whether somebody has an announcement that waits under an identifier, or is
// listed in one.
func (l *Ledger) Knows(identifier string, who graspsync.PubKey) bool {
	return l.known.Has(identifier, who)
}

// Of returns the entries that name a repository, and the states with its
// identifier, whoever wrote them: which of these concern it is for its maintainers
// to say. They are in order of their ids.
func (l *Ledger) Of(ref graspsync.RepoRef) []Entry {
	ids := make(map[graspsync.EventID]struct{})
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

// ByAuthor returns the events of an author that wait, in order of their ids.
func (l *Ledger) ByAuthor(author graspsync.PubKey) (out []Entry) {
	for _, ids := range []map[graspsync.EventID]struct{}{l.payers[payer{author: author}], l.relatives[author]} {
		for id := range ids {
			out = append(out, *l.entries[id])
		}
	}
	sortByID(out)
	return out
}

// Len is how many entries wait, Bytes how large their events are.
func (l *Ledger) Len() int { return len(l.entries) }

// Bytes is how large the events are that wait.
func (l *Ledger) Bytes() int64 { return l.places.strangers.sum.plus(l.places.trusted.sum).bytes }

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
	case !l.places.fits(l.claim(&e, Kept{})):
		return Full
	}
	return Welcome
}

// replacedBy is what makes place for an entry. A placeholder has none of an event's.
func (l *Ledger) replacedBy(e *Entry) *Entry {
	old := l.entries[e.ID]
	if e.announces() {
		old = l.announces(e.Repos[0])
	}
	if old == nil || old.Class == Placeholder {
		return nil
	}
	return old
}

// claim is that of an entry which is to wait.
func (l *Ledger) claim(e *Entry, kept Kept) claim {
	return claim{Entry: e, replaces: l.replacedBy(e), kept: kept}
}

// Displace takes out what gives way to an entry of which Check says [Full] or [AuthorFull], and
// returns it; nothing if that has no more claim than what waits. What depends on an
// announcement goes with it. None of it is remembered: it may come again.
func (l *Ledger) Displace(now time.Time, e Entry, v Verdict, kept Kept) (gone []Entry) {
	for _, x := range l.places.makeRoom(now, l.claim(&e, kept), v == AuthorFull) {
		if l.places.of[x.entry.ID] != x {
			continue // it went with its announcement
		}
		gone = append(gone, *x.entry)
		l.remove(x.entry)
		for _, dependent := range l.dependents(x.entry, kept) {
			gone = append(gone, *dependent)
			l.remove(dependent)
		}
	}
	return gone
}

// dependents returns what waits for a repository, and is of no use without its announcement.
func (l *Ledger) dependents(e *Entry, kept Kept) (out []*Entry) {
	if e.Class != Announcement {
		return nil
	}
	for id := range l.byRepo[e.Repos[0]] {
		o := l.entries[id]
		if len(out) == maxDependents {
			break // the others' time is over soon
		}
		if o.Class != Placeholder && len(o.Repos) == 1 && !o.Trusted && !kept.Always(*o) {
			out = append(out, o)
		}
	}
	for id := range l.byName[e.Repos[0].Identifier] {
		if o := l.entries[id]; o.Class == Relative && o.For == e.Author && len(out) < maxDependents && !kept.Always(*o) {
			out = append(out, o)
		}
	}
	return out
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
		l.places.pool(&e).reserve(sum{n, int64(n) * e.Size})
	}
	for _, p := range e.payers() {
		if l.reservedFor[p] += n; l.reservedFor[p] == 0 {
			delete(l.reservedFor, p)
		}
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
	if old, ok := l.entries[e.ID]; ok && old.Class == Placeholder && e.Class == PullRequest {
		for _, r := range old.Repos {
			if !slices.Contains(e.Repos, r) {
				e.Strays = append(e.Strays, r)
			}
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

// MaxPushed is how many repositories one placeholder can be for.
const MaxPushed = 16

// Join returns the entry of a placeholder, or of a pull request, as it is when data
// for its event was pushed to one more repository. False means that nothing changes,
// or that there is no room.
func (l *Ledger) Join(id graspsync.EventID, ref graspsync.RepoRef) (e Entry, changed, room bool) {
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
		if !l.room(Entry{Class: Placeholder, Repos: []graspsync.RepoRef{ref}}) {
			return e, false, false
		}
		e.Repos = append(slices.Clone(e.Repos), ref)
	} else {
		e.Strays = append(slices.Clone(e.Strays), ref)
	}
	return e, true, true
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
	if x := l.places.of[e.ID]; x.since.Before(now) {
		x.since = now // something comes of it
		l.places.pool(&e).fix(x)
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

// RememberExpired is for an id that was read from a disk. It returns what is forgotten
// for it, or itself if its time is over.
func (l *Ledger) RememberExpired(now time.Time, id graspsync.EventID, until time.Time) (forgotten []graspsync.EventID) {
	if latest := now.Add(l.cfg.Remember); until.After(latest) {
		until = latest
	}
	if !now.Before(until) {
		return []graspsync.EventID{id}
	}
	return l.gone.add(id, now, steady(now, until))
}

// Again forgets that an id waited in vain, since it waits anew. It reports whether it did.
func (l *Ledger) Again(id graspsync.EventID) bool { return l.gone.forget(id) }

// HasExpired reports whether an id waited in vain.
func (l *Ledger) HasExpired(id graspsync.EventID, now time.Time) bool { return l.gone.has(id, now) }

// Leave remembers the version of an announcement that makes its repository not ours, and that
// waits no longer: older ones do not come back. It returns for whose repositories that is
// forgotten for it, or this one if its time is over.
func (l *Ledger) Leave(now time.Time, ref graspsync.RepoRef, v graspsync.Stamp, until time.Time) (forgotten []graspsync.RepoRef) {
	if latest := now.Add(l.cfg.Remember); until.After(latest) {
		until = latest
	}
	if !now.Before(until) {
		return []graspsync.RepoRef{ref}
	}
	if old, again := l.leftBy[ref]; !again || v.Newer(old) {
		l.leftBy[ref] = v
	}
	forgotten = l.left.add(ref, now, steady(now, until))
	for _, old := range forgotten {
		delete(l.leftBy, old)
	}
	return forgotten
}

// HasLeft reports whether an announcement is older than one by which its repository is not ours.
func (l *Ledger) HasLeft(now time.Time, e Entry) bool {
	return e.announces() && l.left.has(e.Repos[0], now) && l.leftBy[e.Repos[0]].Newer(e.Version)
}
