package filters_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
)

// crowd is a relay all of whose events are of one second.
type crowd struct {
	events []*nostr.Event // by id
	cap    int
	nip67  bool
	pages  int
}

const busy = nostr.Timestamp(1_700_000_000)

func (c *crowd) add(kind int, author string, tags ...nostr.Tag) {
	id := number32[graspsync.EventID](len(c.events))
	c.events = append(c.events, &nostr.Event{ID: id.String(), Kind: kind, PubKey: author, CreatedAt: busy, Tags: tags})
}

func (c *crowd) matching(f nostr.Filter) (out []*nostr.Event) {
	m := filters.Compile([]nostr.Filter{f})
	for _, ev := range c.events {
		if m.Match(ev) {
			out = append(out, ev)
		}
	}
	return out
}

func (c *crowd) answer(f nostr.Filter) (page []*nostr.Event, complete, more bool) {
	c.pages++
	page = c.matching(f)
	cut := len(page) > min(c.cap, f.Limit)
	if cut {
		page = page[:min(c.cap, f.Limit)]
	}
	return page, c.nip67 && !cut, c.nip67 && cut
}

// run splits to the end and returns the ids that came.
func (c *crowd) run(t testing.TB, s *filters.Split) map[string]bool {
	t.Helper()
	got := make(map[string]bool)
	for {
		f, ok := s.Next()
		if !ok {
			break
		}
		require.Equal(t, busy, *f.Since)
		require.Equal(t, busy, *f.Until)
		require.False(t, filters.Empty(f))
		page, complete, more := c.answer(f)
		for _, ev := range page {
			id, err := graspsync.ParseEventID(ev.ID)
			require.NoError(t, err)
			s.Saw(id, ev)
			got[ev.ID] = true
		}
		s.End(complete, more)
	}
	require.True(t, s.Done())
	return got
}

// provable is the naive twin: it splits without a plan, and without end.
func (c *crowd) provable(f nostr.Filter, page int) bool {
	if answer, _, more := c.answer(f); len(answer) < page || c.nip67 && !more {
		return true
	}
	a, b, ok := filters.Halve(f)
	return ok && c.provable(a, page) && c.provable(b, page)
}

func randomCrowd(rng *rand.Rand, severalTags bool) (c *crowd, f nostr.Filter) {
	c = &crowd{cap: 1 + rng.IntN(30), nip67: rng.IntN(4) == 0}
	values := 1 + rng.IntN(8)
	kinds, authors := 1+rng.IntN(4), 1+rng.IntN(5)
	value := func() string { return fmt.Sprintf("v%d", rng.IntN(values)) }
	for range rng.IntN(300) {
		tags := []nostr.Tag{{"a", value()}}
		if severalTags {
			tags = append(tags, nostr.Tag{"a", value()})
		}
		c.add(1617+rng.IntN(kinds), strings.Repeat(string(rune('a'+rng.IntN(authors))), 64), tags...)
	}
	f.Tags = nostr.TagMap{}
	for i := range values {
		f.Tags["a"] = append(f.Tags["a"], fmt.Sprintf("v%d", i))
	}
	if rng.IntN(2) == 0 {
		f.Kinds = []int{1617, 1618, 1619, 1620}[:1+rng.IntN(4)]
	}
	if rng.IntN(4) == 0 {
		f.Authors = []string{strings.Repeat("a", 64), strings.Repeat("b", 64)}
	}
	return c, f
}

func TestSplitAgainstNaive(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	complete, proven := 0, 0
	for n := range 500 {
		several := n%3 == 0
		c, f := randomCrowd(rng, several)
		opt := filters.SplitBounds{Page: c.cap, Requests: 5_000}
		s := filters.NewSplit(f, busy, opt)
		got := c.run(t, s)
		at := f
		at.Since, at.Until, at.Limit = ptr(busy), ptr(busy), filters.DefaultLimit
		naive := c.provable(at, c.cap)
		if s.Complete() {
			complete++
			for _, ev := range c.matching(f) {
				require.True(t, got[ev.ID], "%d: %v is missing", n, ev)
			}
			require.Equal(t, len(got), s.Seen())
			require.True(t, naive, n)
		}
		if naive {
			proven++
			// Events with several values may make the two halves of a filter look
			// the same, and that is where a split gives up.
			require.True(t, several || s.Complete(), "%d: it could have been proven", n)
		}
	}
	t.Logf("%d complete of %d that can be", complete, proven)
	require.Greater(t, complete, 100)
	require.Greater(t, complete, proven*9/10)
}

