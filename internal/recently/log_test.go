package recently_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/recently"
)

// Of each kind the newest are there, in order, and all are counted; kinds have a bound as well.
func TestLog(t *testing.T) {
	l := recently.New[string, int](3, 3)
	all := func() map[string][]int {
		out := make(map[string][]int)
		l.Each(func(k string, v int) { out[k] = append(out[k], v) })
		return out
	}
	require.Empty(t, all())
	l.Add("a", 1)
	l.Add("a", 2)
	require.Equal(t, map[string][]int{"a": {2, 1}}, all())
	require.True(t, l.Complete())
	for i := 3; i < 9; i++ {
		l.Add("a", i)
	}
	l.Add("b", 1)
	require.Equal(t, map[string][]int{"a": {8, 7, 6}, "b": {1}}, all())
	require.False(t, l.Complete())
	for _, k := range []string{"", "c", "d", "a"} {
		l.Add(k, 10)
	}
	require.Equal(t, map[string][]int{"a": {10, 8, 7}, "b": {1}, "": {10, 10, 10}}, all())
	require.Equal(t, map[string]uint64{"a": 9, "b": 1, "": 3}, l.Counts())
	require.Zero(t, testing.AllocsPerRun(100, func() { l.Add("a", 1) }))
}
