package ledger

import (
	"slices"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
)

// maxDependents is the number of entries that leave with an evicted announcement at most. The others
// expire.
const maxDependents = 100

// places are the entries, and those that are being written down, in one table
// for all strangers.
type places struct {
	table    *limit.Table[graspsync.EventID, struct{}]
	reserved map[graspsync.EventID]struct{} // those of the table that are being written down
}

func newPlaces(cfg Config) places {
	return places{
		table:    limit.NewTable[graspsync.EventID, struct{}](cfg.Entries, cfg.Bytes),
		reserved: make(map[graspsync.EventID]struct{}),
	}
}

// stranger returns the stranger for whom an entry counts. Announcements that have expired softly count
// for one stranger together, so that the oldest of them make room before others do.
func (e *Entry) stranger() limit.Stranger {
	switch {
	case e.Soft:
		return limit.Stranger{ID: "expired announcements"}
	case e.Class == PullRequest:
		return limit.Stranger{ID: e.From}
	}
	return limit.Stranger{ID: e.owes().String()}
}

// Reserve makes room for an entry that is about to be Put, so that the bounds hold for it as well. It
// returns the entries that were evicted for it, with the entries that depend on evicted announcements,
// and whether there is room. Nothing is remembered of evicted entries: they may come again.
func (l *Ledger) Reserve(e Entry) (gone []Entry, ok bool) {
	l.count(&e, 1)
	if old := l.replacedBy(&e); old != nil {
		l.places.table.Delete(old.ID)
	}
	gone, ok = l.place(&e)
	if l.places.reserved[e.ID] = struct{}{}; !ok {
		gone = append(gone, l.Unreserve(e)...)
	}
	return gone, ok
}

// Unreserve takes back Reserve. It returns the entries that were evicted because the entry that was to be
// replaced has its place again.
func (l *Ledger) Unreserve(e Entry) (gone []Entry) {
	l.unreserve(e)
	l.places.table.Delete(e.ID)
	if old := l.replacedBy(&e); old != nil {
		return l.put(old)
	}
	return nil
}

// unreserve is Unreserve for an entry that is Put next.
func (l *Ledger) unreserve(e Entry) {
	l.count(&e, -1)
	delete(l.places.reserved, e.ID)
}

// count notes that an entry is about to be Put, or is not any more.
func (l *Ledger) count(e *Entry, n int) {
	p := e.payer()
	if l.reservedFor[p] += n; l.reservedFor[p] == 0 {
		delete(l.reservedFor, p)
	}
}

// place gives an entry its place. It returns the entries that were evicted for it, and whether there is room.
func (l *Ledger) place(e *Entry) (gone []Entry, ok bool) {
	evicted, ok := l.places.table.PutKeeping(e.ID, e.stranger(), e.Size, struct{}{}, func(id graspsync.EventID) bool {
		return l.isKept(id) || e.needs(l.entries[id])
	})
	for _, x := range evicted {
		if old := l.entries[x.Key]; old != nil { // else it left with its announcement
			gone = append(gone, l.evict(old)...)
		}
	}
	return gone, ok
}

// isKept reports whether an entry must not be evicted.
func (l *Ledger) isKept(id graspsync.EventID) bool {
	_, reserved := l.places.reserved[id]
	return reserved || l.cfg.InUse(*l.entries[id])
}

// put is place for an entry that leaves if there is no room.
func (l *Ledger) put(e *Entry) (gone []Entry) {
	gone, ok := l.place(e)
	if !ok {
		gone = append(gone, l.evict(e)...)
	}
	return gone
}

// renew makes an entry the newest one of its stranger, who may be another one than before.
func (l *Ledger) renew(e *Entry) {
	if l.places.table.Touch(e.ID) {
		l.places.table.Put(e.ID, e.stranger(), e.Size, struct{}{})
	}
}

// evict removes an entry and, if it is an announcement, the entries that depend on it.
func (l *Ledger) evict(e *Entry) (gone []Entry) {
	gone = append(gone, *e)
	l.remove(e)
	for _, o := range l.dependents(e) {
		gone = append(gone, *o)
		l.remove(o)
	}
	return gone
}

// dependents returns the entries that wait for a repository and need its announcement.
func (l *Ledger) dependents(e *Entry) (out []*Entry) {
	if e.Class != Announcement {
		return nil
	}
	add := func(o *Entry) {
		if !l.isKept(o.ID) {
			out = append(out, o)
		}
	}
	for id := range l.byRepo[e.Repos[0]] {
		if o := l.entries[id]; len(o.Repos) == 1 {
			add(o)
		}
	}
	for id := range l.byName[e.Repos[0].Identifier] {
		if o := l.entries[id]; o.Class == Relative && o.For == e.Author {
			add(o)
		}
	}
	slices.SortFunc(out, func(a, b *Entry) int { return a.ID.Compare(b.ID) })
	return out[:min(len(out), maxDependents)]
}

// needs reports whether an entry is of no use without another one, an announcement.
func (e *Entry) needs(x *Entry) bool {
	if x.Class != Announcement {
		return false
	}
	ref := x.Repos[0]
	return slices.Contains(e.Repos, ref) || e.Class == Relative && ref.Identifier == e.Repos[0].Identifier && e.For == x.Author
}

// replacedBy returns the entry whose place another one takes.
func (l *Ledger) replacedBy(e *Entry) *Entry {
	if e.announces() {
		return l.announces(e.Repos[0])
	}
	return l.entries[e.ID]
}
