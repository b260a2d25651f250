package khatruadapter

import (
	"errors"
	"testing"

	"fiatjaf.com/nostr"
	"fiatjaf.com/nostr/eventstore"
	"fiatjaf.com/nostr/khatru"
	"github.com/stretchr/testify/require"
)

// failsToDelete is a backend that can fail to execute a stored deletion.
type failsToDelete struct {
	eventstore.Store
	fails bool
}

func (b *failsToDelete) DeleteEvent(id nostr.ID) error {
	if b.fails {
		return errors.New("disk")
	}
	return b.Store.DeleteEvent(id)
}

// An event whose saving failed half-way and that was submitted again was stored without calls of
// hooks.
func TestSubmittedAgainAfterAFailure(t *testing.T) {
	relay, db := khatru.NewRelay(), &failsToDelete{Store: newBolt(t)}
	s, _, m := embed(t, relay, db, Config{})
	e := event(alice, 1, start)
	require.NoError(t, publish(t, relay, e))
	db.fails = true
	deletion := event(alice, 5, start+1, nostr.Tag{"e", e.ID.Hex()})
	require.Error(t, publish(t, relay, deletion))
	db.fails = false
	skip, err := relay.AddEvent(t.Context(), deletion)
	require.NoError(t, err)
	require.False(t, skip)
	require.Len(t, m.stored, 2)
	require.Equal(t, []nostr.ID{deletion.ID}, content(t, s.Store()))
	skip, err = relay.AddEvent(t.Context(), deletion)
	require.NoError(t, err)
	require.True(t, skip, "it is known now")
}
