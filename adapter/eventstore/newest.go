package eventstoreadapter

import (
	"cmp"
	"container/heap"
	"slices"

	"github.com/nbd-wtf/go-nostr"
)

// newest keeps the newest of the events that it is told, in the order of NIP-01: so many at most, and no more than so
// many bytes unless it is one. Owned by one question.
type newest struct {
	most, room int
	events     byAge
	bytes      int
	cut        bool // something had no room: nothing that is older than the others has any
}

// add keeps an event if it is among the newest. No event is added twice.
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

// full reports whether only what is newer than the oldest of the events may have room.
func (n *newest) full() bool { return len(n.events) > 0 && (n.cut || len(n.events) == n.most) }

// past reports whether nothing of a time, or older, has room. It is false for nil.
func (n *newest) past(t nostr.Timestamp) bool {
	return n != nil && n.full() && t < n.events[0].CreatedAt
}

// sorted returns the events, the newest first.
func (n *newest) sorted() []*nostr.Event {
	return slices.SortedFunc(slices.Values(n.events), order)
}

// order is that of answers: the newest first, and of one second the lowest id.
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

// size is about how many bytes events take.
func size(events []*nostr.Event) (bytes int64) {
	for _, e := range events {
		bytes += int64(bytesOf(e))
	}
	return bytes
}

// bytesOf is about how many bytes an event takes.
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
