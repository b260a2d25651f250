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
			odd := []string{"", `"`, "\\", "<", ">", "&", "\n", "\x7f", "\xff", "é", "\u2028"}[rng.IntN(11)]
			fs = append(fs, nostr.Filter{Tags: nostr.TagMap{"e": {strings.Repeat("x", rng.IntN(100)), "y" + odd}}})
		}
		maxBytes, maxFilters := 250+rng.IntN(400), 1+rng.IntN(8)
		reqs, _, tooLarge := filters.Pack(fs, maxBytes, maxFilters)
		require.Empty(t, tooLarge)
		require.Equal(t, requests(naivePack(fs, maxBytes, maxFilters)), requests(reqs), "seed %d", seed)
		for _, r := range requests(reqs) {
			require.LessOrEqual(t, len(r), maxBytes)
		}
	}
}

func TestPackTooLarge(t *testing.T) {
	huge := strings.Repeat("x", 500)
	f := nostr.Filter{Kinds: []int{5}, Tags: nostr.TagMap{"a": {"small", huge, "tiny"}}}
	reqs, _, tooLarge := filters.Pack([]nostr.Filter{f, filters.Layer1()}, 300, 20)
	require.Len(t, tooLarge, 1)
	assert.Equal(t, nostr.Filter{Kinds: []int{5}, Tags: nostr.TagMap{"a": {huge}}}, tooLarge[0])
	assert.Equal(t, [][]nostr.Filter{{
		{Kinds: []int{5}, Tags: nostr.TagMap{"a": {"small"}}},
		{Kinds: []int{5}, Tags: nostr.TagMap{"a": {"tiny"}}},
		filters.Layer1(),
	}}, reqs)
	assert.Equal(t, []string{"small", huge, "tiny"}, f.Tags["a"], "the filter given is unchanged")

	reqs, _, tooLarge = filters.Pack([]nostr.Filter{f}, 1, 1)
	assert.Empty(t, reqs)
	assert.Len(t, tooLarge, 3)
}
