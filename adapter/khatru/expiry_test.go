package khatruadapter

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fiatjaf/eventstore/slicestore"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/adapter/internal/embedding"
	"github.com/graspsync/graspsync/internal/backendcaps"
	"github.com/graspsync/graspsync/internal/racetest"
)

func TestExpiry(t *testing.T) {
	relay := khatru.NewRelay()
	synctest.Test(t, func(t *testing.T) {
		db := newSlice(t)
		expires := func(after time.Duration) *nostr.Event {
			return event(alice, 1, start, nostr.Tag{"expiration", fmt.Sprint(time.Now().Add(after).Unix())})
		}
		before := []*nostr.Event{expires(time.Minute), expires(2 * time.Minute), expires(3 * time.Minute), event(alice, 1, start)}
		late := []*nostr.Event{expires(1000 * time.Hour), expires(1001 * time.Hour)} // they take all room
		for _, e := range slices.Concat(late, before) {
			require.NoError(t, db.SaveEvent(t.Context(), e))
		}
		relay.DeleteEvent = append(relay.DeleteEvent, func(context.Context, *nostr.Event) error { panic("index is gone") })
		expectLog(t, "ERROR relay hook failed DeleteEvent")
		s, store, m := embed(t, relay, db, Config{})
		s.core.Upkeep = embedding.NewUpkeep(s.core, 2)
		stop := run(t, s)
		synctest.Wait()
		assert.Empty(t, m.gone())
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.Equal(t, []string{before[0].ID}, m.gone())
		synced := expires(30 * time.Second)
		importEvents(t, store, synced)
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.ElementsMatch(t, []string{before[0].ID, synced.ID, before[1].ID}, m.gone())
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		assert.Equal(t, before[2].ID, m.gone()[3])
		assert.ElementsMatch(t, []string{before[3].ID, late[0].ID, late[1].ID}, content(t, s.Store()))
		stop()
	})
}

type failing struct {
	*slicestore.SliceStore
	mu  sync.Mutex
	err error
}

func (f *failing) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *failing) QueryEvents(ctx context.Context, filter nostr.Filter) (chan *nostr.Event, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.err != nil {
		return nil, f.err
	}
	return f.SliceStore.QueryEvents(ctx, filter)
}

func TestExpiryOfFailingStore(t *testing.T) {
	relay := khatru.NewRelay()
	synctest.Test(t, func(t *testing.T) {
		db := &failing{SliceStore: newSlice(t)}
		e := event(alice, 1, start, nostr.Tag{"expiration", fmt.Sprint(time.Now().Add(150 * time.Second).Unix())})
		require.NoError(t, db.SaveEvent(t.Context(), e))
		db.fail(errors.New("boom"))
		expectLog(t, "ERROR removing expired events failed", "ERROR reading deletions failed", "ERROR applying stored deletions failed")
		s, _, m := embed(t, relay, db, Config{})
		stop := run(t, s)
		time.Sleep(61 * time.Second)
		db.fail(nil)
		time.Sleep(60 * time.Second) // found
		db.fail(errors.New("boom"))
		time.Sleep(60 * time.Second) // removal failed
		assert.Empty(t, m.gone())
		db.fail(nil)
		time.Sleep(61 * time.Second)
		synctest.Wait()
		assert.Equal(t, []string{e.ID}, m.gone())

		db.fail(errors.New("boom"))
		reject, msg := s.reject(t.Context(), event(alice, 1, start))
		assert.True(t, reject)
		assert.Equal(t, embedding.MsgLookup, msg)
		stop()
	})
}

// clinging is a backend that cannot remove one event.
type clinging struct {
	*slicestore.SliceStore
	id atomic.Pointer[string]
}

func (c *clinging) DeleteEvent(ctx context.Context, e *nostr.Event) error {
	if e.ID == *c.id.Load() {
		return errors.New("input/output error")
	}
	return c.SliceStore.DeleteEvent(ctx, e)
}

// One event that could not be removed blocked the removal of all later expired events and the
// reading of more.
func TestExpiryOfOneThatStays(t *testing.T) {
	relay := khatru.NewRelay()
	synctest.Test(t, func(t *testing.T) {
		db := &clinging{SliceStore: newSlice(t)}
		expires := func(after time.Duration) *nostr.Event {
			e := event(alice, 1, start, nostr.Tag{"expiration", fmt.Sprint(time.Now().Add(after).Unix())})
			require.NoError(t, db.SaveEvent(t.Context(), e))
			return e
		}
		var all, others []string
		for i := range 6 {
			all = append(all, expires(time.Minute+time.Duration(i)*time.Second).ID)
		}
		others = all[1:]
		db.id.Store(&all[0])
		expectLog(t, "ERROR removing expired events failed")
		s, _, m := embed(t, relay, db, Config{})
		stop := run(t, s)
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		assert.ElementsMatch(t, others, m.gone())
		assert.Equal(t, all[:1], content(t, s.Store()))
		db.id.Store(new(string))
		time.Sleep(time.Minute)
		synctest.Wait()
		assert.ElementsMatch(t, all, m.gone())
		stop()
	})
}

// counted counts queries.
type counted struct {
	*slicestore.SliceStore
	n atomic.Int64
}

func (c *counted) QueryEvents(ctx context.Context, f nostr.Filter) (chan *nostr.Event, error) {
	c.n.Add(1)
	return c.SliceStore.QueryEvents(ctx, f)
}

// Caps implements [backendcaps.Describer]. It cannot read more than 500 events of one second.
func (c *counted) Caps() backendcaps.Caps {
	return backendcaps.Caps{Page: 500, Memory: true, Uncounted: true, Indexed: func(string, string) bool { return true }}
}

// If one second had more events than a page of the store, the whole store was read every minute.
func TestIncompleteStoreIsNotReadAgain(t *testing.T) {
	racetest.Foreign(t, "slicestore deletes with one")
	for _, kind := range []int{1621, 5} { // expiry reads all kinds, deletions are read separately
		relay := khatru.NewRelay()
		synctest.Test(t, func(t *testing.T) {
			db := &counted{SliceStore: &slicestore.SliceStore{MaxLimit: 500}}
			require.NoError(t, db.Init())
			expires := event(alice, 1, start, nostr.Tag{"expiration", fmt.Sprint(time.Now().Add(time.Hour).Unix())})
			require.NoError(t, db.SaveEvent(t.Context(), expires))
			for range 600 {
				require.NoError(t, db.SaveEvent(t.Context(), event(bob, kind, start+1, nostr.Tag{"e", expires.PubKey})))
			}
			expectLog(t, "WARN store did not return all of its events")
			s, _, m := embed(t, relay, db, Config{})
			stop := run(t, s)
			time.Sleep(time.Minute / 2)
			first := db.n.Load()
			time.Sleep(2 * time.Hour)
			assert.Less(t, db.n.Load()-first, int64(10), "queries in two hours")
			assert.Equal(t, []string{expires.ID}, m.gone(), "what was read expires")
			stop()
		})
	}
}
