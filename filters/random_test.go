package filters_test

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/internal/goldentest"
)

func drawnID(n int) (id graspsync.EventID) {
	id[0], id[1], id[2] = byte(n>>16), byte(n>>8), byte(n)
	return id
}

// drawnFilter has lists of any kind, of any length.
func drawnFilter(rng *rand.Rand) (f nostr.Filter) {
	list := func(n int) (out []string) {
		for i := range rng.IntN(n) {
			out = append(out, []string{drawnID(i).String(), fmt.Sprint("v\"\n<\u2028", i), fmt.Sprint(i)}[rng.IntN(3)])
		}
		return out
	}
	for _, tag := range []string{"e", "a", "q"} {
		if rng.IntN(3) == 0 {
			f.Tags = filters.WithList(f.Tags, tag, list(12))
		}
	}
	if rng.IntN(3) == 0 {
		f.Kinds = []int{1, 5, 30617, 30618, -3, 1618}[:rng.IntN(7)]
	}
	if rng.IntN(4) == 0 {
		f.Authors = list(6)
	}
	if rng.IntN(5) == 0 {
		f.IDs = list(6)
	}
	since, until := nostr.Timestamp(rng.IntN(2000)), nostr.Timestamp(rng.IntN(3000)-5)
	if rng.IntN(4) == 0 {
		f.Since = &since
	}
	if rng.IntN(4) == 0 {
		f.Until = &until
	}
	f.Limit, f.LimitZero = rng.IntN(2)*rng.IntN(600), rng.IntN(6) == 0
	f.Search = []string{"", "", "", "words"}[rng.IntN(4)]
	return f
}

// spelled writes out a filter in one order, which its JSON has not, and else anything.
func spelled(v any) string {
	switch v := v.(type) {
	case nostr.Filter:
		at := func(ts *nostr.Timestamp) any {
			if ts == nil {
				return "-"
			}
			return *ts
		}
		return fmt.Sprintf("%q %v %q %q %t %v %v %d %t %q", v.IDs, v.Kinds, v.Authors, v.Tags, v.Tags == nil, at(v.Since), at(v.Until), v.Limit, v.LimitZero, v.Search)
	case []nostr.Filter:
		out := fmt.Sprint(len(v))
		for _, f := range v {
			out += " | " + spelled(f)
		}
		return out
	}
	return fmt.Sprint(v)
}

// Whatever is answered, the next question is what it was before.
func TestDrawnAnswers(t *testing.T) {
	sums := goldentest.NewSums(t, "testdata/drawn.sum")
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 31))
		var all []string
		say := func(v ...any) {
			for _, v := range v {
				all = append(all, spelled(v))
			}
		}
		ev := func(dense int) *nostr.Event {
			n := rng.IntN(400)
			return &nostr.Event{
				ID: drawnID(n).String(), PubKey: drawnID(n % 5).String(), Kind: []int{1, 5, 1618}[n%3],
				CreatedAt: nostr.Timestamp(1_000 - rng.IntN(100)/dense*3), Tags: nostr.Tags{{"e", fmt.Sprint(n % 7)}},
			}
		}
		w := filters.NewWalk(drawnFilter(rng), filters.WalkStart{Limit: rng.IntN(12), PageSize: rng.IntN(9), Until: int64(rng.IntN(3) * 970)})
		dense := 1 + rng.IntN(30)
		for range 40 {
			say(w.Next())
			for range rng.IntN(9) * rng.IntN(3) {
				e := ev(dense)
				id, err := graspsync.ParseEventID(e.ID)
				require.NoError(t, err)
				say(w.Saw(id, e.CreatedAt))
			}
			at, size := w.Doubt()
			say(w.End(rng.IntN(15) == 0, rng.IntN(9) == 0), w.Gaps(), at, size, w.Done(), w.Ended(), w.Complete(), w.Until(), w.PageSize(), w.Largest(), w.Pages())
			if w.Done() {
				break
			}
		}
		s := filters.NewSplit(drawnFilter(rng), 1_000, filters.SplitBounds{Limit: 1 + rng.IntN(8), Page: rng.IntN(6), Requests: []int{0, 5, 40}[rng.IntN(3)]})
		for range 60 {
			f, ok := s.Next()
			say(f, ok)
			if !ok {
				break
			}
			for range rng.IntN(10) {
				e := ev(1_000)
				id, err := graspsync.ParseEventID(e.ID)
				require.NoError(t, err)
				if rng.IntN(5) == 0 {
					s.Heard(e)
				} else {
					s.Saw(id, e)
				}
			}
			s.End(rng.IntN(8) == 0, rng.IntN(8) == 0)
			say(s.Done(), s.Complete(), s.Seen())
		}
		var fs []nostr.Filter
		for range rng.IntN(8) {
			f := drawnFilter(rng)
			fs = append(fs, f)
			a, b, ok := filters.Halve(f)
			name, n := filters.Longest(f, rng.IntN(2) == 0)
			say(f, filters.Size(f), filters.Empty(f), a, b, ok, name, n, filters.Live(f), filters.AtMost(f, rng.IntN(5)), filters.WithKinds(f))
		}
		reqs, tooLarge := filters.Pack(fs, []int{0, 120, 300, 1_000}[rng.IntN(4)], rng.IntN(6))
		for _, r := range reqs {
			say(r)
		}
		say(tooLarge)
		m := filters.Compile(fs)
		for range 30 {
			e := ev(3)
			say(e, m.Match(e))
		}
		sums.Equal(t, fmt.Sprint(seed), all)
	}
}
