package gate

import (
	"slices"
	"sync"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/limit"
)

// liveSubs is the open subscriptions and reconciliations of all clients.
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
	live := make([]liveFilter, len(filters))
	for i, f := range filters {
		live[i] = newLiveFilter(f)
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

// liveFilter is a filter with sorted values, because strangers choose their number and that of an
// event's tags.
type liveFilter struct {
	ids, authors []string
	kinds        []int
	tags         []tagValues
	since, until *nostr.Timestamp
}

// tagValues is the values of which a tag must have one.
type tagValues struct {
	tag    string
	values []string
}

func newLiveFilter(f nostr.Filter) liveFilter {
	l := liveFilter{ids: sorted(f.IDs), authors: sorted(f.Authors), kinds: sorted(f.Kinds), since: f.Since, until: f.Until}
	for tag, values := range f.Tags {
		if values != nil {
			l.tags = append(l.tags, tagValues{tag, sorted(values)})
		}
	}
	return l
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

func (p *liveEvent) matches(l liveFilter) bool {
	e := p.event
	return hasOrNil(l.kinds, e.Kind) && hasOrNil(l.authors, e.PubKey) && hasOrNil(l.ids, e.ID) &&
		(l.since == nil || e.CreatedAt >= *l.since) && (l.until == nil || e.CreatedAt <= *l.until) &&
		!slices.ContainsFunc(l.tags, func(n tagValues) bool { return !intersects(n.values, p.values[n.tag]) })
}

// hasOrNil reports whether a sorted list contains a value or is nil.
func hasOrNil[E string | int](list []E, v E) bool {
	if list == nil {
		return true
	}
	_, found := slices.BinarySearch(list, v)
	return found
}

// intersects reports whether two sorted lists have a common value.
func intersects(a, b []string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	return slices.ContainsFunc(a, func(v string) bool { return hasOrNil(b, v) })
}
