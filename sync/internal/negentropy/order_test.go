package negentropy

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// Items in any order are sorted without duplicates, for few different times, many times, and times
// that leave no bits for an index.
func TestSetInOrder(t *testing.T) {
	r := newRand(7)
	for _, span := range []uint64{1, 2, 100, 1 << 11, 1<<11 + 1, 1 << 22, 1 << 33, 1 << 52, 1 << 62, math.MaxUint64} {
		for _, n := range []int{2, 3, 17, 5000} {
			t.Run(fmt.Sprintf("%d in %d", n, span), func(t *testing.T) {
				var items []Item
				for range n {
					it := Item{CreatedAt: math.MaxUint64 - span + r.Uint64N(span), ID: randomID(r)}
					if r.IntN(4) == 0 {
						it.ID[0] = 7
					}
					items = append(items, it)
					if r.IntN(5) == 0 {
						items = append(items, it)
					}
				}
				if endless := r.IntN(2) == 0; endless {
					items = append(items, Item{CreatedAt: infinity})
				}
				r.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
				given := slices.Clone(items)
				s := NewSet(items)
				require.Equal(t, given, items, "what was given is not changed")

				slices.SortFunc(items, Item.compare)
				items = slices.Compact(items)
				items = slices.DeleteFunc(items, func(it Item) bool { return it.CreatedAt == infinity })
				require.Equal(t, len(items), s.Len())
				for i, it := range items {
					require.Equal(t, it, Item{s.times[i], s.ids[i]})
				}
			})
		}
	}
}
