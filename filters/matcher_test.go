package filters_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
)

// naiveMatch is NIP-01 word by word.
func naiveMatch(fs []nostr.Filter, ev *nostr.Event) bool {
	return slices.ContainsFunc(fs, func(f nostr.Filter) bool {
		for name, values := range f.Tags {
			if !slices.ContainsFunc(ev.Tags, func(tag nostr.Tag) bool {
				return len(tag) >= 2 && tag[0] == name && slices.Contains(values, tag[1])
			}) {
				return false
			}
		}
		return (f.IDs == nil || slices.Contains(f.IDs, ev.ID)) &&
			(f.Kinds == nil || slices.Contains(f.Kinds, ev.Kind)) &&
			(f.Authors == nil || slices.Contains(f.Authors, ev.PubKey)) &&
			(f.Since == nil || ev.CreatedAt >= *f.Since) &&
			(f.Until == nil || ev.CreatedAt <= *f.Until)
	})
}

// source makes small values from bytes, so that matches are frequent and a fuzzer
// can steer them.
type source struct{ data []byte }

func (s *source) intn(n int) int {
	if len(s.data) == 0 {
		return 0
	}
	v := int(s.data[0]) % n
	s.data = s.data[1:]
	return v
}

func (s *source) word() string { return string(rune('a' + s.intn(4))) }

func (s *source) words() []string {
	switch n := s.intn(6); n {
	case 0:
		return []string{}
	case 1, 2, 3:
		out := make([]string, n)
		for i := range out {
			out[i] = s.word()
		}
		return out
	}
	return nil
}

func (s *source) tagName() string { return []string{"a", "e", "d", "", "long"}[s.intn(5)] }

func (s *source) filter() (f nostr.Filter) {
	f.IDs, f.Authors = s.words(), s.words()
	switch n := s.intn(5); n {
	case 0:
		f.Kinds = []int{}
	case 1, 2:
		for range n {
			f.Kinds = append(f.Kinds, s.intn(3))
		}
	}
	for range s.intn(3) {
		if f.Tags == nil {
			f.Tags = nostr.TagMap{}
		}
		f.Tags[s.tagName()] = s.words()
	}
	if s.intn(4) == 0 {
		f.Since = ts(int64(s.intn(6)))
	}
	if s.intn(4) == 0 {
		f.Until = ts(int64(s.intn(6)))
	}
	f.Limit = s.intn(2)
	return f
}

func (s *source) event() *nostr.Event {
	ev := &nostr.Event{ID: s.word(), PubKey: s.word(), Kind: s.intn(3), CreatedAt: nostr.Timestamp(s.intn(6))}
	for range s.intn(4) {
		var tag nostr.Tag
		if n := s.intn(4); n > 0 {
			tag = nostr.Tag{s.tagName()}
			for range n - 1 {
				tag = append(tag, s.word())
			}
		}
		ev.Tags = append(ev.Tags, tag)
	}
	return ev
}

func checkMatcher(t *testing.T, data []byte) (matched bool) {
	t.Helper()
	s := &source{data}
	var fs []nostr.Filter
	for range s.intn(5) {
		fs = append(fs, s.filter())
	}
	m, shared := filters.Compile(fs), filters.CompileShared(fs)
	for range 3 {
		ev := s.event()
		want := naiveMatch(fs, ev)
		require.Equal(t, want, m.Match(ev), "filters %v event %v", fs, ev)
		require.Equal(t, want, shared.Match(ev), "filters %v event %v, shared", fs, ev)
		matched = matched || want
	}
	return matched
}

func TestMatcherAgreesWithNaiveTwin(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	matched := 0
	const rounds = 20_000
	for range rounds {
		data := make([]byte, 120)
		for i := range data {
			data[i] = byte(rng.UintN(256))
		}
		if checkMatcher(t, data) {
			matched++
		}
	}
	assert.Greater(t, matched, rounds/10, "the test must see matches")
	assert.Less(t, matched, rounds*9/10, "and what does not match")
}

func FuzzMatcher(f *testing.F) {
	f.Add([]byte{1, 4, 4, 4, 1, 1, 1, 0, 1, 1, 0, 0})
	f.Add([]byte{2, 1, 1, 5, 4, 0, 3, 3, 0, 5, 5, 1, 1, 2, 2, 1, 3, 0, 1, 2, 3, 4, 5})
	f.Fuzz(func(t *testing.T, data []byte) { checkMatcher(t, data) })
}

