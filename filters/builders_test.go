package filters_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
)

// number32 spreads n over 32 bytes, so that numbers close to each other are not.
func number32[T ~[32]byte](n int) (b T) {
	rng := rand.New(rand.NewPCG(uint64(n), 99))
	for i := 0; i < 32; i += 8 {
		binary.BigEndian.PutUint64(b[i:], rng.Uint64())
	}
	return b
}

func eventIDs(n int) []graspsync.EventID {
	out := make([]graspsync.EventID, n)
	for i := range out {
		out[i] = number32[graspsync.EventID](i)
	}
	return out
}

func repoRefs(n int) []graspsync.RepoRef {
	out := make([]graspsync.RepoRef, n)
	for i := range out {
		out[i] = graspsync.RepoRef{Owner: number32[graspsync.PubKey](i / 3), Identifier: fmt.Sprintf("repo-%d", i)}
	}
	return out
}

func pubKeys(n int) []graspsync.PubKey {
	out := make([]graspsync.PubKey, n)
	for i := range out {
		out[i] = number32[graspsync.PubKey](i)
	}
	return out
}

// values returns all of a filter's values of ids, authors and tags.
func values(f nostr.Filter) []string {
	out := slices.Concat(f.IDs, f.Authors)
	for _, v := range f.Tags {
		out = append(out, v...)
	}
	return out
}

func jsons(fs []nostr.Filter) []string {
	out := make([]string, len(fs))
	for i, f := range fs {
		out[i] = f.String()
	}
	return out
}

func ts(n int64) *nostr.Timestamp {
	t := nostr.Timestamp(n)
	return &t
}

// builder is a builder over n values and how many filters each tag name gets.
type builder struct {
	name  string
	build func(n int, shuffle func(n int, swap func(i, j int))) []nostr.Filter
	// want returns every value that must be asked for, by list: "ids", "authors",
	// "#a" and so on, with "5" in front where kinds are [5].
	want func(n int) map[string][]string
}

func builders() []builder {
	strs := func(n int, s func(i int) string) []string {
		out := make([]string, n)
		for i := range out {
			out[i] = s(i)
		}
		slices.Sort(out)
		return slices.Compact(out)
	}
	return []builder{
		{"repos", func(n int, shuffle func(int, func(i, j int))) []nostr.Filter {
			in := repoRefs(n)
			in = append(in, in[:n/2]...)
			shuffle(len(in), func(i, j int) { in[i], in[j] = in[j], in[i] })
			return filters.Repos(in)
		}, func(n int) map[string][]string {
			refs := repoRefs(n)
			a := strs(n, func(i int) string { return refs[i].String() })
			states := strs(n, func(i int) string { return refs[i].Address(graspsync.KindState) })
			return map[string][]string{"#a": a, "#A": a, "#q": a, "5#a": slices.Concat(a, states)}
		}},
		{"roots", func(n int, shuffle func(int, func(i, j int))) []nostr.Filter {
			in := eventIDs(n)
			in = append(in, in[:n/2]...)
			shuffle(len(in), func(i, j int) { in[i], in[j] = in[j], in[i] })
			return filters.Roots(in)
		}, func(n int) map[string][]string {
			ids := eventIDs(n)
			e := strs(n, func(i int) string { return ids[i].String() })
			return map[string][]string{"#e": e, "#E": e, "#q": e}
		}},
		{"descendants", func(n int, shuffle func(int, func(i, j int))) []nostr.Filter {
			var in []filters.Descendant
			for _, id := range eventIDs(n) {
				in = append(in, filters.Descendant{ID: id})
			}
			in = append(in, in[:n/2]...)
			shuffle(len(in), func(i, j int) { in[i], in[j] = in[j], in[i] })
			return filters.Descendants(in)
		}, func(n int) map[string][]string {
			ids := eventIDs(n)
			e := strs(n, func(i int) string { return ids[i].String() })
			return map[string][]string{"#e": e, "#E": e, "#q": e}
		}},
		{"deletions", func(n int, shuffle func(int, func(i, j int))) []nostr.Filter {
			in := pubKeys(n)
			in = append(in, in[:n/2]...)
			shuffle(len(in), func(i, j int) { in[i], in[j] = in[j], in[i] })
			return filters.Deletions(in)
		}, func(n int) map[string][]string {
			keys := pubKeys(n)
			return map[string][]string{"5 62authors": strs(n, func(i int) string { return keys[i].String() })}
		}},
	}
}

