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
	"github.com/graspsync/graspsync/filters"
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
	all  iter.Seq[*entry]
}

// lookUp returns the entries with any of keys. single reports that an entry has one key in x.
func lookUp[K comparable](x index[K], keys []K, single bool) candidates {
	c := candidates{once: single || len(keys) == 1}
	for _, k := range keys {
		c.size += len(x[k])
	}
	c.all = func(yield func(*entry) bool) {
		for _, k := range keys {
			for _, e := range x[k] {
				if !yield(e) {
					return
				}
			}
		}
	}
	return c
}

// narrowest returns the shortest list that contains every match. The caller holds mu for reading.
func (s *Store) narrowest(f nostr.Filter) candidates {
	best := candidates{len(s.events), true, maps.Values(s.events)}
	consider := func(c candidates) {
		if c.size < best.size {
			best = c
		}
	}
	if f.IDs != nil {
		var found []*entry
		for _, id := range distinct(f.IDs, graspsync.ParseEventID) {
			if e := s.events[id]; e != nil {
				found = append(found, e)
			}
		}
		consider(candidates{len(found), true, slices.Values(found)})
	}
	if f.Authors != nil {
		consider(lookUp(s.authors, distinct(f.Authors, graspsync.ParsePubKey), true))
	}
	if f.Kinds != nil {
		consider(lookUp(s.kinds, distinct(f.Kinds, func(k int) (int, error) { return k, nil }), true))
	}
	for name, values := range f.Tags {
		if values != nil && indexed(name) {
			consider(lookUp(s.tags, distinct(values, func(v string) (tag, error) { return tag{name, v}, nil }), false))
		}
	}
	return best
}

// indexed reports whether tags with this name are indexed: names of one letter, which filters can
// ask for (NIP-01).
func indexed(name string) bool { return len(name) == 1 }

// distinct returns the different keys of a list, without invalid ones.
func distinct[V, K comparable](list []V, parse func(V) (K, error)) []K {
	keys := make(map[K]struct{}, len(list))
	for _, v := range list {
		if k, err := parse(v); err == nil {
			keys[k] = struct{}{}
		}
	}
	return slices.Collect(maps.Keys(keys))
}

// read yields a part of each matching event, or an error as the last pair. It does not hold the lock
// while it yields.
func read[T any](ctx context.Context, s *Store, f nostr.Filter, part func(*entry) T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		var none T
		for i, e := range s.collect(f) {
			if i%checkEvery == 0 && ctx.Err() != nil {
				break
			}
			if !yield(part(e), nil) {
				return
			}
		}
		if err := ctx.Err(); err != nil {
			yield(none, fmt.Errorf("reading events: %w", err))
		}
	}
}

func (s *Store) collect(f nostr.Filter) (found []*entry) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	wanted := filters.Compile([]nostr.Filter{f})
	source := s.narrowest(f)
	seen := make(map[*entry]struct{})
	for e := range source.all {
		if !wanted.Match(e.event.Event) {
			continue
		}
		if !source.once {
			if _, ok := seen[e]; ok {
				continue
			}
			seen[e] = struct{}{}
		}
		found = append(found, e)
	}
	return found
}
