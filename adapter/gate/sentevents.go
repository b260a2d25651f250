package gate

import (
	"bytes"
	"slices"
)

const (
	// maxStored is the maximum number of stored events per answer that are remembered until EOSE,
	// about 30 bytes each. More may be sent twice.
	maxStored = 10_000
	// maxLast is the number of remembered published events. khatru writes one event once for each
	// matching filter, and few others in between.
	maxLast = 16
	// maxFirst is the number of stored events that are remembered after EOSE. An event that is
	// stored and published during the query is among the newest, which come first.
	maxFirst = 64
)

// digest is the first half of an event's id in hex. Nobody can find two ids with the same digest.
type digest [32]byte

// sentEvents is the events that a subscription has got. khatru queries each filter separately, and
// finds events that are published meanwhile. Clients expect each event once, because they count the
// events of a page.
type sentEvents struct {
	stored map[digest]struct{} // nil after EOSE
	first  []digest
	last   [maxLast]digest
	next   int // index of the oldest one in last
}

func newSentEvents() *sentEvents { return &sentEvents{stored: make(map[digest]struct{})} }

// digestOf returns the digest of an event as written by the relay.
func digestOf(event []byte) (d digest, found bool) {
	// Inside a JSON string the quotes would be escaped.
	_, id, found := bytes.Cut(event, []byte(`"id":"`))
	if !found || len(id) < len(d) {
		return d, false
	}
	return digest(id[:len(d)]), true
}

// isRepeated records an event and reports whether it was sent before.
func (t *sentEvents) isRepeated(d digest) bool {
	if t == nil {
		return false
	}
	if _, stored := t.stored[d]; stored {
		return true
	}
	if slices.Contains(t.last[:], d) || slices.Contains(t.first, d) {
		return true
	}
	t.last[t.next] = d
	t.next = (t.next + 1) % maxLast
	if t.stored != nil && len(t.stored) < maxStored {
		t.stored[d] = struct{}{}
		if len(t.first) < maxFirst {
			t.first = append(t.first, d)
		}
	}
	return false
}

// endStored forgets most stored events at EOSE.
func (t *sentEvents) endStored() {
	if t != nil {
		t.stored = nil
	}
}
