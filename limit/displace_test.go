package limit_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/limit"
)

// If all owners have equal shares, the oldest entry that is at least as large is evicted. A large
// entry does not evict small ones.
func TestDisplace(t *testing.T) {
	table := limit.NewTable[string, int](3, 30)
	put := func(key string, bytes int64) (evicted []string, ok bool) {
		gone, ok := table.Displace(key, limit.Stranger{ID: key[:1]}, bytes, 0)
		for _, e := range gone {
			evicted = append(evicted, e.Key)
		}
		return evicted, ok
	}
	for _, key := range []string{"a1", "b1", "c1"} {
		_, ok := put(key, 10)
		require.True(t, ok)
	}
	evicted, ok := put("d1", 10)
	require.True(t, ok)
	require.Equal(t, []string{"a1"}, evicted)
	evicted, ok = put("d2", 10)
	require.True(t, ok)
	require.Equal(t, []string{"d1"}, evicted, "of who has most")
	evicted, ok = put("e1", 11)
	require.False(t, ok)
	require.Empty(t, evicted)
	require.Equal(t, 3, table.Len())
}
