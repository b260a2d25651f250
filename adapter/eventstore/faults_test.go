package eventstoreadapter_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	eventstoreadapter "github.com/graspsync/graspsync/adapter/eventstore"
	"github.com/graspsync/graspsync/internal/eventtest"
)

func TestWrongAnswers(t *testing.T) {
	right, wrong := event(alice, 1, start), event(alice, 2, start)
	bad := event(alice, 1, start)
	bad.ID = "short"
	timeless := false
	db := &fake{limit: 500, query: func(_ context.Context, f nostr.Filter) (chan *nostr.Event, error) {
		ch := make(chan *nostr.Event, 9)
		if f.Until != nil && *f.Until < start && !timeless {
			close(ch)
			return ch, nil
		}
		ch <- right
		ch <- nil
		ch <- wrong
		ch <- bad
		ch <- right
		close(ch)
		return ch, nil
	}}
	s := newStore(t, db, eventstoreadapter.Config{})
	for _, f := range []nostr.Filter{{Kinds: []int{1}}, {IDs: []string{right.ID}}, {Kinds: []int{1, 7}}} {
		ids, err := read(t.Context(), s, f)
		require.NoError(t, err)
		assert.Equal(t, []string{right.ID}, ids)
	}
	timeless, db.limit = true, 4
	_, err := read(t.Context(), newStore(t, db, eventstoreadapter.Config{}), nostr.Filter{})
	require.ErrorIs(t, err, eventstoreadapter.ErrBackend, "no loop")
}

func TestFailingBackend(t *testing.T) {
	boom := errors.New("boom")
	e := event(alice, 1, start)
	for name, query := range map[string]func(context.Context, nostr.Filter) (chan *nostr.Event, error){
		"error":      func(context.Context, nostr.Filter) (chan *nostr.Event, error) { return nil, boom },
		"panic":      func(context.Context, nostr.Filter) (chan *nostr.Event, error) { panic("boom") },
		"no channel": func(context.Context, nostr.Filter) (chan *nostr.Event, error) { return nil, nil },
	} {
		t.Run(name, func(t *testing.T) {
			s := newStore(t, &fake{query: query}, eventstoreadapter.Config{})
			_, err := read(t.Context(), s, nostr.Filter{})
			require.ErrorIs(t, err, eventstoreadapter.ErrBackend)
			_, err = s.Has(t.Context(), []graspsync.EventID{idOf(e)})
			require.ErrorIs(t, err, eventstoreadapter.ErrBackend)
			_, err = s.Deleted(t.Context(), eventtest.Of(e))
			require.ErrorIs(t, err, eventstoreadapter.ErrBackend)
			_, err = s.Save(t.Context(), incoming(e))
			require.ErrorIs(t, err, eventstoreadapter.ErrBackend)
		})
	}
}

func TestSwallowedErrors(t *testing.T) {
	db := counting{fake: &fake{limit: 100}}
	s := newStore(t, db, eventstoreadapter.Config{})
	save(t, s, event(alice, 1, start), event(bob, 2, start))
	db.query = func(context.Context, nostr.Filter) (chan *nostr.Event, error) {
		ch := make(chan *nostr.Event)
		close(ch)
		return ch, nil
	}
	for _, f := range []nostr.Filter{{}, {Kinds: []int{1}}, {Authors: []string{alice, bob}}} {
		ids, err := read(t.Context(), s, f)
		require.Error(t, err)
		assert.Empty(t, ids)
	}
}

func TestFailingEvent(t *testing.T) {
	bad, good := event(alice, 1, start), event(alice, 1, start)
	for name, fail := range map[string]func() error{
		"error": func() error { return errors.New("boom") },
		"panic": func() error { panic("boom") },
	} {
		t.Run(name, func(t *testing.T) {
			db := &fake{limit: 100, save: func(e *nostr.Event) error {
				if e == bad {
					return fail()
				}
				return nil
			}}
			s := newStore(t, db, eventstoreadapter.Config{})
			outcomes := save(t, s, bad, good)
			assert.Equal(t, []graspsync.Result{graspsync.Failed, graspsync.Stored}, results(outcomes))
			assert.ErrorIs(t, outcomes[0].Err, eventstoreadapter.ErrBackend)
			db.save = nil
			outcomes = save(t, s, bad, good)
			assert.Equal(t, []graspsync.Result{graspsync.Stored, graspsync.Duplicate}, results(outcomes))
		})
	}
}

// Writable reports a failure after several consecutive failed writes, but not for one event that
// cannot be saved, and not longer than a minute.
func TestWritable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		down := true
		db := &fake{limit: 100, save: func(*nostr.Event) error {
			if down {
				return errors.New("boom")
			}
			return nil
		}}
		s := newStore(t, db, eventstoreadapter.Config{})
		bad := event(alice, 1, start)
		save(t, s, bad, bad)
		require.NoError(t, s.Writable())
		save(t, s, event(alice, 1, start))
		require.ErrorContains(t, s.Writable(), "boom")
		require.ErrorIs(t, s.Writable(), eventstoreadapter.ErrBackend)
		time.Sleep(time.Minute)
		require.NoError(t, s.Writable(), "nobody has tried since")
		save(t, s, bad)
		require.Error(t, s.Writable(), "but still it does")
		down = false
		save(t, s, bad)
		require.NoError(t, s.Writable())
		down = true
		save(t, s, event(alice, 1, start))
		require.NoError(t, s.Writable(), "counted anew")
		db.remove = func(*nostr.Event) error { return errors.New("no removal") }
		for range 2 {
			require.Error(t, s.Remove(t.Context(), eventtest.Of(bad)))
		}
		require.ErrorContains(t, s.Writable(), "no removal")
	})
}

func TestHalfDone(t *testing.T) {
	db := &fake{limit: 100}
	s := newStore(t, db, eventstoreadapter.Config{})
	d := nostr.Tag{"d", "repo"}
	old, late := event(alice, 30617, start, d), event(alice, 30617, start+1, d)
	target := event(alice, 1, start)
	deletion := event(alice, 5, start, nostr.Tag{"e", target.ID})
	save(t, s, old, target)
	db.remove = func(*nostr.Event) error { return errors.New("boom") }
	outcomes := save(t, s, late, deletion)
	assert.Equal(t, []graspsync.Result{graspsync.Failed, graspsync.Failed}, results(outcomes))
	require.Len(t, db.events, 4)
	db.remove = nil
	outcomes = save(t, s, late, deletion)
	assert.Equal(t, []graspsync.Result{graspsync.Duplicate, graspsync.Duplicate}, results(outcomes))
	ids, err := read(t.Context(), s, nostr.Filter{})
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{late.ID, deletion.ID}, ids)

	require.NoError(t, db.SaveEvent(t.Context(), target)) // a direct write, without tombstones
	assert.Equal(t, []graspsync.Result{graspsync.Deleted}, results(save(t, s, target)))
	assert.Len(t, db.events, 2)
}
