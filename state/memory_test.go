package state_test

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/state/statetest"
)

func TestMemory(t *testing.T) {
	statetest.Run(t, func(*testing.T) state.Store { return state.NewMemory() })
}

func TestMemoryMaxEntries(t *testing.T) {
	ctx := t.Context()
	m := state.NewBoundedMemory(2, 1<<20)
	a, err := m.CompareAndSwap(ctx, "a", state.Absent, []byte("1"))
	require.NoError(t, err)
	_, err = m.CompareAndSwap(ctx, "b", state.Absent, []byte("2"))
	require.NoError(t, err)

	v, err := m.CompareAndSwap(ctx, "c", state.Absent, []byte("3"))
	require.ErrorIs(t, err, state.ErrFull)
	assert.Equal(t, state.Absent, v)
	_, _, err = m.Get(ctx, "c")
	require.ErrorIs(t, err, state.ErrNotFound, "what was refused must not be there")

	a, err = m.CompareAndSwap(ctx, "a", a, []byte("1 again"))
	require.NoError(t, err, "a full store still takes changes of what it has")
	require.NoError(t, m.Delete(ctx, "a", a))
	_, err = m.CompareAndSwap(ctx, "c", state.Absent, []byte("3"))
	require.NoError(t, err, "a deletion makes room")
	assert.Equal(t, state.Usage{Entries: 2, Bytes: 4, Refused: 1}, m.Usage())
}

func TestMemoryMaxBytes(t *testing.T) {
	ctx := t.Context()
	m := state.NewBoundedMemory(100, 10)
	_, err := m.CompareAndSwap(ctx, "k", state.Absent, bytes.Repeat([]byte("x"), 10))
	require.ErrorIs(t, err, state.ErrFull, "the key counts as well")
	v, err := m.CompareAndSwap(ctx, "k", state.Absent, bytes.Repeat([]byte("x"), 9))
	require.NoError(t, err)
	_, err = m.CompareAndSwap(ctx, "l", state.Absent, nil)
	require.ErrorIs(t, err, state.ErrFull)
	_, err = m.CompareAndSwap(ctx, "k", v, bytes.Repeat([]byte("x"), 10))
	require.ErrorIs(t, err, state.ErrFull)
	got, at, err := m.Get(ctx, "k")
	require.NoError(t, err)
	assert.Len(t, got, 9)
	assert.Equal(t, v, at, "a refused swap changes nothing")
	v, err = m.CompareAndSwap(ctx, "k", v, nil)
	require.NoError(t, err)
	assert.Equal(t, state.Usage{Entries: 1, Bytes: 1, Refused: 3}, m.Usage())
	require.NoError(t, m.Delete(ctx, "k", v))
	assert.Equal(t, state.Usage{Refused: 3}, m.Usage())
}

// A conflict is reported as one even where the value would not have fitted: the
// caller's next step is to read again, not to make room.
func TestMemoryConflictBeforeFull(t *testing.T) {
	ctx := t.Context()
	m := state.NewBoundedMemory(1, 1<<20)
	_, err := m.CompareAndSwap(ctx, "a", state.Absent, nil)
	require.NoError(t, err)
	_, err = m.CompareAndSwap(ctx, "b", 77, nil)
	require.ErrorIs(t, err, state.ErrConflict)
	assert.Zero(t, m.Usage().Refused)
}
