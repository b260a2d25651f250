package eventstoreadapter

import (
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"
)

// A client's question is looked up by what has fewest events, and by one index.
func TestWhatIsLookedUp(t *testing.T) {
	authors, kinds := []string{"a"}, []int{1111}
	tags := func(names ...string) nostr.TagMap {
		out := make(nostr.TagMap)
		for _, name := range names {
			out[name] = []string{"x"}
		}
		return out
	}
	for name, c := range map[string]struct{ asked, by nostr.Filter }{
		"nothing":                     {nostr.Filter{}, nostr.Filter{}},
		"an author's kinds":           {nostr.Filter{Authors: authors, Kinds: kinds}, nostr.Filter{Authors: authors, Kinds: kinds}},
		"comments of a root":          {nostr.Filter{Kinds: kinds, Tags: tags("E")}, nostr.Filter{Tags: tags("E")}},
		"of an author":                {nostr.Filter{Authors: authors, Tags: tags("E")}, nostr.Filter{Tags: tags("E")}},
		"an address":                  {nostr.Filter{Authors: authors, Kinds: kinds, Tags: tags("d")}, nostr.Filter{Authors: authors, Kinds: kinds}},
		"a name":                      {nostr.Filter{Kinds: kinds, Tags: tags("d")}, nostr.Filter{Tags: tags("d")}},
		"an author's about a kind":    {nostr.Filter{Authors: authors, Kinds: kinds, Tags: tags("K")}, nostr.Filter{Authors: authors, Kinds: kinds}},
		"kinds about a kind":          {nostr.Filter{Kinds: kinds, Tags: tags("K")}, nostr.Filter{Kinds: kinds}},
		"about a kind":                {nostr.Filter{Tags: tags("k")}, nostr.Filter{Tags: tags("k")}},
		"to somebody":                 {nostr.Filter{Kinds: kinds, Tags: tags("p")}, nostr.Filter{Tags: tags("p")}},
		"an author's to somebody":     {nostr.Filter{Authors: authors, Tags: tags("p")}, nostr.Filter{Authors: authors}},
		"two tags":                    {nostr.Filter{Tags: tags("a", "p")}, nostr.Filter{Tags: tags("a")}},
		"a label of an author's":      {nostr.Filter{Authors: authors, Tags: tags("t")}, nostr.Filter{Authors: authors}},
		"about a repository, and two": {nostr.Filter{Authors: authors, Tags: tags("a", "t")}, nostr.Filter{Tags: tags("a")}},
	} {
		require.Equal(t, []nostr.Filter{c.by}, lookUps(c.asked, true), name)
	}
}
