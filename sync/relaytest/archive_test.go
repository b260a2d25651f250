package relaytest

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/racetest"
)

// regular are kinds that are never replaced.
var regular = []int{1, 2, 1621}

// TestQueryAgainstNaive compares the indexed query with go-nostr's filters on a plain list.
func TestQueryAgainstNaive(t *testing.T) {
	racetest.Amounts(t)
	rng := rand.New(rand.NewPCG(1, 2))
	keys := []*Key{NewCheapKey("a"), NewCheapKey("b"), NewCheapKey("c")}
	values := []string{"u", "v", "w", "x", "y"}
	names := []string{"a", "e", "A", "word"}
	pick := func(from []string) []string {
		var some []string
		for _, v := range from {
			if rng.IntN(3) == 0 {
				some = append(some, v)
			}
		}
		return some
	}
	for range 30 {
		store := newArchive()
		model := map[string]*nostr.Event{}
		for i := range 200 {
			var tags nostr.Tags
			for range rng.IntN(4) {
				tags = append(tags, nostr.Tag{names[rng.IntN(4)], values[rng.IntN(5)], "x"})
			}
			ev := keys[rng.IntN(3)].Event(nostr.Timestamp(rng.IntN(50)), regular[rng.IntN(3)], fmt.Sprint(i), tags...)
			store.add(ev)
			model[ev.ID] = ev
			if rng.IntN(10) == 0 {
				for id := range model {
					store.drop(store.byID[id])
					delete(model, id)
					break
				}
			}
		}
		for range 200 {
			f := randomFilter(rng, model, keys, pick, values)
			var want []*nostr.Event
			for _, ev := range model {
				if f.Matches(ev) {
					want = append(want, ev)
				}
			}
			slices.SortFunc(want, order)
			var got []*nostr.Event
			for _, rec := range store.query(f) {
				got = append(got, rec.ev)
			}
			require.Equal(t, want, got, "%v", f)
		}
	}
}

func randomFilter(rng *rand.Rand, model map[string]*nostr.Event, keys []*Key, pick func([]string) []string, values []string) nostr.Filter {
	var f nostr.Filter
	if rng.IntN(4) == 0 {
		for id := range model {
			f.IDs = append(f.IDs, id, id)
			if len(f.IDs) > 20 {
				break
			}
		}
	}
	if rng.IntN(3) == 0 {
		f.Kinds = []int{regular[rng.IntN(3)], regular[rng.IntN(3)], 7}
	}
	if rng.IntN(4) == 0 {
		f.Authors = []string{keys[rng.IntN(3)].Hex()}
	}
	for _, name := range []string{"a", "e", "A"} {
		if some := pick(values); rng.IntN(4) == 0 && some != nil {
			if f.Tags == nil {
				f.Tags = nostr.TagMap{}
			}
			f.Tags[name] = some
		}
	}
	if rng.IntN(3) == 0 {
		at := nostr.Timestamp(rng.IntN(50))
		f.Since = &at
	}
	if rng.IntN(3) == 0 {
		at := nostr.Timestamp(rng.IntN(50))
		f.Until = &at
	}
	return f
}
