package standing

import (
	"slices"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// Tags are the values of an event's one-letter tags. [TagsOf] makes them once for comparisons with
// many filters.
type Tags struct {
	values []value          // by letter, sorted, without duplicates
	from   [letters + 1]int // index of the first value of each letter
}

// value is a value of a tag.
type value struct {
	text string
	id   graspsync.EventID // valid if isID
	isID bool
}

// TagsOf returns the Tags of an event.
func TagsOf(ev *nostr.Event) *Tags {
	var by [letters][]string
	for _, tag := range ev.Tags {
		if len(tag) > 1 {
			if l := letter(tag[0]); l >= 0 {
				by[l] = append(by[l], tag[1])
			}
		}
	}
	t := &Tags{values: make([]value, 0, len(ev.Tags))}
	for l, texts := range by {
		slices.Sort(texts)
		for _, text := range slices.Compact(texts) { // strangers may repeat a value any number of times
			v := value{text: text}
			v.id, v.isID = parse(text)
			t.values = append(t.values, v)
		}
		t.from[l+1] = len(t.values)
	}
	return t
}

// of returns the values of a tag.
func (t *Tags) of(tag string) []value {
	l := letter(tag)
	if l < 0 {
		return nil
	}
	return t.values[t.from[l]:t.from[l+1]]
}

// letters is the number of one-letter tags.
const letters = 2 * 26

// letter returns the index of a one-letter tag, -1 for other tags.
func letter(tag string) int {
	switch {
	case len(tag) != 1:
	case tag[0] >= 'a' && tag[0] <= 'z':
		return int(tag[0] - 'a')
	case tag[0] >= 'A' && tag[0] <= 'Z':
		return 26 + int(tag[0]-'A')
	}
	return -1
}

// parse returns the id of a text of 64 lower-case hex digits.
func parse(text string) (id graspsync.EventID, ok bool) {
	if len(text) != digits {
		return id, false
	}
	for i := range len(text) {
		c := text[i]
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		default:
			return graspsync.EventID{}, false
		}
		id[i/2] = id[i/2]<<4 | c
	}
	return id, true
}

// digits is the length of an id in hex.
const digits = 2 * len(graspsync.EventID{})
