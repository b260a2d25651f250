package filters

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
)

func numbered(prefix string, n int) (out []string) {
	for i := range n {
		out = append(out, fmt.Sprint(prefix, i))
	}
	return out
}

// A filter is split until no list is too long, and matches the same as before.
func TestAtMost(t *testing.T) {
	long := func() nostr.Filter {
		return nostr.Filter{
			IDs: numbered("i", 3), Authors: numbered("p", 5), Kinds: []int{1, 2, 3, 4, 5, 6, 7},
			Tags: nostr.TagMap{"e": numbered("e", 4), "a": numbered("a", 1)},
		}
	}
	f := long()
	require.Equal(t, []nostr.Filter{f}, AtMost(f, 0))
	require.Equal(t, []nostr.Filter{f}, AtMost(f, 7))
	parts := AtMost(f, 2)
	require.Equal(t, long(), f, "it is as it was")
	require.Len(t, parts, 2*3*4*2)
	seen := make(map[string]int)
	for _, p := range parts {
		_, most := Longest(p, true)
		require.LessOrEqual(t, most, 2)
		for _, id := range p.IDs {
			for _, author := range p.Authors {
				for _, kind := range p.Kinds {
					for _, e := range p.Tags["e"] {
						seen[fmt.Sprint(id, author, kind, e, p.Tags["a"])]++
					}
				}
			}
		}
	}
	require.Len(t, seen, 3*5*7*4)
	for combination, times := range seen {
		require.Equal(t, 1, times, combination)
	}
}

func TestLongest(t *testing.T) {
	for _, tt := range []struct {
		filter nostr.Filter
		kinds  bool
		list   string
		size   int
	}{
		{filter: nostr.Filter{}, kinds: true},
		{filter: nostr.Filter{Kinds: []int{1}}},
		{nostr.Filter{Kinds: []int{1}}, true, ListKinds, 1},
		{nostr.Filter{IDs: numbered("i", 2), Authors: numbered("p", 2)}, true, ListAuthors, 2},
		{nostr.Filter{IDs: numbered("i", 2), Tags: nostr.TagMap{"e": numbered("e", 3), "E": numbered("e", 3)}}, true, "E", 3},
	} {
		list, size := Longest(tt.filter, tt.kinds)
		require.Equal(t, tt.list, list)
		require.Equal(t, tt.size, size)
	}
}

// A repository is written as its address, and read back; what is none is refused and
// changes nothing.
func TestRepoRefText(t *testing.T) {
	ref, err := graspsync.ParseRepoRef("30617:" + fmt.Sprintf("%064x", 7) + ":a:b \"c\"")
	require.NoError(t, err)
	text, err := json.Marshal(map[graspsync.RepoRef]graspsync.RepoRef{ref: ref})
	require.NoError(t, err)
	var back map[graspsync.RepoRef]graspsync.RepoRef
	require.NoError(t, json.Unmarshal(text, &back))
	require.Equal(t, map[graspsync.RepoRef]graspsync.RepoRef{ref: ref}, back)
	was := ref
	require.Error(t, ref.UnmarshalText([]byte("30617:x:y")))
	require.Equal(t, was, ref)
}