func TestMatcher(t *testing.T) {
	ev := &nostr.Event{
		ID: "id", PubKey: "author", Kind: 1, CreatedAt: 100,
		Tags: nostr.Tags{{"e", "first", "second"}, {"d"}, {}, {"e", "third"}, {"q", "quoted"}},
	}
	for _, tt := range []struct {
		name string
		f    nostr.Filter
		want bool
	}{
		{"no conditions", nostr.Filter{}, true},
		{"id", nostr.Filter{IDs: []string{"x", "id"}}, true},
		{"id prefix", nostr.Filter{IDs: []string{"i"}}, false},
		{"id and other kind", nostr.Filter{IDs: []string{"id"}, Kinds: []int{2}}, false},
		{"id and other author", nostr.Filter{IDs: []string{"id"}, Authors: []string{"x"}}, false},
		{"id and tag", nostr.Filter{IDs: []string{"id"}, Tags: nostr.TagMap{"e": {"first"}}}, true},
		{"id and other tag", nostr.Filter{IDs: []string{"id"}, Tags: nostr.TagMap{"e": {"x"}}}, false},
		{"author", nostr.Filter{Authors: []string{"author"}}, true},
		{"author and kind", nostr.Filter{Authors: []string{"author"}, Kinds: []int{3, 1}}, true},
		{"kinds unsorted", nostr.Filter{Kinds: []int{9, 1, 5}}, true},
		{"tag", nostr.Filter{Tags: nostr.TagMap{"e": {"first"}}}, true},
		{"a later tag of the name", nostr.Filter{Tags: nostr.TagMap{"e": {"third"}}}, true},
		{"second value", nostr.Filter{Tags: nostr.TagMap{"e": {"second"}}}, false},
		{"bare tag", nostr.Filter{Tags: nostr.TagMap{"d": {""}}}, false},
		{"other tag name", nostr.Filter{Tags: nostr.TagMap{"E": {"first"}}}, false},
		{"both tags", nostr.Filter{Tags: nostr.TagMap{"e": {"third"}, "q": {"x", "quoted"}}}, true},
		{"one of two tags", nostr.Filter{Tags: nostr.TagMap{"e": {"third"}, "q": {"x", "y"}}}, false},
		{"since inclusive", nostr.Filter{Since: ts(100)}, true},
		{"since later", nostr.Filter{Since: ts(101)}, false},
		{"until inclusive", nostr.Filter{Until: ts(100)}, true},
		{"until earlier", nostr.Filter{Until: ts(99)}, false},
		{"limit is ignored", nostr.Filter{LimitZero: true}, true},
		{"search is ignored", nostr.Filter{Search: "x"}, true},
		{"empty list", nostr.Filter{IDs: []string{}}, false},
		{"empty tag list", nostr.Filter{Tags: nostr.TagMap{"e": nil}}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			assert.Equal(t, tt.want, filters.Compile([]nostr.Filter{tt.f}).Match(ev))
		})
	}
	assert.False(t, filters.Compile(nil).Match(ev))
	assert.False(t, filters.Compile([]nostr.Filter{{}}).Match(nil))
}

func TestMatcherKeepsNothingOfTheFilters(t *testing.T) {
	f := nostr.Filter{
		Kinds: []int{2, 1}, Authors: []string{"author"}, Since: ts(0),
		Tags: nostr.TagMap{"e": {"x", "y"}, "a": {"z"}},
	}
	m := filters.Compile([]nostr.Filter{f})
	assert.Equal(t, []int{2, 1}, f.Kinds)
	assert.Len(t, f.Tags, 2)
	f.Kinds[0], f.Kinds[1], f.Authors[0], *f.Since = 7, 7, "other", 1000
	f.Tags["e"][0] = "other"
	delete(f.Tags, "a")
	assert.True(t, m.Match(&nostr.Event{Kind: 1, PubKey: "author", Tags: nostr.Tags{{"e", "x"}, {"a", "z"}}}))
}

func TestMatcherConcurrently(t *testing.T) {
	m := filters.Compile(filters.Roots(eventIDs(500)))
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			for j := range 500 {
				ev := &nostr.Event{Tags: nostr.Tags{{"E", number32[graspsync.EventID](j).String()}}}
				if !m.Match(ev) {
					t.Errorf("goroutine %d: event %d did not match", i, j)
				}
			}
		})
	}
	wg.Wait()
}

func BenchmarkMatcher(b *testing.B) {
	m := filters.Compile(slices.Concat(filters.Repos(repoRefs(1000)), filters.Roots(eventIDs(6400))))
	tags := func(value string) nostr.Tags {
		out := nostr.Tags{{"p", "x"}, {"subject", "y"}}
		for i := range 5 {
			out = append(out, nostr.Tag{"t", fmt.Sprint(i)})
		}
		return append(out, nostr.Tag{"E", value})
	}
	for name, ev := range map[string]*nostr.Event{
		"hit":  {Kind: 1111, Tags: tags(number32[graspsync.EventID](6399).String())},
		"miss": {Kind: 1111, Tags: tags(number32[graspsync.EventID](7000).String())},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				m.Match(ev)
			}
		})
	}
}

func BenchmarkCompile(b *testing.B) {
	fs := filters.Roots(eventIDs(6400))
	b.ReportAllocs()
	for b.Loop() {
		filters.Compile(fs)
	}
}

// A matcher that shares the lists of builders keeps none of its own.
func TestMatcherThatShares(t *testing.T) {
	fs := filters.Roots(eventIDs(6400))
	few := testing.AllocsPerRun(10, func() { filters.CompileShared(fs) })
	assert.Less(t, few, float64(3*len(fs)))
	unordered := []string{"b", "a", "c"}
	m := filters.CompileShared([]nostr.Filter{{Tags: nostr.TagMap{"e": unordered}}})
	assert.Equal(t, []string{"b", "a", "c"}, unordered)
	assert.True(t, m.Match(&nostr.Event{Tags: nostr.Tags{{"e", "a"}}}))
}

func BenchmarkCompileShared(b *testing.B) {
	fs := filters.Roots(eventIDs(6400))
	b.ReportAllocs()
	for b.Loop() {
		filters.CompileShared(fs)
	}
}
