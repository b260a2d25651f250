package gate

import (
	"slices"
	"sync"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/limit"
)

// live is the table of what clients have open: subscriptions and reconciliations. Free room is usable by
// all clients. Without it the oldest entry of the client that has most yields.
type liveSubs struct {
	mu         sync.RWMutex
	subs, negs *limit.Table[*sub, *conn] // guarded by mu
}

// hearer is a subscription that matches an event.
type match struct {
	c *conn
	s *sub
}

// open adds a subscription or a reconciliation of a client, and returns those that yield to it.
func (l *liveSubs) open(c *conn, s *sub) (gone []limit.Entry[*sub, *conn], ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	table := l.subs
	if s.label == labelNegOpen {
		table = l.negs
	}
	return table.Displace(s, c.who, int64(s.weight), c)
}

// hear has a subscription hear what is published from now on, for which any of its filters asks, unless it has ended.
func (l *liveSubs) listen(s *sub, filters []nostr.Filter) {
	hears := make([]liveFilter, len(filters))
	for i, f := range filters {
		hears[i] = newLiveFilter(f)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	s.liveFilters = hears
}

// leave removes a subscription or a reconciliation.
func (l *liveSubs) remove(s *sub) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.subs.Delete(s)
	l.negs.Delete(s)
}

// who returns the subscriptions that match an event, the oldest first.
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

// units returns the filters and reconciliations that are open.
func (l *liveSubs) sizes() (listening, reconciliations int) {
	l.mu.RLock()
	defer l.mu.RUnlock()
	return int(l.subs.Bytes()), l.negs.Len()
}

// listening is a filter that is held against each event that is published. What it names is sorted:
// strangers say how much that is, and how many tags an event has.
type liveFilter struct {
	ids, authors []string
	kinds        []int
	tags         []tagValues
	since, until *nostr.Timestamp
}

// named is what a tag must have one of.
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

// sorted is a copy without what is there twice: the filter is asked with as well.
func sorted[E string | int](values []E) []E {
	values = slices.Clone(values)
	slices.Sort(values)
	return slices.Compact(values)
}

// unitValues is how many values of a filter count as much as a filter.
const valuesPerUnit = 40

// weight is what a filter takes up of MaxListening.
func weight(f nostr.Filter) int {
	n := len(f.IDs) + len(f.Authors) + len(f.Kinds)
	for _, values := range f.Tags {
		n += 1 + len(values)
	}
	return 1 + n/valuesPerUnit
}

// published is an event that those hear of who ask for it.
type liveEvent struct {
	event  *nostr.Event
	values map[string][]string // of its tags, sorted
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

// matches says the same as [nostr.Filter.Matches], and takes no longer for what names much and is named much.
func (p *liveEvent) matches(l liveFilter) bool {
	e := p.event
	return hasOrNil(l.kinds, e.Kind) && hasOrNil(l.authors, e.PubKey) && hasOrNil(l.ids, e.ID) &&
		(l.since == nil || e.CreatedAt >= *l.since) && (l.until == nil || e.CreatedAt <= *l.until) &&
		!slices.ContainsFunc(l.tags, func(n tagValues) bool { return !intersects(n.values, p.values[n.tag]) })
}

// has reports whether a sorted list has a value; nil is no condition.
func hasOrNil[E string | int](list []E, v E) bool {
	if list == nil {
		return true
	}
	_, found := slices.BinarySearch(list, v)
	return found
}

// meet reports whether two sorted lists have a value in common.
func intersects(a, b []string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	return slices.ContainsFunc(a, func(v string) bool { return hasOrNil(b, v) })
}
