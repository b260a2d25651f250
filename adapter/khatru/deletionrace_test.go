package khatruadapter

import (
	"context"
	"errors"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fiatjaf/eventstore/slicestore"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/internal/embedding"
	"github.com/graspsync/graspsync/internal/eventtest"
)

// stuck is a backend that can fail to remove events.
type stuck struct {
	*slicestore.SliceStore
	keeps atomic.Bool
}

func (s *stuck) DeleteEvent(ctx context.Context, e *nostr.Event) error {
	if s.keeps.Load() {
		return errors.New("disk full")
	}
	return s.SliceStore.DeleteEvent(ctx, e)
}

// An event that was deleted between the hooks, and whose removal failed at that moment, was served
// until the next start.
func TestDeletionBetweenTheHooksIsTriedAgain(t *testing.T) {
	relay := khatru.NewRelay()
	synctest.Test(t, func(t *testing.T) {
		db := &stuck{SliceStore: newSlice(t)}
		e := event(alice, 1621, start)
		deletion := event(alice, 5, start+5, nostr.Tag{"e", e.ID})
		var store *embedding.Imports
		relay.OnEventSaved = append(relay.OnEventSaved, func(_ context.Context, stored *nostr.Event) {
			if stored.ID == e.ID {
				db.keeps.Store(true)
				out, err := store.Save(t.Context(), []graspsync.Incoming{{Event: eventtest.Of(deletion)}})
				require.NoError(t, err)
				require.Equal(t, graspsync.Failed, out[0].Result) // it is stored and not executed
			}
		})
		var s *Sync
		expectLog(t, "ERROR removing a deleted event failed, will retry")
		s, store, _ = embed(t, relay, db, Config{})
		stop := run(t, s)
		time.Sleep(time.Second)
		synctest.Wait()
		_, err := relay.AddEvent(t.Context(), e)
		require.NoError(t, err)
		time.Sleep(time.Second)
		synctest.Wait()
		require.Contains(t, content(t, s.Store()), e.ID, "else nothing is tested")
		db.keeps.Store(false)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, []string{deletion.ID}, content(t, s.Store()))
		stop()
	})
}

// khatru looks for deletions in tags named "#e" and "#a". Such tags of a stranger must not block
// events of other authors.
func TestDeletionsOfStrangersThatKhatruBelieves(t *testing.T) {
	relay, db := khatru.NewRelay(), newSlice(t)
	s, _, _ := embed(t, relay, db, Config{})
	server := httptest.NewServer(relay)
	defer server.Close()
	owner, mallory := nostr.GeneratePrivateKey(), nostr.GeneratePrivateKey()
	state, issue := signed(t, owner, 30618, nostr.Tag{"d", "repo"}), signed(t, owner, 1621)
	deletion := signed(t, mallory, 5, nostr.Tag{"#a", "30618:" + state.PubKey + ":repo"}, nostr.Tag{"#e", issue.ID})
	c := dial(t, server.URL)
	for _, e := range []*nostr.Event{deletion, state, issue} {
		require.JSONEq(t, `["OK","`+e.ID+`",true,""]`, c.say(`["EVENT",%s]`, e))
	}
	require.Len(t, content(t, s.Store()), 3)
	require.Contains(t, c.say(`["REQ","x",{"##e":[%q]}]`, issue.ID), deletion.ID, "who asks for such a tag gets it")
}
