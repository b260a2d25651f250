package nip34

import (
	"strings"
	"testing"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
)

func FuzzTombstones(f *testing.F) {
	f.Add("e\t"+strings.Repeat("0", 64)+"\na\t30617:x:y\nrelay\tALL_RELAYS", 5)
	f.Add("a\t::\n\ne\na", 62)
	f.Fuzz(func(t *testing.T, text string, kind int) {
		stones := NewTombstones(Identity{})
		ev := event(kind, key(1), fuzzTags(text)...)
		stones.Add(eventtest.Of(ev))
		stones.Covers(eventtest.Of(ev))
		ids, coords := DeletionTargets(eventtest.Of(ev))
		if kind != 5 && (len(ids) > 0 || len(coords) > 0) {
			t.Fatal("deletes without being a deletion")
		}
		for _, c := range coords {
			if back, err := graspsync.ParseAddress(c.String()); err != nil || back != c {
				t.Fatalf("%v came back as %v", c, back)
			}
		}
	})
}

// For any tags of a deletion, its addresses are in canonical spelling, and only events of its author
// are covered.
func FuzzDeletion(f *testing.F) {
	one := key(1).String()
	f.Add("30617:"+one+":repo", "a", one)
	f.Add("30617:"+one+":a:b", "a", one)
	f.Add("030617:"+one+":", "a", one)
	f.Add(":", "a", one)
	f.Add("5:"+one+":", "e", one)
	f.Fuzz(func(t *testing.T, value, name, author string) {
		if _, err := graspsync.ParsePubKey(author); err != nil {
			t.Skip("no event has it")
		}
		deletion := &nostr.Event{Kind: 5, PubKey: author, CreatedAt: 10, Tags: nostr.Tags{{name, value}, {name}, {}}}
		_, addresses := DeletionTargets(eventtest.Of(deletion))
		stones := NewTombstones(Identity{})
		stones.Add(eventtest.Of(deletion))
		for _, a := range addresses {
			if a.String() != value || a.Author.String() != author {
				t.Errorf("%q is taken for %q", value, a)
			}
			e := &nostr.Event{Kind: a.Kind, PubKey: author, CreatedAt: 10, Tags: nostr.Tags{{"d", a.Identifier}}}
			if got, ok := eventtest.Of(e).Address(); ok && got == a && !stones.Covers(eventtest.Of(e)) {
				t.Errorf("%q does not cover its own event", value)
			}
			e.PubKey = key(9).String()
			if stones.Covers(eventtest.Of(e)) {
				t.Errorf("%q covers an event of another author", value)
			}
		}
	})
}
