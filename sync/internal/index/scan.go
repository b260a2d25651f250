package index

import (
	"cmp"
	"maps"
	"slices"

	"github.com/graspsync/graspsync"
)

// maxJournal is the maximum number of changes recorded during a scan.
const maxJournal = 100_000

// Scan collects the content of a Store for [Index.Replace], and the changes of the index since its
// start. Its methods belong to one goroutine.
type Scan struct {
	index   *Index
	tables  *tables
	partial bool
	known   map[graspsync.EventID]update // entries that Retain may add
	journal []update                     // guarded by Index.write
}

// note records a change. If the journal is full, the scan becomes useless.
func (s *Scan) note(op update) {
	if len(s.journal) <= maxJournal {
		s.journal = append(s.journal, op)
	}
}

// Begin starts a scan and makes any earlier scan useless.
func (x *Index) Begin() *Scan {
	s := &Scan{index: x, tables: newTables(), known: make(map[graspsync.EventID]update)}
	x.write.Lock()
	defer x.write.Unlock()
	x.pending = s
	return s
}

// Add adds a stored event. It ignores replies.
func (s *Scan) Add(ev graspsync.Event) {
	s.index.Contain(func() {
		if op := s.index.standing(ev); op != nil {
			op(s.tables, nil)
		}
	})
}

// Retain adds an event that Partial or Replies returned and that is still stored.
func (s *Scan) Retain(id graspsync.EventID) { s.apply(s.known[id]) }

func (s *Scan) apply(op update) { s.index.Contain(func() { op(s.tables, nil) }) }

// Partial records that the Store may contain more events than were added. It returns the ids of the
// known announcements and root events that were not added. Their absence proves nothing.
func (s *Scan) Partial() []graspsync.EventID {
	s.partial = true
	x := s.index
	x.mu.RLock()
	known := x.tables
	x.mu.RUnlock()
	each(x, known.roots.all(), func(id graspsync.EventID, root rootEntry) {
		if s.tables.roots.get(id) == nil {
			author, at, refs := root.author.Value(), root.at, root.refs()
			s.known[id] = func(t *tables, c *Change) { t.addRoot(id, author, at, refs, c) }
		}
	})
	each(x, maps.All(known.byID), func(id graspsync.EventID, repo *repoEntry) {
		if _, seen := s.tables.byID[id]; !seen && repo.stored != nil {
			a, ours := repo.stored, repo.ann != nil
			s.known[id] = func(t *tables, c *Change) { t.announce(a, ours, c) }
		}
	})
	return slices.Collect(maps.Keys(s.known))
}

// Replies returns the ids of the known replies, each after the events that it replies to.
func (s *Scan) Replies() []graspsync.EventID {
	var ids []graspsync.EventID
	depths := make(map[graspsync.EventID]uint8)
	x := s.index
	x.mu.RLock()
	nodes := x.tables.threads.nodes
	x.mu.RUnlock()
	each(x, maps.All(nodes), func(k refKey, n *node) {
		if k == n.keys()[0] {
			a := n.answer()
			s.known[n.id] = func(t *tables, c *Change) { t.addNode(a, c) }
			ids, depths[n.id] = append(ids, n.id), n.place.depth
		}
	})
	slices.SortFunc(ids, func(a, b graspsync.EventID) int { return cmp.Or(cmp.Compare(depths[a], depths[b]), a.Compare(b)) })
	return ids
}

// Abandon ends a scan without a result.
func (s *Scan) Abandon() {
	s.index.write.Lock()
	defer s.index.write.Unlock()
	s.index.finish(s)
}

// finish ends the journal of s and reports whether it is complete. write is held.
func (x *Index) finish(s *Scan) bool {
	if s == nil || x.pending != s {
		return false
	}
	x.pending = nil
	return len(s.journal) <= maxJournal
}

// Replace replaces the index by a scan and the changes since its start, and returns the
// difference. It returns false and changes nothing if a later scan has started, too many changes
// were made, or the scan was used before. Changes block meanwhile, for about a second with half a
// million events. Readers do not block.
func (x *Index) Replace(s *Scan) (c Change, ok bool) {
	x.write.Lock()
	defer x.write.Unlock()
	if !x.finish(s) {
		return c, false
	}
	for _, op := range s.journal {
		s.apply(op)
	}
	for _, r := range s.tables.repos { // a scan does not know why an announcement is stored
		was := x.tables.repos[r.ref]
		r.relative = was != nil && was.relative
	}
	c = x.tables.difference(s.tables)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.tables, x.complete = s.tables, !s.partial && !s.tables.doubted
	x.renew(c.Names)
	return c, true
}
