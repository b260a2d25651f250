package plan

import (
	"cmp"
	"slices"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
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

type request struct {
	filters []nostr.Filter
	size    int
}

type requests []request

// subscriptionChange replaces live subscriptions of a relay by others.
type subscriptionChange struct {
	old      []LiveID // that end
	reqs     requests // that open
	tooLarge int      // filters that no request holds
}

// packed puts filters into the fewest requests that the relay accepts.
func packed(l relaylimits.Requests, fs []nostr.Filter) (c subscriptionChange) {
	reqs, sizes, tooLarge := filters.Pack(fs, l.MaxMessage, l.MaxFilters)
	for i := range reqs {
		c.reqs = append(c.reqs, request{reqs[i], sizes[i]})
	}
	c.tooLarge = len(tooLarge)
	return c
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

func (reqs requests) all() (fs []nostr.Filter) {
	for _, one := range reqs {
		fs = append(fs, one.filters...)
	}
	return fs
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

// leastPart is the number of values below which a filter is not divided.
const leastPart = 3

// fill adds a filter to the requests, in parts if necessary, because a hub needs nearly every byte
// that a relay accepts. It returns the parts without room.
func (reqs requests) fill(f nostr.Filter, limits relaylimits.Requests) (left []nostr.Filter) {
	size, room := filters.Size(f)+1, 0
	for i := range reqs {
		one := &reqs[i]
		if len(one.filters) == limits.MaxFilters {
			continue
		}
		if one.size+size <= limits.MaxMessage {
			one.filters, one.size = append(one.filters, f), one.size+size
			return nil
		}
		room = max(room, limits.MaxMessage-one.size)
	}
	list, n := filters.Longest(f, false)
	if n < 2*leastPart || room < filters.Size(filters.Part(f, list, 0, leastPart)) {
		return []nostr.Filter{f}
	}
	left = reqs.fill(filters.Part(f, list, 0, n/2), limits)
	return append(left, reqs.fill(filters.Part(f, list, n/2, n), limits)...)
}

// filterRole identifies filters of one purpose by tag and kinds.
type filterRole struct {
	tag      string
	deletion bool
}

func roleOf(f nostr.Filter) (r filterRole) {
	for r.tag = range f.Tags {
	}
	r.deletion = len(f.Kinds) == 1 && f.Kinds[0] == graspsync.KindDeletion
	return r
}

func (r filterRole) compare(other filterRole) int {
	order := [...]filterRole{{tag: "a"}, {tag: "A"}, {tag: "q"}, {tag: "a", deletion: true}, {tag: "e"}, {tag: "E"}}
	return cmp.Compare(slices.Index(order[:], r), slices.Index(order[:], other))
}

// fits reports whether there are enough subscriptions and bytes after the change, overlaps also
// while old and new subscriptions are both open.
func (c subscriptionChange) fits(r *relayState, room int) bool {
	size := r.live.size()
	for _, id := range c.old {
		size -= r.live.subs[id].size
	}
	return len(r.live.subs)-len(c.old)+len(c.reqs) <= room && r.limits.Retains(size+c.reqs.size())
}

func (c subscriptionChange) overlaps(r *relayState) bool {
	return len(c.old) == 0 || len(r.live.subs)+len(c.reqs) <= r.liveRoom()+r.limits.Lent() &&
		r.limits.Retains(r.live.size()+c.reqs.size())
}
