package nostrlib_test

import (
	"strings"
	"testing"

	"fiatjaf.com/nostr"
	gonostr "github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/adapter/nostrlib"
)

func TestFilters(t *testing.T) {
	theirs := nostr.Filter{
		IDs: []nostr.ID{{1}, {2}}, Kinds: []nostr.Kind{1, 30617}, Authors: []nostr.PubKey{{3}},
		Tags: nostr.TagMap{"a": {"30617:x:y"}, "d": {""}}, Since: 5, Until: 9, Limit: 7, Search: "x",
	}
	ours := nostrlib.FromFilter(theirs)
	require.Equal(t, "01"+strings.Repeat("0", 62), ours.IDs[0])
	require.Equal(t, gonostr.Timestamp(9), *ours.Until)
	back, ok := nostrlib.ToFilter(ours)
	require.True(t, ok)
	require.Equal(t, theirs, back)

	ours = nostrlib.FromFilter(nostr.Filter{LimitZero: true})
	require.Equal(t, gonostr.Filter{LimitZero: true}, ours)
	back, ok = nostrlib.ToFilter(ours)
	require.True(t, ok)
	require.Equal(t, nostr.Filter{LimitZero: true}, back)
}

// A filter that matches nothing must not become one that matches everything.
func TestFiltersOfNothing(t *testing.T) {
	at := func(n gonostr.Timestamp) *gonostr.Timestamp { return &n }
	id := strings.Repeat("a1", 32)
	for name, f := range map[string]gonostr.Filter{
		"no ids":         {IDs: []string{}},
		"no authors":     {Authors: []string{}},
		"no kinds":       {Kinds: []int{}},
		"no tags":        {Tags: gonostr.TagMap{"a": {}}},
		"malformed ids":  {IDs: []string{"x", strings.ToUpper(id)}},
		"too large":      {Kinds: []int{-1, 65536}},
		"before all":     {Until: at(-1)},
		"the first time": {Until: at(0)},
	} {
		_, ok := nostrlib.ToFilter(f)
		require.False(t, ok, name)
	}
	f, ok := nostrlib.ToFilter(gonostr.Filter{IDs: []string{"x", id}, Kinds: []int{65536, 5}, Since: at(-5), Until: at(1)})
	require.True(t, ok)
	require.Equal(t, nostr.Filter{IDs: []nostr.ID{nostr.MustIDFromHex(id)}, Kinds: []nostr.Kind{5}, Until: 1}, f)
}
