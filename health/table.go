package health

import "container/list"

// class is the eviction order of records.
type class uint8

const (
	forgotten class = iota // no longer wanted, kept for its place in the backoff
	unproven               // not in use, never held a connection
	proven                 // not in use
	used                   // connected or dialing
	classes
)

func classOf(r Record) class {
	switch {
	case r.inUse():
		return used
	case r.Proven:
		return proven
	}
	return unproven
}

// table is a map with a maximum number of records, of relays or hosts. Each class has a list with
// the last changed record in front, so eviction takes constant time.
type table[K comparable] struct {
	most    int
	slots   map[K]*list.Element // of slot
	byAge   [classes]*list.List
	dropped uint64
}

type slot[K comparable] struct {
	key    K
	class  class
	record Record
}

func newTable[K comparable](most int) table[K] {
	t := table[K]{most: most, slots: make(map[K]*list.Element)}
	for c := range t.byAge {
		t.byAge[c] = list.New()
	}
	return t
}

func (t *table[K]) get(u K) (Record, bool) {
	if e, ok := t.slots[u]; ok {
		return e.Value.(slot[K]).record, true
	}
	return Record{}, false
}

func (t *table[K]) set(u K, r Record) (gone K, dropped bool) { return t.put(u, r, classOf(r)) }

func (t *table[K]) put(u K, r Record, c class) (gone K, dropped bool) {
	t.remove(u)
	if len(t.slots) >= t.most {
		gone, dropped = t.drop()
	}
	t.slots[u] = t.byAge[c].PushFront(slot[K]{key: u, class: c, record: r})
	return gone, dropped
}

func (t *table[K]) remove(u K) {
	if e, ok := t.slots[u]; ok {
		t.byAge[e.Value.(slot[K]).class].Remove(e)
		delete(t.slots, u)
	}
}

// drop evicts a record, in the order of classes and then of age.
func (t *table[K]) drop() (gone K, ok bool) {
	for _, l := range t.byAge {
		if e := l.Back(); e != nil {
			gone = e.Value.(slot[K]).key
			t.remove(gone)
			t.dropped++
			return gone, true
		}
	}
	return gone, false
}
