package bounded

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

// A table is what a list is that is searched from its beginning.
func TestTableAgainstAList(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 1))
		most := rng.IntN(6)
		table := New[int, int](most)
		var keys []int
		values := make(map[int]int)
		var dropped uint64
		for n := range 500 {
			k := rng.IntN(10)
			at := slices.Index(keys, k)
			if at >= 0 {
				keys = slices.Delete(keys, at, at+1)
			}
			if rng.IntN(4) == 0 {
				delete(values, k)
				require.Equal(t, at >= 0, table.Remove(k))
			} else {
				keys, values[k] = append(keys, k), n
				gone, over := table.Set(k, n)
				require.Equal(t, len(keys) > most, over)
				if over {
					require.Equal(t, keys[0], gone)
					delete(values, keys[0])
					keys = keys[1:]
					dropped++
				}
			}
			var got []int
			for k := range table.All() {
				got = append(got, k)
			}
			require.True(t, slices.Equal(keys, got), "%v, %v", keys, got)
			require.Equal(t, len(keys), table.Len())
			require.Equal(t, values, maps.Collect(table.All()))
			v, ok := table.Get(k)
			want, known := values[k]
			require.Equal(t, []any{want, known}, []any{v, ok})
			first, v, ok := table.Oldest()
			if require.Equal(t, len(keys) > 0, ok); ok {
				require.Equal(t, []int{keys[0], values[keys[0]]}, []int{first, v})
			}
			require.Equal(t, dropped, table.Dropped())
		}
	}
}

// Who has seen enough is given no more.
func TestAllEnds(t *testing.T) {
	table := New[int, int](3)
	for k := range 3 {
		table.Set(k, k)
	}
	for k := range table.All() {
		require.Zero(t, k)
		break
	}
}
