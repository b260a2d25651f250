package standing_test

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/standing"
)

func eventID(n int) (id graspsync.EventID) {
	id[0], id[1], id[31] = byte(n), byte(n>>8), 1
	return id
}

// texts are possible values of a tag: ids, similar texts, addresses and others.
var texts = []string{
	eventID(1).String(), eventID(2).String(), eventID(3).String(), eventID(4).String(),
	strings.ToUpper(eventID(10).String()), eventID(1).String()[:63], "30617:" + eventID(5).String() + ":x",
	"", "x", "y", "é\x00\xff",
}

// tagNames are one-letter tags and others.
var tagNames = []string{"e", "E", "a", "Z", "ee", "", "1"}

func anyOf[T any](rng *rand.Rand, all []T, most int) (out []T) {
	for range 1 + rng.IntN(most) {
		out = append(out, all[rng.IntN(len(all))])
	}
	return out
}

func randomFilter(rng *rand.Rand) (f nostr.Filter) {
	if rng.IntN(3) == 0 {
		f.Kinds = anyOf(rng, []int{1, 5, 1111}, 3)
	}
	if rng.IntN(6) == 0 {
		f.Authors = anyOf(rng, texts[:3], 2)
	}
	if rng.IntN(6) == 0 {
		f.IDs = anyOf(rng, texts[:3], 2)
	}
	if rng.IntN(6) == 0 {
		at := nostr.Timestamp(rng.IntN(3))
		f.Since = &at
	}
	if f.LimitZero = rng.IntN(2) == 0; !f.LimitZero {
		f.Limit = rng.IntN(3)
	}
	for range rng.IntN(3) {
		if f.Tags == nil {
			f.Tags = nostr.TagMap{}
		}
		values := texts
		if rng.IntN(2) == 0 {
			values = texts[:4]
		}
		f.Tags[tagNames[rng.IntN(len(tagNames))]] = anyOf(rng, values, 5)
	}
	switch rng.IntN(12) {
	case 0:
		f.Kinds = []int{}
	case 1:
		f.Tags = nostr.TagMap{"e": {}}
	case 2:
		f.Tags = nostr.TagMap{"e": anyOf(rng, texts, 3), tagNames[1+rng.IntN(len(tagNames)-1)]: nil}
	}
	return f
}

func randomEvent(rng *rand.Rand) *nostr.Event {
	ev := &nostr.Event{
		ID: texts[rng.IntN(4)], PubKey: texts[rng.IntN(4)], Kind: []int{1, 5, 1111}[rng.IntN(3)],
		CreatedAt: nostr.Timestamp(rng.IntN(3)),
	}
	for range rng.IntN(4) {
		ev.Tags = append(ev.Tags, nostr.Tag(append([]string{tagNames[rng.IntN(len(tagNames))]}, anyOf(rng, texts, 2)...)))
	}
	if rng.IntN(4) == 0 {
		ev.Tags = append(ev.Tags, nostr.Tag{"e"}, nostr.Tag{})
	}
	return ev
}

// inOrder returns a filter with sorted values and empty lists instead of nil.
func inOrder(f nostr.Filter) nostr.Filter {
	f = f.Clone()
	for tag, vs := range f.Tags {
		f.Tags[tag] = append([]string{}, slices.Sorted(slices.Values(vs))...)
	}
	return f
}

// resembles reports whether an event has a value of a filter under any one-letter tag.
func resembles(f nostr.Filter, ev *nostr.Event, like func(nostr.Filter) bool) bool {
	for tag, vs := range f.Tags {
		f.Tags = nil
		return like(f) && slices.ContainsFunc(ev.Tags, func(t nostr.Tag) bool {
			return len(t) > 1 && len(t[0]) == 1 && t[0] != "1" && slices.Contains(vs, t[1]) && len(tag) == 1
		})
	}
	return like(f)
}

// Filters return and match the same as the filters from which they were made.
func TestSameQuestion(t *testing.T) {
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 33))
		fs := make([]nostr.Filter, rng.IntN(6))
		for i := range fs {
			fs[i] = randomFilter(rng)
			if i > 0 && fs[i-1].Tags["e"] != nil && rng.IntN(3) == 0 { // like the callers
				fs[i].Tags = nostr.TagMap{"E": fs[i-1].Tags["e"]}
			}
		}
		kept := standing.Of(fs...)
		require.Len(t, kept, len(fs))
		matcher := filters.Compile(fs)
		for i, f := range kept.Spell() {
			if len(fs[i].Tags) == 0 {
				fs[i].Tags = nil
			}
			require.Equal(t, inOrder(fs[i]), inOrder(f), "seed %d", seed)
		}
		spelled, err := json.Marshal(kept.Spell())
		require.NoError(t, err)
		again, err := json.Marshal(kept)
		require.NoError(t, err)
		require.JSONEq(t, string(spelled), string(again))
		for range 20 {
			ev := randomEvent(rng)
			require.Equal(t, matcher.Match(ev), kept.Match(ev, standing.TagsOf(ev)), "seed %d: %s in %s", seed, ev, fs)
		}
	}
}

// An event with a requested value under another tag resembles the filter.
func TestResemblesUnderAnyTag(t *testing.T) {
	found := 0
	for seed := range uint64(3000) {
		rng := rand.New(rand.NewPCG(seed, 34))
		var fs []nostr.Filter
		for len(fs) < 3 {
			f := randomFilter(rng)
			letters := !slices.ContainsFunc(slices.Collect(maps.Keys(f.Tags)), func(tag string) bool { return len(tag) != 1 || tag == "1" })
			if letters && len(f.Tags) < 2 {
				fs = append(fs, f)
			}
		}
		kept, kind := standing.Of(fs...), 1
		like := func(f nostr.Filter) bool { return f.Kinds == nil || slices.Contains(f.Kinds, kind) }
		for range 20 {
			ev := randomEvent(rng)
			want := slices.ContainsFunc(fs, func(f nostr.Filter) bool { return resembles(f, ev, like) })
			require.Equal(t, want, kept.Resembles(standing.TagsOf(ev), like), "seed %d: %s in %s", seed, ev, fs)
			if want && !filters.Compile(fs).Match(ev) {
				found++
			}
		}
	}
	require.Greater(t, found, 1000)
}
