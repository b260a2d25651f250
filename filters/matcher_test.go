package filters_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

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
	m := filters.Compile(fs)
	for range 3 {
		ev := s.event()
		want := naiveMatch(fs, ev)
		require.Equal(t, want, m.Match(ev), "filters %v event %v", fs, ev)
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
