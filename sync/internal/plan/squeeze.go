package plan

import (
	"slices"
	"sort"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/filters"
)

// requestOverhead is what a REQ takes besides its filters and their commas, with a
// subscription id of 64 bytes.
const requestOverhead = len(`["REQ",""]`) + 64

// squeeze fills up the first most requests with what is in the others, cut to the
// room that is left there. A hub needs nearly every byte that a relay takes.
func squeeze(reqs [][]nostr.Filter, most int, limits Limits) [][]nostr.Filter {
	if len(reqs) <= most {
		return reqs
	}
	left := slices.Concat(reqs[most:]...)
	reqs = reqs[:most]
	for i := range reqs {
		room := limits.MaxMessage - requestOverhead
		for _, f := range reqs[i] {
			room -= filters.Size(f) + 1
		}
		for len(left) > 0 && len(reqs[i]) < limits.MaxFilters {
			head, tail, ok := cut(left[0], room-1)
			if !ok {
				break
			}
			reqs[i] = append(reqs[i], head)
			room -= filters.Size(head) + 1
			if len(tail.Tags) == 0 {
				left = left[1:]
			} else {
				left[0] = tail
			}
		}
	}
	for chunk := range slices.Chunk(left, max(1, limits.MaxFilters)) {
		reqs = append(reqs, chunk)
	}
	return reqs
}

// leastCut is the number of values below which a filter is not worth its place.
const leastCut = 10

// cut splits a filter with one tag so that the first part takes at most size bytes.
// The second has no tags if all fits. It reports false if hardly any value fits.
func cut(f nostr.Filter, size int) (head, tail nostr.Filter, ok bool) {
	if filters.Size(f) <= size {
		return f, nostr.Filter{}, true
	}
	for name, values := range f.Tags {
		first := func(n int) nostr.Filter {
			g := f
			g.Tags = nostr.TagMap{name: values[:n:n]}
			return g
		}
		n := sort.Search(len(values), func(n int) bool { return filters.Size(first(n+1)) > size })
		if len(f.Tags) > 1 || n < leastCut {
			break
		}
		tail = f
		tail.Tags = nostr.TagMap{name: values[n:]}
		return first(n), tail, true
	}
	return nostr.Filter{}, nostr.Filter{}, false
}
