package eventstoreadapter

import (
	"cmp"
	"math"
	"slices"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backendcaps"
)

const (
	// maxValues is the length of a list by which a query filters events after the look-up.
	maxValues = 256
	// maxProducts is in combinations of authors and kinds. Above it only authors are looked up.
	maxProducts = 1000
)

// plan returns the ids of a filter, or queries without time bounds that find at least its events. Each is
// one look-up, because badger and lmdb omit events of several and sometimes crash.
func plan(f nostr.Filter, p backendcaps.Caps, client bool) (ids []string, queries []nostr.Filter) {
	if f.IDs != nil {
		return clean(f.IDs, isID), nil
	}
	if f.Since != nil && f.Until != nil && *f.Since > *f.Until || f.Until != nil && *f.Until < 0 || f.Since != nil && *f.Since > latest {
		return nil, nil
	}
	q := nostr.Filter{
		Kinds: clean(f.Kinds, func(k int) bool { return 0 <= k && k <= math.MaxUint16 }), Authors: clean(f.Authors, isID),
		Tags: make(nostr.TagMap),
	}
	if f.Kinds != nil && len(q.Kinds) == 0 || f.Authors != nil && len(q.Authors) == 0 {
		return nil, nil
	}
	for name, values := range f.Tags {
		if values == nil {
			continue
		}
		if len(values) == 0 || name == "" { // badger and lmdb crash on tags without a name
			return nil, nil
		}
		// one value without index rules out the index
		if all := clean(values, nil); !slices.ContainsFunc(all, func(v string) bool { return !p.Indexed(name, v) }) {
			q.Tags[name] = all
		}
	}
	if p.Memory {
		return nil, []nostr.Filter{short(q)}
	}
	return nil, lookUps(q, client)
}

func short(q nostr.Filter) nostr.Filter {
	if len(q.Kinds) > maxValues {
		q.Kinds = nil
	}
	if len(q.Authors) > maxValues {
		q.Authors = nil
	}
	for name, values := range q.Tags {
		if len(values) > maxValues {
			delete(q.Tags, name)
		}
	}
	return q
}

// lookUps returns a query for each value of the most selective tag, or of authors and kinds. Queries of
// clients omit the other conditions, because a backend may read any number of events to check them.
func lookUps(q nostr.Filter, client bool) (queries []nostr.Filter) {
	best := bestOf(q.Tags)
	if best == "" || len(q.Authors) > 0 && !isNarrow(best) || client && isBroad(best, q) {
		if len(q.Authors)*len(q.Kinds) > maxProducts {
			q.Kinds = nil
		}
		for _, author := range each(q.Authors) {
			for _, kind := range each(q.Kinds) {
				queries = append(queries, nostr.Filter{Authors: author, Kinds: kind})
			}
		}
		return queries
	}
	var rest nostr.Filter
	if !client && isNarrow(best) {
		rest = short(nostr.Filter{Authors: q.Authors, Kinds: q.Kinds})
	}
	for _, v := range q.Tags[best] {
		queries = append(queries, nostr.Filter{Authors: rest.Authors, Kinds: rest.Kinds, Tags: nostr.TagMap{best: {v}}})
	}
	return queries
}

func each[T any](list []T) [][]T {
	if len(list) == 0 {
		return [][]T{nil}
	}
	return slices.Collect(slices.Chunk(list, 1))
}

func isBroad(tag string, q nostr.Filter) bool {
	return len(q.Authors) > 0 && (tag == "d" || selectivity(tag) < 2) || // an author has fewer events than a d tag
		len(q.Kinds) > 0 && (tag == "K" || tag == "k") // nearly all events with a kind have such a tag
}

func bestOf(tags nostr.TagMap) (best string) {
	for name := range tags {
		if best == "" || cmp.Or(cmp.Compare(selectivity(name), selectivity(best)), cmp.Compare(best, name)) > 0 {
			best = name
		}
	}
	return best
}

// selectivity is higher for tags with fewer events per value, and negative for tags that are looked up
// after authors and kinds.
func selectivity(name string) int {
	switch name {
	case "e", "E", "q":
		return 3
	case "a", "A", "d":
		return 2
	case "i", "I", "g", "r", "h", "l", "k", "K":
		return 1
	case "t":
		return 0
	}
	return -1
}

func isNarrow(name string) bool { return selectivity(name) >= 0 }

// clean sorts, and removes duplicates and values that are not ok.
func clean[T int | string](list []T, ok func(T) bool) []T {
	c := slices.Clone(list)
	slices.Sort(c)
	c = slices.Compact(c)
	if ok == nil {
		return c
	}
	return slices.DeleteFunc(c, func(v T) bool { return !ok(v) })
}

func isID(s string) bool {
	_, err := graspsync.ParseEventID(s)
	return err == nil
}
