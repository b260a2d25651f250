package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The measurements depend on the properties of these events.
func TestHub(t *testing.T) {
	n := testEvents(1000)
	events, err := newHub(n)
	require.NoError(t, err)
	require.Len(t, events, n)
	ids, size, tags := make(map[string]bool), 0, 0
	for _, ev := range events {
		require.True(t, ev.CheckID())
		ok, err := ev.CheckSignature()
		require.NoError(t, err)
		require.True(t, ok)
		ids[ev.ID] = true
		size += len(ev.String())
		tags += len(ev.Tags)
	}
	require.Len(t, ids, n)
	require.InDelta(t, 1159, size/n, 40)
	require.Equal(t, 8*n, tags)
}
