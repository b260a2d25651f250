package filters_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/filters"
)

// request is the REQ as the wire has it, with the longest subscription id.
func request(fs []nostr.Filter) string {
	return `["REQ","` + strings.Repeat("s", 64) + `",` + strings.Join(jsons(fs), ",") + `]`
}

func TestSizeIsExact(t *testing.T) {
	limitZero := nostr.Filter{LimitZero: true}
	for _, f := range []nostr.Filter{
		{}, filters.Layer1(), limitZero,
		{IDs: []string{"a"}}, {IDs: []string{"a", "bb", ""}}, {IDs: []string{}, Kinds: []int{}, Authors: []string{}},
		{Kinds: []int{0, -1, 65535}}, {Authors: []string{"x", "y"}},
		{Since: ts(0), Until: ts(-1)}, {Since: ts(1 << 62)}, {Limit: 500}, {Limit: -3}, {Search: `a "b"`},
		{Tags: nostr.TagMap{"e": nil, "a": {}, "q": {"x"}}}, {Tags: nostr.TagMap{`"`: {"x"}}},
		{Tags: nostr.TagMap{"a": {"\x00\x1f\x7f\t\r\n\b\f\\\"<>&/", "é同\U0001F600", "\u2028\u2029\u2027", "\xff\xc3", "\ufffd", "a\xffb"}}},
	} {
		assert.Equal(t, len(f.String()), filters.Size(f), "%s", f)
	}
	for _, f := range slices.Concat(filters.Repos(repoRefs(250)), filters.Roots(eventIDs(250)), filters.ByID(eventIDs(7), 3)) {
		assert.Equal(t, len(f.String()), filters.Size(f))
		live := filters.Live(f)
		assert.Equal(t, len(live.String()), filters.Size(live))
	}
}

func FuzzSize(f *testing.F) {
	f.Add("abc", "\x00\"\\", int64(5), 7)
	f.Add("\u2028", "\xff\xfe\xf0\x9f\x98", int64(-1), -1)
	f.Fuzz(func(t *testing.T, a, b string, n int64, k int) {
		fi := nostr.Filter{
			IDs: []string{a}, Authors: []string{b, a}, Kinds: []int{k, 1}, Since: ts(n),
			Limit: k, Search: b, Tags: nostr.TagMap{a: {b, a + b}},
		}
		require.Equal(t, len(fi.String()), filters.Size(fi))
	})
}

// naivePack is first fit, tried with real messages.
func naivePack(fs []nostr.Filter, maxBytes, maxFilters int) (reqs [][]nostr.Filter) {
next:
	for _, f := range fs {
		for i, req := range reqs {
			with := append(slices.Clone(req), f)
			if len(with) <= maxFilters && len(request(with)) <= maxBytes {
				reqs[i] = with
				continue next
			}
		}
		reqs = append(reqs, []nostr.Filter{f})
	}
	return reqs
}

func requests(reqs [][]nostr.Filter) []string {
	out := make([]string, len(reqs))
	for i, r := range reqs {
		out[i] = request(r)
	}
	return out
}

func TestPackAgreesWithNaiveTwin(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 4))
		var fs []nostr.Filter
		for range rng.IntN(40) {
			fs = append(fs, nostr.Filter{Tags: nostr.TagMap{"e": {strings.Repeat("x", rng.IntN(100)), "y"}}})
		}
		maxBytes, maxFilters := 200+rng.IntN(400), 1+rng.IntN(8)
		reqs, tooLarge := filters.Pack(fs, maxBytes, maxFilters)
		require.Empty(t, tooLarge)
		require.Equal(t, requests(naivePack(fs, maxBytes, maxFilters)), requests(reqs), "seed %d", seed)
		for _, r := range requests(reqs) {
			require.LessOrEqual(t, len(r), maxBytes)
		}
	}
}

func TestPackBounds(t *testing.T) {
	f := nostr.Filter{IDs: []string{strings.Repeat("x", 100)}}
	exact := len(request([]nostr.Filter{f, f}))
	for _, tt := range []struct {
		name       string
		n          int
		bytes, max int
		want       []int
	}{
		{"nothing", 0, 0, 0, nil},
		{"two fit exactly", 2, exact, 20, []int{2}},
		{"one byte less", 2, exact - 1, 20, []int{1, 1}},
		{"filters per REQ", 5, 1 << 20, 2, []int{2, 2, 1}},
		{"one filter per REQ", 3, 1 << 20, 1, []int{1, 1, 1}},
		{"defaults", 21, 0, 0, []int{20, 1}},
		{"default bytes", 1000, 0, 1 << 20, []int{579, 421}},
		{"negative is default", 21, -1, -1, []int{20, 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			reqs, tooLarge := filters.Pack(slices.Repeat([]nostr.Filter{f}, tt.n), tt.bytes, tt.max)
			var got []int
			for _, r := range reqs {
				got = append(got, len(r))
			}
			assert.Equal(t, tt.want, got)
			assert.Empty(t, tooLarge)
		})
	}
}

func TestPackTooLarge(t *testing.T) {
	huge := strings.Repeat("x", 500)
	f := nostr.Filter{Kinds: []int{5}, Tags: nostr.TagMap{"a": {"small", huge, "tiny"}}}
	reqs, tooLarge := filters.Pack([]nostr.Filter{f, filters.Layer1()}, 300, 20)
	require.Len(t, tooLarge, 1)
	assert.Equal(t, nostr.Filter{Kinds: []int{5}, Tags: nostr.TagMap{"a": {huge}}}, tooLarge[0])
	assert.Equal(t, [][]nostr.Filter{{
		{Kinds: []int{5}, Tags: nostr.TagMap{"a": {"small"}}},
		{Kinds: []int{5}, Tags: nostr.TagMap{"a": {"tiny"}}},
		filters.Layer1(),
	}}, reqs)
	assert.Equal(t, []string{"small", huge, "tiny"}, f.Tags["a"], "the filter given is unchanged")

	reqs, tooLarge = filters.Pack([]nostr.Filter{f}, 1, 1)
	assert.Empty(t, reqs)
	assert.Len(t, tooLarge, 3)
}
