package plan

import (
	"slices"
	"sort"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
)

// fit returns a filter in the form that the relay accepts, split if necessary.
func fit(l relaylimits.Requests, f nostr.Filter) []nostr.Filter {
	if l.NeedsKinds && f.Kinds == nil {
		f = filters.WithKinds(f)
	}
	return filters.AtMost(f, l.MaxValues)
}

// filtersFor returns the number of filters for items, without layer 1.
func filtersFor(l relaylimits.Requests, ofKind [itemKinds]int) int {
	size, times := filters.MaxValues, 1
	if n := l.MaxValues; n > 0 {
		size = min(size, n)
		if l.NeedsKinds {
			times = (len(filters.RelatedKinds()) + n - 1) / n
		}
	}
	chunks := func(n int) int { return (n + size - 1) / size }
	states, repos, roots, threads := ofKind[itemStates], ofKind[itemRepo], ofKind[itemRoot], ofKind[itemDescendant]
	return chunks(states) + chunks(2*repos) + times*3*(chunks(repos)+chunks(roots)+chunks(threads))
}

func requestSize(fs []nostr.Filter) int {
	n := filters.RequestOverhead
	for _, f := range fs {
		n += filters.Size(f) + 1
	}
	return n
}

type request struct {
	filters []nostr.Filter
	size    int
}

type requests []request

// packed packs filters into requests that the relay accepts. It returns the number of filters that
// are too large.
func packed(l relaylimits.Requests, fs []nostr.Filter) (requests, int) {
	reqs, sizes, tooLarge := filters.Pack(fs, l.MaxMessage, l.MaxFilters)
	out := make(requests, len(reqs))
	for i := range reqs {
		out[i] = request{reqs[i], sizes[i]}
	}
	return out, len(tooLarge)
}

func measured(reqs [][]nostr.Filter) requests {
	out := make(requests, len(reqs))
	for i := range reqs {
		out[i] = request{reqs[i], requestSize(reqs[i])}
	}
	return out
}

func (reqs requests) size() (n int) {
	for i := range reqs {
		n += reqs[i].size
	}
	return n
}

func (reqs requests) filters() (n int) {
	for i := range reqs {
		n += len(reqs[i].filters)
	}
	return n
}

// within splits requests into those that fit and the rest. A size of 0 means no limit.
func within(reqs requests, most, size int) (fit, left requests) {
	n, used := 0, 0
	for n < min(most, len(reqs)) && (size == 0 || used+reqs[n].size <= size) {
		used += reqs[n].size
		n++
	}
	return reqs[:n], reqs[n:]
}

// squeeze moves filters of later requests into the free space of the first ones, because a hub
// needs nearly every byte that a relay accepts.
func squeeze(reqs requests, most int, limits relaylimits.Requests) requests {
	if len(reqs) <= most {
		return reqs
	}
	var left []nostr.Filter
	for _, one := range reqs[most:] {
		left = append(left, one.filters...)
	}
	reqs = reqs[:most]
	for i := range reqs {
		one := &reqs[i]
		for len(left) > 0 && len(one.filters) < limits.MaxFilters {
			head, tail, ok := cut(left[0], limits.MaxMessage-one.size-1)
			if !ok {
				break
			}
			one.filters = append(one.filters, head)
			one.size += filters.Size(head) + 1
			if len(tail.Tags) == 0 {
				left = left[1:]
			} else {
				left[0] = tail
			}
		}
	}
	return append(reqs, measured(slices.Collect(slices.Chunk(left, max(1, limits.MaxFilters))))...)
}

const leastCut = 10

// cut splits a filter so that the first part has at most size bytes. tail has no tags if all values
// fit.
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