func ptr[T any](v T) *T { return &v }

// A relay that answers everything with the same full page is soon given up.
func TestSplitEndsWithAnyRelay(t *testing.T) {
	f := nostr.Filter{Kinds: []int{1, 2, 3, 4, 5, 6, 7}, Tags: nostr.TagMap{"e": {"a", "b", "c", "d", "e", "f"}}}
	s := filters.NewSplit(f, busy, filters.SplitBounds{Page: 5})
	pages := 0
	for {
		_, ok := s.Next()
		if !ok {
			break
		}
		pages++
		for n := range 5 {
			s.Saw(number32[graspsync.EventID](n), &nostr.Event{CreatedAt: busy, Kind: 1})
		}
		s.End(false, false)
	}
	require.False(t, s.Complete())
	require.LessOrEqual(t, pages, 6)
	s.End(true, false)
	require.Equal(t, 5, s.Seen())
}

// FuzzSplitHostile lets a relay answer anything: a split ends within its bound.
func FuzzSplitHostile(f *testing.F) {
	f.Add([]byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 200, 100, 50})
	f.Add([]byte(strings.Repeat("\x05\x00\x00\x01\x02", 30)))
	f.Fuzz(func(t *testing.T, data []byte) {
		src := &source{data}
		values := []string{"a", "b", "c", "d", "e"}[:1+src.intn(5)]
		s := filters.NewSplit(nostr.Filter{Tags: nostr.TagMap{"e": values}}, busy, filters.SplitBounds{Page: 1 + src.intn(4), Requests: 50})
		pages := 0
		for {
			f, ok := s.Next()
			if !ok {
				break
			}
			require.Subset(t, values, f.Tags["e"])
			pages++
			for range src.intn(8) {
				n := src.intn(40)
				s.Saw(number32[graspsync.EventID](n), &nostr.Event{CreatedAt: busy - nostr.Timestamp(src.intn(2)), Kind: n, PubKey: fmt.Sprint(n % 7)})
			}
			hint := src.intn(6)
			s.End(hint == 5, hint == 4)
		}
		require.LessOrEqual(t, pages, 50)
	})
}

// Caps that differ from filter to filter, or change, do not hide events: a page
// below a second that was cut shows it.
func TestTrapH5_SmallerCapThanKnown(t *testing.T) {
	times := append(seconds(80, 90), slices.Repeat([]nostr.Timestamp{100}, 30)...)
	r := newModel(7, times...)
	w := filters.NewWalk(nostr.Filter{}, filters.WalkStart{PageSize: 500})
	run(t, r, w)
	require.Equal(t, []nostr.Timestamp{100}, w.Gaps())
	_, size := w.Doubt()
	require.Zero(t, size)

	// with nothing below, it can't be told: all of it may have come
	r = newModel(7, slices.Repeat([]nostr.Timestamp{100}, 30)...)
	w = filters.NewWalk(nostr.Filter{}, filters.WalkStart{PageSize: 500})
	run(t, r, w)
	require.Empty(t, w.Gaps())
	_, size = w.Doubt()
	require.Equal(t, 7, size)
	w = filters.NewWalk(nostr.Filter{Since: ptr(nostr.Timestamp(100))}, filters.WalkStart{PageSize: 500})
	run(t, r, w)
	at, size := w.Doubt()
	require.Equal(t, nostr.Timestamp(100), at)
	require.Equal(t, 7, size)
	require.True(t, w.Ended())
	require.Equal(t, 7, w.Largest())
}

// A cap that shrinks in the middle of a walk: the pages before it were larger.
func TestTrapH5_CapShrinks(t *testing.T) {
	times := slices.Concat(seconds(101, 150), slices.Repeat([]nostr.Timestamp{100}, 30), seconds(80, 99))
	r := newModel(20, times...)
	w := filters.NewWalk(nostr.Filter{}, filters.WalkStart{})
	got := map[graspsync.EventID]bool{}
	for !w.Done() {
		if w.Pages() == 2 {
			r.cap = 6
		}
		page, complete, more := r.answer(w.Next())
		for _, ev := range page {
			w.Saw(ev.id, ev.at)
			got[ev.id] = true
		}
		w.End(complete, more)
	}
	require.Equal(t, []nostr.Timestamp{100}, w.Gaps())
	for _, ev := range missed(r, got) {
		require.Equal(t, nostr.Timestamp(100), ev.at)
	}
}
