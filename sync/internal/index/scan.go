package index

import (
	"maps"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
)

// Scan compares the index with a Store, while the index may change. Its methods belong to one
// goroutine.
type Scan struct {
	index  *Index
	number uint32
	first  bool
}

// Begin starts a scan.
func (x *Index) Begin() Scan {
	x.mu.Lock()
	defer x.mu.Unlock()
	t := x.tables
	t.scan++
	t.reported = limit.NewTable[refKey, struct{}](maxReported, 0)
	return Scan{x, t.scan, !x.scanned}
}

// Add applies a stored event. It ignores replies, and events that were removed or replaced since
// the start.
func (s Scan) Add(ev graspsync.Event) Change {
	x := s.index
	return x.change(func() Change {
		op := x.storingTop(ev)
		if op == nil {
			return Change{}
		}
		return x.apply(func(t *tables, c *Change) {
			_, removed := t.reported.Get(refKey(ev.ID))
			_, replaced := t.reported.Get(versionRef(ev))
			if !removed && !replaced {
				op(t, c)
			}
		}, s.first)
	})
}

// Unseen returns the ids of the known events that the scan has not shown, and of all replies.
func (s Scan) Unseen() (ids []graspsync.EventID) {
	x, t := s.index, s.index.tables
	each(x, maps.All(t.threads.nodes), func(k refKey, n *node) {
		if k == refKey(n.id) && n.seen < s.number {
			ids = append(ids, n.id)
		}
	})
	each(x, maps.All(t.roots), func(id graspsync.EventID, root *rootEntry) {
		if root.seen < s.number {
			ids = append(ids, id)
		}
	})
	each(x, maps.All(t.byID), func(id graspsync.EventID, r *repoEntry) {
		if r.seen < s.number {
			ids = append(ids, id)
		}
	})
	return ids
}

// Missing removes an event of Unseen that is not stored.
func (s Scan) Missing(id graspsync.EventID) Change {
	x := s.index
	return x.change(func() Change {
		return x.apply(func(t *tables, c *Change) {
			n, root, r := t.threads.nodes[refKey(id)], t.roots[id], t.byID[id]
			if n != nil && n.seen < s.number || root != nil && root.seen < s.number || r != nil && r.seen < s.number {
				t.forget(id, c)
			}
		}, s.first)
	})
}

// End ends a scan.
func (s Scan) End() {
	s.index.mu.Lock()
	defer s.index.mu.Unlock()
	s.index.scanned = true
}
