package memstore

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// index maps a value to its entries in order of insertion.
type index[K comparable] map[K][]*entry

func (x index[K]) add(key K, e *entry) {
	list := x[key]
	if len(list) > 0 && list[len(list)-1] == e {
		return // two equal tags
	}
	x[key] = append(list, e)
}

// remove removes an entry. It drops empty lists and shrinks sparse ones, so that the index does not
// outgrow the events.
func (x index[K]) remove(key K, e *entry) {
	list := x[key]
	i, ok := slices.BinarySearchFunc(list, e.number, func(e *entry, number uint64) int { return cmp.Compare(e.number, number) })
	if !ok {
		return
	}
	switch list = slices.Delete(list, i, i+1); {
	case len(list) == 0:
		delete(x, key)
	case len(list) < cap(list)/4:
		x[key] = slices.Clone(list)
	default:
		x[key] = list
	}
}

// candidates are entries with any of some values. An entry with two of the values is yielded twice.
type candidates struct {
	size int
	once bool // no entry is yielded twice
	all  func(yield func(*entry) bool)
}

// lookUp returns the entries with any of keys. single reports that an entry has at most one key in
// x.
func lookUp[K comparable](x index[K], keys []K, single bool) candidates {
	size := 0
	for i, k := range keys {
		size += len(x[k])
		single = single && i < fewKeys && !slices.Contains(keys[:i], k)
	}
	return candidates{size, single || len(keys) == 1, func(yield func(*entry) bool) {
		for _, k := range keys {
			for _, e := range x[k] {
				if !yield(e) {
					return
				}
			}
		}
	}}
}

// fewKeys is the maximum number of keys that lookUp compares to find duplicates.
const fewKeys = 32

// narrowest returns the shortest list that contains every match. The caller holds mu for reading.
func (s *Store) narrowest(f nostr.Filter) candidates {
	best := candidates{len(s.events), true, maps.Values(s.events)}
	consider := func(c candidates) {
		if c.size < best.size {
			best = c
		}
	}
	if f.IDs != nil {
		consider(s.lookUpIDs(f.IDs))
	}
	if f.Authors != nil {
		consider(lookUp(s.authors, parsed(f.Authors, graspsync.ParsePubKey), false))
	}
	if f.Kinds != nil {
		consider(lookUp(s.kinds, f.Kinds, true))
	}
	for name, values := range f.Tags {
		keys := make([]tag, len(values))
		for i, v := range values {
			keys[i] = tag{name, v}
		}
		if values != nil && indexed(name) {
			consider(lookUp(s.tags, keys, false))
		}
	}
	return best
}

// indexed reports whether tags with this name are indexed: names of one letter, which filters can
// ask for (NIP-01).
func indexed(name string) bool { return len(name) == 1 }

func (s *Store) lookUpIDs(ids []string) candidates {
	var found []*entry
	for _, id := range parsed(ids, graspsync.ParseEventID) {
		if e := s.events[id]; e != nil {
			found = append(found, e)
		}
	}
	return candidates{len(found), false, slices.Values(found)}
}

func parsed[K any](texts []string, parse func(string) (K, error)) []K {
	out := make([]K, 0, len(texts))
	for _, text := range texts {
		if v, err := parse(text); err == nil {
			out = append(out, v)
		}
	}
	return out
}

// matches yields each matching entry, or an error as the last pair. It does not hold the lock while
// it yields.
func (s *Store) matches(ctx context.Context, f nostr.Filter) iter.Seq2[*entry, error] {
	return func(yield func(*entry, error) bool) {
		found, err := s.collect(ctx, f)
		for i, e := range found {
			if i%checkEvery == 0 && ctx.Err() != nil {
				err = fmt.Errorf("reading events: %w", ctx.Err())
				break
			}
			if !yield(e, nil) {
				return
			}
		}
		if err != nil {
			yield(nil, err)
		}
	}
}

func (s *Store) collect(ctx context.Context, f nostr.Filter) ([]*entry, error) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("reading events: %w", err)
	}
	wanted := compile(f)
	source := s.narrowest(f)
	var found []*entry
	seen := make(map[graspsync.EventID]struct{})
	for e := range source.all {
		if !wanted.match(e.event) {
			continue
		}
		if !source.once {
			if _, ok := seen[e.stamp.ID]; ok {
				continue
			}
			seen[e.stamp.ID] = struct{}{}
		}
		found = append(found, e)
	}
	return found, nil
}

// matcher is a filter with sets. A nil set is no condition, and nothing meets an empty set, as in
// [nostr.Filter.Matches].
type matcher struct {
	ids          map[graspsync.EventID]struct{}
	authors      map[graspsync.PubKey]struct{}
	kinds        map[int]struct{}
	tags         map[string]map[string]struct{}
	since, until *nostr.Timestamp
}

func compile(f nostr.Filter) matcher {
	m := matcher{
		kinds: set(f.Kinds),
		tags:  make(map[string]map[string]struct{}, len(f.Tags)),
		since: f.Since, until: f.Until,
	}
	if f.IDs != nil {
		m.ids = set(parsed(f.IDs, graspsync.ParseEventID))
	}
	if f.Authors != nil {
		m.authors = set(parsed(f.Authors, graspsync.ParsePubKey))
	}
	for name, values := range f.Tags {
		if values != nil {
			m.tags[name] = set(values)
		}
	}
	return m
}

func set[K comparable](keys []K) map[K]struct{} {
	if keys == nil {
		return nil
	}
	s := make(map[K]struct{}, len(keys))
	for _, k := range keys {
		s[k] = struct{}{}
	}
	return s
}

func (m matcher) match(e graspsync.Event) bool {
	if m.since != nil && e.CreatedAt < *m.since || m.until != nil && e.CreatedAt > *m.until {
		return false
	}
	if !allows(m.ids, e.ID) || !allows(m.authors, e.PubKey) || !allows(m.kinds, e.Kind) {
		return false
	}
	for name, values := range m.tags {
		if !slices.ContainsFunc(e.Tags, func(t nostr.Tag) bool {
			return len(t) >= 2 && t[0] == name && allows(values, t[1])
		}) {
			return false
		}
	}
	return true
}

func allows[K comparable](s map[K]struct{}, key K) bool {
	if s == nil {
		return true
	}
	_, ok := s[key]
	return ok
}
