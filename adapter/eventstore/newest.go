package eventstoreadapter

import (
	"cmp"
	"slices"

	"github.com/nbd-wtf/go-nostr"
)

// newest keeps the newest added events, up to a number and a size.
type newest struct {
	most, room int
	events     []*nostr.Event // in the order of NIP-01
	bytes      int
	cut        bool // an event had no room, so older events have no room either
}

func (n *newest) add(e *nostr.Event) {
	at, _ := slices.BinarySearchFunc(n.events, e, order)
	if n.most <= 0 || n.full() && at == len(n.events) {
		n.cut = true
		return
	}
	n.events = slices.Insert(n.events, at, e)
	n.bytes += bytesOf(e)
	for len(n.events) > n.most || n.bytes > n.room && len(n.events) > 1 {
		last := len(n.events) - 1
		n.cut = true
		n.bytes -= bytesOf(n.events[last])
		n.events = slices.Delete(n.events, last, last+1)
	}
}

func (n *newest) full() bool { return len(n.events) > 0 && (n.cut || len(n.events) == n.most) }

func (n *newest) oldest() nostr.Timestamp { return n.events[len(n.events)-1].CreatedAt }

func (n *newest) past(t nostr.Timestamp) bool { return n != nil && n.full() && t < n.oldest() }

func order(a, b *nostr.Event) int {
	return cmp.Or(cmp.Compare(b.CreatedAt, a.CreatedAt), cmp.Compare(a.ID, b.ID))
}

func size(events []*nostr.Event) (bytes int64) {
	for _, e := range events {
		bytes += int64(bytesOf(e))
	}
	return bytes
}

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
