package ledger

import (
	"slices"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// index is what waits, by all that it is looked for by. It knows nothing of times and bounds.
type index struct {
	entries map[graspsync.EventID]*Entry
	byRepo  map[graspsync.RepoRef]map[graspsync.EventID]struct{}
	byName  map[string]map[graspsync.EventID]struct{} // announcements, relatives and states, by identifier
	// announced are the announcements and the relatives of entries
	announced   map[graspsync.RepoRef]graspsync.EventID
	relatives   map[graspsync.PubKey]map[graspsync.EventID]struct{} // by their authors
	generations map[string]*Generation
	known       *nip34.Known // by these
	payers      map[payer]map[graspsync.EventID]struct{}
	asked       map[graspsync.PubKey]*Asked // by the authors of entries
}

// Generation is told from others by where it is.
type Generation struct{ _ byte }

func newIndex() index {
	return index{
		entries:   make(map[graspsync.EventID]*Entry),
		byRepo:    make(map[graspsync.RepoRef]map[graspsync.EventID]struct{}),
		byName:    make(map[string]map[graspsync.EventID]struct{}),
		announced: make(map[graspsync.RepoRef]graspsync.EventID),
		relatives: make(map[graspsync.PubKey]map[graspsync.EventID]struct{}), generations: make(map[string]*Generation),
		known:  nip34.NewKnown(),
		payers: make(map[payer]map[graspsync.EventID]struct{}),
		asked:  make(map[graspsync.PubKey]*Asked),
	}
}

// add takes in an entry whose id is not known.
func (x *index) add(e *Entry) {
	x.replace(e)
	if e.announces() {
		x.announced[e.Repos[0]] = e.ID
		x.known.Add(e.Announces)
	}
	if e.Class == Relative {
		into(x.relatives, e.Author, e.ID)
	}
	for _, r := range e.Repos {
		if e.Class != Relative {
			into(x.byRepo, r, e.ID)
		}
		if e.announces() || e.Class == State {
			into(x.byName, r.Identifier, e.ID)
		}
	}
	into(x.payers, e.payer(), e.ID)
}

// replace makes e what is known under its id. It is looked for by the same as before.
func (x *index) replace(e *Entry) {
	x.entries[e.ID] = e
	x.changed(e)
}

// drop forgets an entry.
func (x *index) drop(e *Entry) {
	delete(x.entries, e.ID)
	for _, r := range e.Repos {
		outOf(x.byRepo, r, e.ID)
		if e.announces() || e.Class == State {
			outOf(x.byName, r.Identifier, e.ID)
		}
	}
	if x.changed(e); e.announces() && x.byName[e.Repos[0].Identifier] == nil {
		delete(x.generations, e.Repos[0].Identifier)
	}
	outOf(x.payers, e.payer(), e.ID)
	if e.announces() {
		delete(x.announced, e.Repos[0])
		x.known.Remove(e.Announces)
	}
	if e.Class == Relative {
		outOf(x.relatives, e.Author, e.ID)
	}
	x.forgetAsked(e)
}

// changed takes note that other announcements may wait under an identifier than before.
func (x *index) changed(e *Entry) {
	if e.announces() {
		x.generations[e.Repos[0].Identifier] = new(Generation)
	}
}

// Get returns an entry.
func (x *index) Get(id graspsync.EventID) (Entry, bool) {
	e, ok := x.entries[id]
	if !ok {
		return Entry{}, false
	}
	return *e, true
}

// Announcement returns the announcement of a repository that waits, softly expired
// or not.
func (x *index) Announcement(ref graspsync.RepoRef) (Entry, bool) {
	if e := x.announcement(ref); e != nil {
		return *e, true
	}
	return Entry{}, false
}

func (x *index) announcement(ref graspsync.RepoRef) *Entry {
	if e := x.announces(ref); e != nil && e.Class == Announcement {
		return e
	}
	return nil
}

// announces returns the announcement of a repository, whether it makes that ours or not.
func (x *index) announces(ref graspsync.RepoRef) *Entry {
	if id, ok := x.announced[ref]; ok {
		return x.entries[id]
	}
	return nil
}

// Relatives returns those that wait under an identifier.
func (x *index) Relatives(identifier string) (out []Entry) {
	for id := range x.byName[identifier] {
		if e := x.entries[id]; e.Class == Relative {
			out = append(out, *e)
		}
	}
	sortByID(out)
	return out
}

// Generation is another one whenever the announcements that wait under an identifier have
// changed; nil if none do.
func (x *index) Generation(identifier string) *Generation { return x.generations[identifier] }

// Knows reports whether somebody has an announcement that waits under an identifier, or is
// listed in one.
func (x *index) Knows(identifier string, who graspsync.PubKey) bool {
	return x.known.Has(identifier, who)
}

// HasState reports whether a state waits under an identifier.
func (x *index) HasState(identifier string) bool {
	for id := range x.byName[identifier] {
		if x.entries[id].Class == State {
			return true
		}
	}
	return false
}

// Of returns the entries that name a repository, and the states with its
// identifier, whoever wrote them: which of these concern it is for its maintainers
// to say. They are in order of their ids.
func (x *index) Of(ref graspsync.RepoRef) []Entry {
	all := make([]*Entry, 0, len(x.byRepo[ref]))
	for id := range x.byRepo[ref] {
		all = append(all, x.entries[id])
	}
	for id := range x.byName[ref.Identifier] {
		if e := x.entries[id]; e.Class == State && !slices.Contains(e.Repos, ref) {
			all = append(all, e)
		}
	}
	slices.SortFunc(all, func(a, b *Entry) int { return a.ID.Compare(b.ID) }) // what is sorted is small
	out := make([]Entry, len(all))
	for i, e := range all {
		out[i] = *e
	}
	return out
}

// All returns every entry, in order of their ids.
func (x *index) All() []Entry {
	out := make([]Entry, 0, len(x.entries))
	for _, e := range x.entries {
		out = append(out, *e)
	}
	sortByID(out)
	return out
}

// Announcements returns the announcements that wait under an identifier, those that
// expired softly only if soft is set.
func (x *index) Announcements(identifier string, soft bool) (out []Entry) {
	for id := range x.byName[identifier] {
		if e := x.entries[id]; e.Class == Announcement && (soft || !e.Soft) {
			out = append(out, *e)
		}
	}
	sortByID(out)
	return out
}

// ByAuthor returns the events of an author that wait, in order of their ids.
func (x *index) ByAuthor(author graspsync.PubKey) (out []Entry) {
	for _, ids := range []map[graspsync.EventID]struct{}{
		x.payers[payer{author: author}], x.payers[payer{author: author, states: true}], x.relatives[author],
	} {
		for id := range ids {
			out = append(out, *x.entries[id])
		}
	}
	sortByID(out)
	return out
}

// Len is how many entries wait.
func (x *index) Len() int { return len(x.entries) }

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
