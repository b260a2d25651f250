package eventstoreadapter

import (
	"cmp"
	"container/heap"
	"slices"

	"github.com/nbd-wtf/go-nostr"
)

// newest keeps the newest added events in the order of NIP-01, up to a number and a size. It is
// owned by one query.
type newest struct {
	most, room int
	events     byAge
	bytes      int
	cut        bool // an event had no room, so older events have no room either
}

// add keeps an event if it is among the newest. Each event is added once.
func (n *newest) add(e *nostr.Event) {
	if n.most <= 0 || n.full() && order(e, n.events[0]) > 0 {
		n.cut = true
		return
	}
	heap.Push(&n.events, e)
	n.bytes += bytesOf(e)
	for len(n.events) > n.most || n.bytes > n.room && len(n.events) > 1 {
		n.cut = true
		n.bytes -= bytesOf(heap.Pop(&n.events).(*nostr.Event)) //nolint:forcetypeassert // there is nothing else
	}
}

// full reports whether only events newer than the oldest kept event have room.
func (n *newest) full() bool { return len(n.events) > 0 && (n.cut || len(n.events) == n.most) }

// past reports whether no event of this time or older has room. It returns false for nil.
func (n *newest) past(t nostr.Timestamp) bool {
	return n != nil && n.full() && t < n.events[0].CreatedAt
}

// sorted returns the events, the newest first.
func (n *newest) sorted() []*nostr.Event {
	return slices.SortedFunc(slices.Values(n.events), order)
}

// order sorts the newest first, and within a second the lowest id.
func order(a, b *nostr.Event) int {
	return cmp.Or(cmp.Compare(b.CreatedAt, a.CreatedAt), cmp.Compare(a.ID, b.ID))
}

// byAge is a heap with the oldest event on top.
type byAge []*nostr.Event

func (h byAge) Len() int           { return len(h) }
func (h byAge) Less(i, j int) bool { return order(h[i], h[j]) > 0 }
func (h byAge) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *byAge) Push(e any)        { *h = append(*h, e.(*nostr.Event)) } //nolint:forcetypeassert // only add calls it

func (h *byAge) Pop() any {
	last := len(*h) - 1
	e := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return e
}

// size returns the approximate size of events in memory.
func size(events []*nostr.Event) (bytes int64) {
	for _, e := range events {
		bytes += int64(bytesOf(e))
	}
	return bytes
}

// bytesOf returns the approximate size of an event in memory.
func bytesOf(e *nostr.Event) int {
	n := 500 + len(e.Content)
	for _, tag := range e.Tags {
		n += 50
		for _, v := range tag {
			n += 16 + len(v)
		}
	}
	return n
}