func lists(f nostr.Filter) map[string][]string {
	kinds := ""
	if f.Kinds != nil {
		kinds = strings.Trim(fmt.Sprint(f.Kinds), "[]")
	}
	out := map[string][]string{}
	if f.IDs != nil {
		out[kinds+"ids"] = f.IDs
	}
	if f.Authors != nil {
		out[kinds+"authors"] = f.Authors
	}
	for name, v := range f.Tags {
		out[kinds+"#"+name] = v
	}
	return out
}

func TestBuildersChunk(t *testing.T) {
	for _, b := range builders() {
		for _, n := range []int{1, 2, 49, 50, 51, 99, 100, 101, 200, 350} {
			t.Run(fmt.Sprintf("%s/%d", b.name, n), func(t *testing.T) {
				rng := rand.New(rand.NewPCG(3, uint64(n)))
				fs := b.build(n, rng.Shuffle)
				got := map[string][]string{}
				count := map[string]int{}
				for _, f := range fs {
					ls := lists(f)
					require.Len(t, ls, 1, "one list in each filter")
					for name, v := range ls {
						assert.LessOrEqual(t, len(v), filters.MaxValues)
						assert.NotEmpty(t, v)
						assert.True(t, slices.IsSorted(v))
						got[name] = append(got[name], v...)
						count[name]++
					}
					assert.Zero(t, f.Limit)
					assert.False(t, f.LimitZero)
				}
				want := b.want(n)
				for name := range want {
					slices.Sort(got[name])
					assert.Equal(t, (len(want[name])+filters.MaxValues-1)/filters.MaxValues, count[name], "as few filters as possible: %s", name)
				}
				assert.Equal(t, want, got)

				other := b.build(n, rng.Shuffle)
				assert.Equal(t, jsons(fs), jsons(other), "the same set in another order")
			})
		}
	}
}

// A value that a relay refuses takes the other 99 of its filter with it.
func TestPoisonValuesNeverReachFilters(t *testing.T) {
	good := graspsync.RepoRef{Identifier: "good"}
	refs := []graspsync.RepoRef{
		{}, good,
		{Identifier: strings.Repeat("x", graspsync.MaxIdentifier+1)},
		{Identifier: "bad\xff"},
		{Identifier: "bad\x00"},
	}
	for _, f := range filters.Repos(refs) {
		for _, v := range values(f) {
			assert.Contains(t, []string{good.String(), good.Address(graspsync.KindState), "good"}, v)
		}
	}
	assert.Empty(t, filters.Repos([]graspsync.RepoRef{{}}))
}

