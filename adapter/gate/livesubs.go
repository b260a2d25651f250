package gate

import (
	"slices"
	"sync"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/limit"
)

type liveSubs struct {
	mu         sync.RWMutex
	subs, negs *limit.Table[*sub, *conn] // guarded by mu
}

type match struct {
	c *conn
	s *sub
}

func (l *liveSubs) open(c *conn, s *sub, units int) (gone []limit.Entry[*sub, *conn], ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	table := l.subs
	if s.label == labelNegOpen {
		table = l.negs
	}
	return table.Displace(s, c.who, int64(units), c)
}

// listen delivers events that any of the filters matches from now on.
func (l *liveSubs) listen(s *sub, filters []nostr.Filter) {
	live := make([]nostr.Filter, len(filters))
	for i, f := range filters {
		live[i] = sortedFilter(f)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s.liveFilters = live
}

func (l *liveSubs) remove(s *sub) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.subs.Delete(s)
	l.negs.Delete(s)
}

func (l *liveSubs) matching(e *liveEvent) (out []match) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	for s, c := range l.subs.All() {
		if slices.ContainsFunc(s.liveFilters, e.matches) {
			out = append(out, match{c, s})
		}
	}
	return out
}

func (l *liveSubs) sizes() (listening, reconciliations int) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return int(l.subs.Bytes()), l.negs.Len()
}

// sortedFilter sorts values for binary search, because strangers choose how many there are.
func sortedFilter(f nostr.Filter) nostr.Filter {
	tags := make(nostr.TagMap, len(f.Tags))
	for tag, values := range f.Tags {
		tags[tag] = sorted(values)
	}
	f.IDs, f.Authors, f.Kinds, f.Tags = sorted(f.IDs), sorted(f.Authors), sorted(f.Kinds), tags
	return f
}

func sorted[E string | int](values []E) []E {
	values = slices.Clone(values)
	slices.Sort(values)
	return slices.Compact(values)
}

// valuesPerUnit is the number of values that count as one filter.
const valuesPerUnit = 40

func weight(f nostr.Filter) int {
	n := len(f.IDs) + len(f.Authors) + len(f.Kinds)
	for _, values := range f.Tags {
		n += 1 + len(values)
	}
	return 1 + n/valuesPerUnit
}

type liveEvent struct {
	event  *nostr.Event
	values map[string][]string // by tag name, sorted
}

func newLiveEvent(e *nostr.Event) *liveEvent {
	p := &liveEvent{event: e, values: make(map[string][]string)}
	for _, tag := range e.Tags {
		if len(tag) > 1 {
			p.values[tag[0]] = append(p.values[tag[0]], tag[1])
		}
	}
	for tag, values := range p.values {
		p.values[tag] = sorted(values)
	}
	return p
}

func (p *liveEvent) matches(f nostr.Filter) bool {
	for tag, values := range f.Tags {
		if values != nil && !intersects(values, p.values[tag]) {
			return false
		}
	}
	e := p.event
	return hasOrNil(f.Kinds, e.Kind) && hasOrNil(f.Authors, e.PubKey) && hasOrNil(f.IDs, e.ID) &&
		(f.Since == nil || e.CreatedAt >= *f.Since) && (f.Until == nil || e.CreatedAt <= *f.Until)
}

func hasOrNil[E string | int](list []E, v E) bool {
	if list == nil {
		return true
	}
	_, found := slices.BinarySearch(list, v)
	return found
}

func intersects(a, b []string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	return slices.ContainsFunc(a, func(v string) bool { return hasOrNil(b, v) })
}
