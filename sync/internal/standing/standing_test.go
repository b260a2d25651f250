package standing_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
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

// Sealed filters do not change when the original filters change.
func TestSealedFiltersDoNotChange(t *testing.T) {
	since := nostr.Timestamp(1)
	f := nostr.Filter{
		Kinds: []int{1, 2}, Authors: []string{"x"}, IDs: []string{"y"}, Since: &since,
		Tags: nostr.TagMap{"e": {eventID(1).String(), eventID(2).String()}, "t": {"z"}},
	}
	kept := standing.Of(f)
	spelled := func() string {
		all, err := json.Marshal(kept.Spell()[0].Tags)
		require.NoError(t, err)
		f := kept.Spell()[0]
		f.Tags = nil
		return f.String() + string(all)
	}
	before := spelled()
	f.Kinds[0], f.Authors[0], f.IDs[0], since = 3, "changed", "changed", 2
	f.Tags["e"][0], f.Tags["t"][0] = "changed", "changed"
	f.Tags["q"] = []string{"new"}
	assert.Equal(t, before, spelled())
}

// Lists with the same first element are equal only if they have the same length.
func TestPartsOfLists(t *testing.T) {
	all := []string{eventID(1).String(), eventID(2).String(), eventID(3).String()}
	var fs []nostr.Filter
	for n := range len(all) + 1 {
		fs = append(fs, nostr.Filter{Tags: nostr.TagMap{"e": all[:n]}})
	}
	for n, f := range standing.Of(fs...).Spell() {
		assert.Equal(t, all[:n], f.Tags["e"])
	}
}

// An event with many tags is parsed only once for any number of filters, because a relay may send
// many such events.
func TestManyTagsCostLittle(t *testing.T) {
	var fs standing.Filters
	for _, one := range hub(1, 1000) {
		fs = append(fs, one...)
	}
	for _, value := range []string{"x", eventID(9999).String(), strings.Repeat("x", 64)} {
		ev := &nostr.Event{}
		for range 10_000 {
			ev.Tags = append(ev.Tags, nostr.Tag{"p", value})
		}
		tags := standing.TagsOf(ev)
		assert.LessOrEqual(t, testing.AllocsPerRun(5, func() { standing.TagsOf(ev) }), 50.0)
		assert.LessOrEqual(t, testing.AllocsPerRun(5, func() { fs.Match(ev, tags) }), 2.0)
	}
}

func TestForms(t *testing.T) {
	kept := standing.Of(slices.Concat(
		[]nostr.Filter{filters.Layer1()},
		filters.Roots([]graspsync.EventID{eventID(1)}), filters.Roots([]graspsync.EventID{eventID(2), eventID(3)}),
	)...)
	assert.Equal(t, []nostr.Filter{filters.Layer1(), {}, {}, {}}, slices.Collect(kept.Forms()), "of e, E and q one each")
	rest, tag := kept[0].Form()
	assert.Equal(t, filters.Layer1(), rest)
	assert.Empty(t, tag)
	rest, tag = kept[5].Form()
	assert.Zero(t, rest)
	assert.Equal(t, "E", tag)
	for range kept.Forms() {
		break
	}
}

// A filter in another form reuses the same ids.
func TestSealerOfFilters(t *testing.T) {
	shared := eventID(1)
	made := 0
	sealer := standing.NewSealer(func(id graspsync.EventID) *graspsync.EventID {
		made++
		require.Equal(t, shared, id)
		return &shared
	})
	kept := sealer.Seal(filters.Roots([]graspsync.EventID{shared}))
	assert.Equal(t, 1, made, "lists that are shared are looked at once")
	shared = eventID(7) // shared ids must not change; the change shows the sharing
	assert.Equal(t, []string{eventID(7).String()}, kept.Spell()[0].Tags["e"])
	again := kept.Sealer().Seal([]nostr.Filter{{Tags: nostr.TagMap{"q": {eventID(7).String(), eventID(8).String()}}}})
	shared = eventID(6)
	assert.Equal(t, []string{eventID(6).String(), eventID(8).String()}, again.Spell()[0].Tags["q"])
}

// Filters with the same list share the spelled list.
func TestSpelledListsAreShared(t *testing.T) {
	fs := standing.Of(filters.Roots([]graspsync.EventID{eventID(1), eventID(2)})...).Spell()
	assert.Same(t, &fs[0].Tags["e"][0], &fs[2].Tags["q"][0])
}

// hub returns the live filters of n relays that all follow the same root events.
func hub(relays, roots int) (all []standing.Filters) {
	ids := make(map[graspsync.EventID]*graspsync.EventID, roots)
	list := make([]graspsync.EventID, roots)
	for i := range list {
		list[i] = eventID(i)
		ids[list[i]] = &list[i]
	}
	for range relays {
		sealer := standing.NewSealer(func(id graspsync.EventID) *graspsync.EventID { return ids[id] })
		reqs, _ := filters.Pack(filters.Roots(list), 0, 0)
		for _, req := range reqs {
			all = append(all, sealer.Seal(req))
		}
	}
	return all
}

// BenchmarkHub reports the bytes per value and relay, stored and spelled.
func BenchmarkHub(b *testing.B) {
	const relays, roots = 20, 5000
	inUse := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	for b.Loop() {
		before := inUse()
		all := hub(relays, roots)
		kept := inUse()
		var spelled [][]nostr.Filter
		for _, fs := range all {
			spelled = append(spelled, fs.Spell())
		}
		after := inUse()
		b.ReportMetric(float64(kept-before)/relays/roots, "B/value")
		b.ReportMetric(float64(after-kept)/relays/roots, "B/value-spelled")
		runtime.KeepAlive(all)
		runtime.KeepAlive(spelled)
	}
}

func BenchmarkMatch(b *testing.B) {
	const roots = 5000
	var fs standing.Filters
	for _, one := range hub(1, roots) {
		fs = append(fs, one...)
	}
	matcher := filters.Compile(fs.Spell())
	for _, id := range []int{0, roots - 1, roots + 1} {
		ev := &nostr.Event{Tags: nostr.Tags{{"p", eventID(3).String()}, {"q", eventID(id).String()}}}
		b.Run(fmt.Sprintf("kept/%d", id), func(b *testing.B) {
			for b.Loop() {
				fs.Match(ev, standing.TagsOf(ev))
			}
		})
		b.Run(fmt.Sprintf("compiled/%d", id), func(b *testing.B) {
			for b.Loop() {
				matcher.Match(ev)
			}
		})
	}
}
