package eventstoreadapter_test

import (
	"fmt"
	"testing"

	"github.com/fiatjaf/eventstore"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	eventstoreadapter "github.com/graspsync/graspsync/adapter/eventstore"
)

func TestTrapT11_ReadsBeyondTheDefaultLimit(t *testing.T) {
	for name, db := range map[string]eventstore.Store{"slicestore": newSlice(t, 0), "badger": newBadger(t, 0)} {
		s := newStore(t, db, eventstoreadapter.Config{})
		events, _ := hub(1200)
		save(t, s, events...)
		ids, err := read(t.Context(), s, nostr.Filter{Kinds: []int{1621}})
		require.NoError(t, err)
		assert.Len(t, ids, 1200, name)
	}
}

func ptr[T any](v T) *T { return &v }

func TestVersionsBehindOtherTags(t *testing.T) {
	s := newStore(t, newBadger(t, 0), eventstoreadapter.Config{})
	d := nostr.Tag{"d", "repo"}
	old := event(alice, 30617, start, d)
	other := event(alice, 30617, start+10, nostr.Tag{"d", "other"}, d)
	late := event(alice, 30617, start+5, d)
	outcomes := save(t, s, old, other, late)
	assert.Equal(t, []graspsync.Result{graspsync.Stored, graspsync.Stored, graspsync.Stored}, results(outcomes))
	ids, err := read(t.Context(), s, nostr.Filter{Kinds: []int{30617}, Authors: []string{alice}, Tags: nostr.TagMap{"d": {"repo"}}})
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{other.ID, late.ID}, ids)
}

func TestHostilePrefixes(t *testing.T) {
	for _, maxLimit := range []int{0, 100} {
		s := newStore(t, newBadger(t, maxLimit), eventstoreadapter.Config{})
		repo := "30617:" + bob + ":repo"
		var events []*nostr.Event
		for i := range 900 {
			// bytes that sort between two times of the victim's events
			value := repo + string([]byte{0x65, 0x54, byte(i % 3), 0}) + fmt.Sprint(i)
			events = append(events, event(alice, 1, start-10_000_000-nostr.Timestamp(i), nostr.Tag{"a", value}))
		}
		var want []string
		for i := range 50 {
			e := event(bob, 1621, start+nostr.Timestamp(i-25)*100_000, nostr.Tag{"a", repo})
			events, want = append(events, e), append(want, e.ID)
		}
		save(t, s, events...)
		for _, since := range []nostr.Timestamp{0, start - 5_000_000} {
			ids, err := read(t.Context(), s, nostr.Filter{Tags: nostr.TagMap{"a": {repo}}, Since: &since})
			require.NoError(t, err)
			assert.ElementsMatch(t, want, ids)
		}
	}
}
