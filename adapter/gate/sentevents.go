package gate

import (
	"bytes"
	"slices"
)

const (
	// maxTold is how many stored events are remembered that an answer has had: a REQ of several
	// filters may find so many, and more come twice. Each takes about 30 bytes until EOSE.
	maxStored = 10_000
	// lastTold is how many events are remembered that have just come live: khatru writes one for
	// each filter in a row, but others may be written in between.
	maxLast = 16
	// firstTold is of how many stored events that came first it is known after EOSE: what is stored and published a moment
	// later is among the newest.
	maxFirst = 64
)

// digest is half of an event's id, in hex: nobody finds two events that have the same one.
type digest [32]byte

// told is what a subscription was told of. khatru looks for each filter by itself
// and writes an event for each that it matches, and what is published while it looks may be found as well; clients count on
// having it once, as a page of so many.
type sentEvents struct {
	stored map[digest]struct{} // nil after EOSE
	first  []digest
	last   [maxLast]digest
	next   int // of last
}

func newSentEvents() *sentEvents { return &sentEvents{stored: make(map[digest]struct{})} }

// digestOf is that of an event as the relay has written it.
func digestOf(event []byte) (d digest, found bool) {
	// In a string of JSON there would be a backslash before each of the quotes.
	_, id, found := bytes.Cut(event, []byte(`"id":"`))
	if !found || len(id) < len(d) {
		return d, false
	}
	return digest(id[:len(d)]), true
}

// again reports whether an event was told before.
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

// answered forgets what was stored: from now on events come as they are published.
func (t *sentEvents) endStored() {
	if t != nil {
		t.stored = nil
	}
}
