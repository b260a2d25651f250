package absent

import (
	"hash/maphash"
	"maps"
	"slices"

	"github.com/nbd-wtf/go-nostr"
)

// words finds whole events by what they tag: there are thousands, and each reconciliation asks
// for those of some repositories. It keeps no text of them, so that two words may be taken
// for one: who finds events here looks at them.
type words struct {
	seed  maphash.Seed
	first map[uint64]*word
	wordy map[*Whole]struct{} // those with more than maxWords
}

// maxWords is of how many things an event may be found by. It takes 70 bytes for each, and time in
// which all else waits; one that tags more is looked at each time.
const maxWords = 16

// word is one thing that one event tags, in the ring of all that tag it.
type word struct {
	key        uint64
	prev, next *word
	of         *Whole
}

func newWords() words {
	return words{seed: maphash.MakeSeed(), first: make(map[uint64]*word), wordy: make(map[*Whole]struct{})}
}

// key is that of a tag. Filters can name those whose name is one letter.
func (x *words) key(name, value string) uint64 {
	return maphash.String(x.seed, value) ^ uint64(name[0])
}

// ofTags returns the keys of tags, each once.
func (x *words) ofTags(tags nostr.Tags) []uint64 {
	var keys []uint64
	for _, tag := range tags {
		if len(tag) >= 2 && len(tag[0]) == 1 {
			keys = append(keys, x.key(tag[0], tag[1]))
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys)
}

// ofFilter returns the keys of events that match a filter: each has one of them. ok is false
// if nothing that can be looked up tells them from others.
func (x *words) ofFilter(f nostr.Filter) (keys []uint64, ok bool) {
	for name, values := range f.Tags {
		if len(name) != 1 || ok && len(values) >= len(keys) {
			continue
		}
		keys, ok = keys[:0], true
		for _, v := range values {
			keys = append(keys, x.key(name, v))
		}
	}
	slices.Sort(keys)
	return slices.Compact(keys), ok
}

// add has an event found by these keys.
func (x *words) add(w *Whole, keys []uint64) {
	if len(keys) > maxWords {
		x.wordy[w] = struct{}{}
		return
	}
	w.words = make([]word, len(keys))
	for i, k := range keys {
		at := &w.words[i]
		*at = word{key: k, of: w}
		if first := x.first[k]; first != nil {
			at.prev, at.next = first.prev, first
			first.prev.next, first.prev = at, at
		} else {
			at.prev, at.next = at, at
			x.first[k] = at
		}
	}
}

// remove has an event found no more.
func (x *words) remove(w *Whole) {
	delete(x.wordy, w)
	for i := range w.words {
		at := &w.words[i]
		switch {
		case at.next == at:
			delete(x.first, at.key)
		case x.first[at.key] == at:
			x.first[at.key] = at.next
		}
		at.prev.next, at.next.prev = at.next, at.prev
	}
	w.words = nil
}

// with returns the events that have one of the keys, each once, and those that may have.
func (x *words) with(keys []uint64) (found []*Whole) {
	found = slices.Collect(maps.Keys(x.wordy))
	seen := make(map[*Whole]struct{})
	for _, k := range keys {
		first := x.first[k]
		for at := first; at != nil; {
			if _, twice := seen[at.of]; !twice {
				seen[at.of] = struct{}{}
				found = append(found, at.of)
			}
			if at = at.next; at == first {
				break
			}
		}
	}
	return found
}
