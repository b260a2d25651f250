package khatruadapter

import (
	"context"
	"errors"
	"testing"

	"github.com/fiatjaf/eventstore/slicestore"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"
)

// A version that is not newer was broadcast as if it were new.
func TestOlderVersionIsNotBroadcast(t *testing.T) {
	relay := khatru.NewRelay()
	s, _, m := embed(t, relay, newSlice(t), Config{})
	v1, v2 := event(alice, 30617, start, nostr.Tag{"d", "r"}), event(alice, 30617, start+1, nostr.Tag{"d", "r"})
	for i, e := range []*nostr.Event{v2, v1, v2} {
		skip, err := relay.AddEvent(t.Context(), e)
		require.NoError(t, err)
		require.Equal(t, i > 0, skip, "%d", i)
	}
	require.Len(t, m.stored, 1)
	require.Equal(t, []string{v2.ID}, content(t, s.Store()))
}

// failsToDelete is a backend that can fail to execute a stored deletion.
type failsToDelete struct {
	*slicestore.SliceStore
	fails bool
}

func (b *failsToDelete) DeleteEvent(ctx context.Context, e *nostr.Event) error {
	if b.fails {
		return errors.New("disk")
	}
	return b.SliceStore.DeleteEvent(ctx, e)
}

// An event whose saving failed half-way and that was submitted again was stored without calls of
// hooks.
func TestSubmittedAgainAfterAFailure(t *testing.T) {
	expectLog(t, "ERROR storing an event failed")
	relay, db := khatru.NewRelay(), &failsToDelete{SliceStore: newSlice(t)}
	s, _, m := embed(t, relay, db, Config{})
	e := event(alice, 1, start)
	_, err := relay.AddEvent(t.Context(), e)
	require.NoError(t, err)
	db.fails = true
	deletion := event(alice, 5, start+1, nostr.Tag{"e", e.ID})
	_, err = relay.AddEvent(t.Context(), deletion)
	require.Error(t, err)
	db.fails = false
	skip, err := relay.AddEvent(t.Context(), deletion)
	require.NoError(t, err)
	require.False(t, skip)
	require.Len(t, m.stored, 2)
	require.Equal(t, []string{deletion.ID}, content(t, s.Store()))
	skip, err = relay.AddEvent(t.Context(), deletion)
	require.NoError(t, err)
	require.True(t, skip, "it is known now")
}
