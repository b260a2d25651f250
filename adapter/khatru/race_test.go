package khatruadapter

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/adapter/internal/embedding"
)

// A synced deletion that arrived after a published event was stored, and before it was reported as
// stored, was forgotten: the event counted as stored.
func TestDeletionBetweenTheHooksOfAnEvent(t *testing.T) {
	for name, kind := range map[string]int{"issue": 1621, "announcement": 30617} {
		t.Run(name, func(t *testing.T) {
			relay, db, second, deleted := withSecond(t)
			e := event(alice, kind, start, nostr.Tag{"d", "repo"})
			names := nostr.Tag{"e", e.ID}
			if kind == 30617 {
				names = nostr.Tag{"a", "30617:" + alice + ":repo"}
			}
			deletion := event(alice, 5, start+5, names)
			var store *embedding.Imports
			relay.OnEventSaved = append(relay.OnEventSaved, func(_ context.Context, stored *nostr.Event) {
				if stored.ID == e.ID {
					importEvents(t, store, deletion)
				}
			})
			_, store, m := embed(t, relay, db, Config{})
			_, err := relay.AddEvent(t.Context(), e)
			require.NoError(t, err)
			assert.Equal(t, []string{deletion.ID}, in(t, db))
			assert.Equal(t, []string{deletion.ID}, in(t, second))
			assert.Contains(t, *deleted, e.ID)
			assert.Equal(t, []string{e.ID}, m.gone(), "what was followed is not any more")
		})
	}
}

// With concurrent published events and synced deletions of them, no deleted event is left and no
// call blocks forever.
func TestSavesAndDeletionsAtOnce(t *testing.T) {
	relay := khatru.NewRelay()
	s, store, _ := embed(t, relay, newSlice(t), Config{})
	var wg sync.WaitGroup
	var deletions []string
	for i := range 40 {
		e := event([]string{alice, bob}[i%2], 1621, start+nostr.Timestamp(i), nostr.Tag{"n", fmt.Sprint(i)})
		d := event(e.PubKey, 5, start+100, nostr.Tag{"e", e.ID})
		deletions = append(deletions, d.ID)
		wg.Go(func() { _, _ = relay.AddEvent(context.Background(), e) }) // it can be refused already
		wg.Go(func() { importEvents(t, store, d) })
	}
	wg.Wait()
	assert.ElementsMatch(t, deletions, content(t, s.Store()))
}
