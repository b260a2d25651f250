package plan

import (
	"slices"
	"sort"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
)

// fit returns a filter as the relay takes it, as several if need be.
func fit(l relaylimits.Requests, f nostr.Filter) []nostr.Filter {
	if l.NeedsKinds && f.Kinds == nil {
		f = filters.WithKinds(f)
	}
	return filters.AtMost(f, l.MaxValues)
}

// filtersFor is how many filters so many items of each kind need besides layer 1.
func filtersFor(l relaylimits.Requests, ofKind [itemKinds]int) int {
	size, times := filters.MaxValues, 1
	if n := l.MaxValues; n > 0 {
		size = min(size, n)
		if l.NeedsKinds {
			times = (len(filters.RelatedKinds()) + n - 1) / n
		}
	}
	chunks := func(n int) int { return (n + size - 1) / size }
	states, repos, roots := ofKind[itemStates], ofKind[itemRepo], ofKind[itemRoot]
	return chunks(states) + chunks(2*repos) + times*(3*chunks(repos)+3*chunks(roots))
}

// requestSize is how many bytes a request has.
func requestSize(fs []nostr.Filter) int {
	n := filters.RequestOverhead
	for _, f := range fs {
		n += filters.Size(f) + 1
	}
	return n
}

// request is what one request asks for, and how many bytes that takes: it is measured once,
// since whether there is room for it is asked again and again.
type request struct {
	filters []nostr.Filter
	size    int
}

type requests []request

// packed packs filters into requests that the relay takes, and returns how many are too large
// for that.
func packed(l relaylimits.Requests, fs []nostr.Filter) (requests, int) {
	reqs, sizes, tooLarge := filters.PackSized(fs, l.MaxMessage, l.MaxFilters)
	out := make(requests, len(reqs))
	for i := range reqs {
		out[i] = request{reqs[i], sizes[i]}
	}
	return out, len(tooLarge)
}

// measured measures requests.
func measured(reqs [][]nostr.Filter) requests {
	out := make(requests, len(reqs))
	for i := range reqs {
		out[i] = request{reqs[i], requestSize(reqs[i])}
	}
	return out
}

// size is how many bytes requests take together.
func (reqs requests) size() (n int) {
	for i := range reqs {
		n += reqs[i].size
	}
	return n
}

// filters counts the filters of requests.
func (reqs requests) filters() (n int) {
	for i := range reqs {
		n += len(reqs[i].filters)
	}
	return n
}

func sizeOfSubs(subs map[LiveID]*liveSub) (n int) {
	for _, s := range subs {
		n += s.size
	}
	return n
}

// within splits requests into those for which there is room, in number and in bytes, and
// the rest. With 0 bytes any number of them fits. The last one that fits is cut.
func within(reqs requests, most, size int) (fit, left requests) {
	if size == 0 {
		n := min(most, len(reqs))
		return reqs[:n], reqs[n:]
	}
	for i, one := range reqs {
		if i < most && one.size <= size {
			fit, size = append(fit, one), size-one.size
			continue
		}
		left = reqs[i:]
		if i == most {
			return fit, left
		}
		head, tail := cutRequest(one.filters, size-filters.RequestOverhead)
		if len(head) > 0 {
			fit = append(fit, measured([][]nostr.Filter{head})...)
			left = append(measured([][]nostr.Filter{tail}), left[1:]...)
		}
		return fit, left
	}
	return fit, nil
}

// cutRequest splits filters so that those of the first part take at most size bytes.
func cutRequest(fs []nostr.Filter, size int) (head, tail []nostr.Filter) {
	for i, f := range fs {
		first, rest, ok := cut(f, size-1)
		if !ok {
			return head, append(tail, fs[i:]...)
		}
		head, size = append(head, first), size-filters.Size(first)-1
		if len(rest.Tags) > 0 {
			return head, append([]nostr.Filter{rest}, fs[i+1:]...)
		}
	}
	return head, tail
}

// squeeze fills up the first most requests with what is in the others, cut to the
// room that is left there. A hub needs nearly every byte that a relay takes.
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
