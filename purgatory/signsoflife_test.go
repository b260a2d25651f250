package purgatory_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/state"
)

// The hold of an announcement is extended by a new state of a maintainer, an authorized push, and a
// newer version. It is not extended by a copy, a state of another key, or a push for a pull
// request. A restart changes nothing.
func TestSignsOfLife(t *testing.T) {
	for name, c := range map[string]struct {
		alive   bool
		happens func(w *world, a, s *nostrEvent)
	}{
		"nothing":             {false, func(*world, *nostrEvent, *nostrEvent) {}},
		"a new state":         {true, func(w *world, _, _ *nostrEvent) { w.held(says(alice, now(), "main", 2)) }},
		"the same state":      {false, func(w *world, _, s *nostrEvent) { w.held(s) }},
		"the same once more":  {false, func(w *world, a, _ *nostrEvent) { w.held(a) }},
		"a stranger's state":  {false, func(w *world, _, _ *nostrEvent) { w.held(says(carol, now(), "main", 2)) }},
		"a newer version":     {true, func(w *world, _, _ *nostrEvent) { w.held(announce(alice, now())) }},
		"an older version":    {false, func(w *world, _, _ *nostrEvent) { w.submit(announce(alice, now()-5000), false) }},
		"an authorised push":  {true, func(w *world, _, _ *nostrEvent) { w.told(branch("main")) }},
		"a push for an event": {false, func(w *world, _, _ *nostrEvent) { w.told(nip34.EventRef(graspsync.EventID{1})) }},
		"a push for both":     {true, func(w *world, _, _ *nostrEvent) { w.told(nip34.EventRef(graspsync.EventID{1}), branch("main")) }},
		"a pull request for it": {false, func(w *world, _, _ *nostrEvent) {
			w.held(pull(carol, repoOf(alice), 5, graspsync.KindPullRequest))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, purgatory.Config{}, func(t *testing.T, w *world) {
				a, s := announce(alice, now()), says(alice, now(), "main", 1)
				w.held(a)
				w.held(s)
				wait(20 * time.Minute)
				c.happens(w, a, s)
				wait(time.Minute)
				w.stop()
				w.start()
				wait(9*time.Minute + 15*time.Second) // 30 min after arrival, plus the longest delay by a release
				require.Equal(t, c.alive, len(w.p.Announcements("r")) > 0 && w.git.Has(repoOf(alice)))
				wait(20 * time.Minute)
				require.False(t, w.git.Has(repoOf(alice)), "50 min and as long")
			})
		})
	}
}

func (w *world) told(refs ...nip34.RefName) {
	w.p.Pushed(w.t.Context(), repoOf(alice), refs)
}

// fullStore is a store that is full for records of expired events.
type fullStore struct{ state.Store }

func (s fullStore) Put(ctx context.Context, records ...state.Record) error {
	if strings.HasPrefix(records[0].Key, "purgatory/expired/") {
		return state.ErrFull
	}
	return s.Store.Put(ctx, records...)
}

// slowStore is a store that is slow for records of expired events.
type slowStore struct{ state.Store }

func (s slowStore) Put(ctx context.Context, records ...state.Record) error {
	if strings.HasPrefix(records[0].Key, "purgatory/expired/") {
		wait(time.Minute)
	}
	return s.Store.Put(ctx, records...)
}

// While an event expires slowly, the engine sleeps. It woke up 100 times per second.
func TestSlowExpiryWakesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, purgatory.Config{})
		w.state = slowStore{w.state}
		w.start()
		defer w.stop()
		w.relay.put(announce(alice, now()))
		w.held(says(alice, now(), "main", 1))
		wait(30*time.Minute + 10*time.Second)
		require.Len(t, w.p.Held(nostrFilter{}), 1)
		require.True(t, w.p.NextExpiry().IsZero())
		wait(2 * time.Minute)
		require.Empty(t, w.p.Held(nostrFilter{}))
	})
}

// A full store does not keep events from expiring, because expiry frees space.
func TestExpiresThoughTheStoreIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, purgatory.Config{})
		w.state = fullStore{w.state}
		w.start()
		w.relay.put(announce(alice, now()))
		s := says(alice, now(), "main", 1)
		w.held(s)
		wait(31 * time.Minute)
		require.Empty(t, w.p.Held(nostrFilter{}))
		require.Equal(t, purgatory.Refused, w.submit(s, false), "it is remembered, if only till the next start")
		w.stop()
		w.start()
		require.Empty(t, w.p.Held(nostrFilter{}))
		w.stop()
	})
}
