package heap_test

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/heap"
)

type item struct{ rank, id, at int }

// Whatever is pushed, changed and taken out, the first is the least of what is there, and
// each item knows its place.
func TestAgainstAList(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	order := func(a, b *item) int { return cmp.Or(a.rank-b.rank, a.id-b.id) }
	h := heap.New(func(a, b *item) bool { return order(a, b) < 0 }, func(x *item, at int) { x.at = at })
	_, ok := h.First()
	require.False(t, ok)
	var list []*item
	for n := range 5000 {
		switch what := rng.IntN(5); {
		case what < 2 || len(list) == 0:
			x := &item{rank: rng.IntN(50), id: n, at: -1}
			list = append(list, x)
			h.Push(x)
		case what < 4:
			x := list[rng.IntN(len(list))]
			x.rank = rng.IntN(50)
			h.Fix(x.at)
		default:
			i := rng.IntN(len(list))
			x := list[i]
			list = slices.Delete(list, i, i+1)
			h.Remove(x.at)
			require.Equal(t, -1, x.at)
		}
		require.Equal(t, len(list), h.Len())
		first, ok := h.First()
		require.Equal(t, len(list) > 0, ok)
		if ok {
			require.Same(t, slices.MinFunc(list, order), first)
		}
	}
}
