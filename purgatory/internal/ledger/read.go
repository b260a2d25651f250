package ledger

import "github.com/graspsync/graspsync"

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
func (l *Ledger) Bytes() int64 { return l.strangers.sum.plus(l.trusted.sum).bytes }
