package state_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/state/statetest"
)

func TestMemory(t *testing.T) {
	statetest.Run(t, func(*testing.T) state.Store { return state.NewMemory() })
}

// bounded tests a store with room for 10 bytes.
func bounded(t *testing.T, s state.Store) {
	t.Helper()
	put := func(key, value string) error { return s.Put(t.Context(), state.Record{Key: key, Value: []byte(value)}) }
	require.ErrorIs(t, put("k", "0123456789"), state.ErrFull, "the key counts as well")
	require.NoError(t, put("k", "012345678"))
	require.ErrorIs(t, put("l", ""), state.ErrFull)
	require.ErrorIs(t, s.Put(t.Context(), state.Record{Key: "k", Value: []byte("1")}, state.Record{Key: "l", Value: make([]byte, 20)}), state.ErrFull)
	got, err := get(t.Context(), s, "k")
	require.NoError(t, err)
	require.Equal(t, "012345678", string(got), "a batch that is refused changes nothing")
	require.NoError(t, put("k", "876543210"), "a full store takes changes of its records")
	require.NoError(t, s.Delete(t.Context(), "k"))
	require.NoError(t, put("l", "0123"))
	require.NoError(t, put("k", "0123"))
}