// Elsewhere a set that had become empty was sent as an empty list, which some
// relays answer with everything they have.
func TestTrapP28_EmptyListNeverOnTheWire(t *testing.T) {
	assert.Empty(t, filters.Repos(nil))
	assert.Empty(t, filters.Repos([]graspsync.RepoRef{}))
	assert.Empty(t, filters.Roots(nil))
	assert.Empty(t, filters.Roots([]graspsync.EventID{}))
	assert.Empty(t, filters.Deletions(nil))
	assert.Empty(t, filters.Deletions([]graspsync.PubKey{}))
	assert.Empty(t, filters.ByID(nil, 10))
	assert.Empty(t, filters.ByID([]graspsync.EventID{}, 10))

	empties := map[string]nostr.Filter{
		"ids":        {IDs: []string{}},
		"authors":    {Authors: []string{}, Kinds: []int{5}},
		"kinds":      {Kinds: []int{}},
		"tag":        {Tags: nostr.TagMap{"e": {}}},
		"nil tag":    {Tags: nostr.TagMap{"e": nil}},
		"one of two": {Tags: nostr.TagMap{"a": {"x"}, "e": {}}},
	}
	for name, f := range empties {
		t.Run(name, func(t *testing.T) {
			assert.True(t, filters.Empty(f))
			assert.True(t, filters.Empty(filters.Live(f)), "a copy must not turn nothing into everything")
			assert.True(t, filters.Empty(filters.Between(f, ts(1), ts(2), 3)))
			assert.True(t, filters.Empty(filters.WithKinds(f)))

			reqs, _, tooLarge := filters.Pack([]nostr.Filter{f, filters.Layer1(), f}, 64<<10, 20)
			assert.Equal(t, [][]nostr.Filter{{filters.Layer1()}}, reqs)
			assert.Empty(t, tooLarge)
			reqs, _, tooLarge = filters.Pack([]nostr.Filter{f}, 64<<10, 20)
			assert.Empty(t, reqs)
			assert.Empty(t, tooLarge)

			w := filters.NewWalk(f, filters.WalkStart{})
			assert.True(t, w.Done())
			assert.True(t, w.Complete())
			next := w.Next()
			assert.False(t, filters.Empty(next), "what is sent by mistake asks for no event")
			assert.Equal(t, []string{strings.Repeat("0", 64)}, next.IDs)
		})
	}
	for _, f := range []nostr.Filter{{}, filters.Layer1(), {IDs: []string{"x"}}, {Tags: nostr.TagMap{}}} {
		assert.False(t, filters.Empty(f))
	}
}

func TestLiveAndBetween(t *testing.T) {
	f := nostr.Filter{
		Kinds: []int{1}, Tags: nostr.TagMap{"e": {"x"}},
		Since: ts(5), Until: ts(9), Limit: 7,
	}
	live := filters.Live(f)
	assert.JSONEq(t, `{"kinds":[1],"limit":0,"#e":["x"]}`, live.String())

	between := filters.Between(live, ts(1), ts(2), 3)
	assert.JSONEq(t, `{"kinds":[1],"since":1,"until":2,"limit":3,"#e":["x"]}`, between.String())
	assert.JSONEq(t, `{"kinds":[1],"#e":["x"]}`, filters.Between(between, nil, nil, -1).String())
	assert.JSONEq(t, `{"kinds":[1],"until":0,"#e":["x"]}`, filters.Between(f, nil, ts(0), 0).String())

	// Copies share nothing.
	*between.Since = 100
	between.Kinds[0] = 100
	between.Tags["e"][0] = "changed"
	assert.JSONEq(t, `{"kinds":[1],"since":5,"until":9,"limit":7,"#e":["x"]}`, f.String())
	since := nostr.Timestamp(1)
	bounded := filters.Between(f, &since, nil, 0)
	since = 2
	assert.EqualValues(t, 1, *bounded.Since)
}

// A relay that wants kinds was not asked for notes, reactions, zaps, labels, releases or what
// CI says, so that these were only on the relays that do not. What is about anything is asked
// for only by what it tags.
func TestKindsOfTheField(t *testing.T) {
	for _, kind := range []int{1624, 9840, 9841, 9842, 9843, 9844, 30624, 39842} {
		assert.Contains(t, filters.Kinds(), kind)
	}
	for _, kind := range []int{1, 7, 1985, 3063, 9735, 15128, 30063, 32267, 35128} {
		assert.Contains(t, filters.RelatedKinds(), kind)
		assert.NotContains(t, filters.Kinds(), kind)
	}
	for _, kind := range []int{0, 3, 10002, 22242, 24242, 27235} {
		assert.NotContains(t, filters.RelatedKinds(), kind)
	}
}

// Elsewhere an identifier was cut at its first colon, so that nothing was found.
func TestTrapD4_FiltersForIdentifiersWithColons(t *testing.T) {
	for _, identifier := range []string{":", "a:b", "::a"} {
		ref := graspsync.RepoRef{Owner: graspsync.PubKey{7}, Identifier: identifier}
		for _, f := range filters.Repos([]graspsync.RepoRef{ref}) {
			assert.Contains(t, values(f), ref.String())
		}
	}
}
