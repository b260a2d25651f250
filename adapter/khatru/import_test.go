package khatruadapter

import (
	"context"
	"errors"
	"sync"
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

func TestImport(t *testing.T) {
	relay := khatru.NewRelay()
	var seen []string
	relay.OnEventSaved = append(relay.OnEventSaved, func(ctx context.Context, e *nostr.Event) {
		assert.True(t, IsSynced(ctx))
		assert.Nil(t, khatru.GetConnection(ctx))
		seen = append(seen, e.ID)
		if e.Kind == 7 {
			panic("a hook of the embedder's")
		}
	})
	expectLog(t, "ERROR relay hook failed OnEventSaved")
	s, store, m := embed(t, relay, newSlice(t), Config{})
	d := nostr.Tag{"d", "repo"}
	one, like := event(alice, 1, start), event(alice, 7, start)
	late, old := event(alice, 30617, start+1, d), event(alice, 30617, start, d)
	deletion := event(alice, 5, start, nostr.Tag{"e", one.ID})
	outcomes := importEvents(t, store, one, like, late, old, one, deletion, one, event(alice, 30617, start, nostr.Tag{"d"}))
	assert.Equal(t, []graspsync.Result{
		graspsync.Stored, graspsync.Stored, graspsync.Stored, graspsync.Superseded, graspsync.Duplicate,
		graspsync.Stored, graspsync.Deleted, graspsync.Stored,
	}, results(outcomes))
	assert.Equal(t, seen[:4], []string{one.ID, like.ID, late.ID, deletion.ID})
	assert.Equal(t, 5, broadcasts(s), "what is newly stored and nothing else")
	assert.Empty(t, m.stored, "the manager knows")
	assert.NotContains(t, content(t, s.Store()), one.ID)
}

func TestImportRejected(t *testing.T) {
	relay := khatru.NewRelay()
	relay.RejectEvent = append(relay.RejectEvent,
		func(_ context.Context, e *nostr.Event) (bool, string) { return e.Kind == 1, "blocked: no notes" },
		func(_ context.Context, e *nostr.Event) (bool, string) { return e.Kind == 2, "error: database is down" },
		func(_ context.Context, e *nostr.Event) (bool, string) { return e.Kind >= 3, "rate-limited: slow down" },
		func(ctx context.Context, e *nostr.Event) (bool, string) {
			if e.Kind == 4 {
				khatru.RequestAuth(ctx) // without a connection
			}
			return e.Kind == 6, ""
		})
	expectLog(t, "WARN hook refused a synced event, khatruadapter.IsSynced lets it accept such events")
	s, store, _ := embed(t, relay, newSlice(t), Config{})
	outcomes := importEvents(t, store, event(alice, 1, start), event(alice, 2, start), event(alice, 7, start),
		event(alice, 4, start), event(alice, 6, start), nil)
	assert.Equal(t, []graspsync.Result{
		graspsync.Refused, graspsync.Failed, graspsync.Stored, graspsync.Failed, graspsync.Refused, graspsync.Refused,
	}, results(outcomes))
	require.ErrorIs(t, outcomes[0].Err, embedding.ErrRejected)
	require.ErrorIs(t, outcomes[1].Err, embedding.ErrRejected)
	require.ErrorIs(t, outcomes[3].Err, embedding.ErrHook)
	assert.Len(t, content(t, s.Store()), 1)
}

func TestStalledClient(t *testing.T) {
	relay := khatru.NewRelay()
	synctest.Test(t, func(t *testing.T) {
		expectLog(t, "WARN broadcast blocked by a client that does not read")
		s, store, _ := embed(t, relay, newSlice(t), Config{})
		release, stalled := make(chan struct{}), make(chan struct{})
		stall := sync.OnceFunc(func() { close(stalled) })
		s.core.Hooks.Send = func(graspsync.Event) {
			stall()
			<-release
		}
		stop := run(t, s)
		importEvents(t, store, event(alice, 1, start))
		<-stalled
		for range 1024 + 6 {
			importEvents(t, store, event(alice, 1, start))
		}
		assert.EqualValues(t, 6, s.BroadcastsDropped())
		begun := time.Now()
		stop()
		assert.Equal(t, time.Second, time.Since(begun))
		close(release)
		synctest.Wait()
	})
}

// badSync is a backend whose first Sync after a Save fails.
type badSync struct {
	*slicestore.SliceStore
	failed bool
}

func (u *badSync) Sync() error {
	if !u.failed {
		u.failed = true
		return errors.New("input/output error")
	}
	return nil
}

// An event that the backend stored although its Save failed was a duplicate from then on, and no
// hook or subscriber received it.
func TestSavedByAnAttemptThatFailed(t *testing.T) {
	for name, save := range map[string]func(*Sync, *embedding.Imports, *nostr.Event) (graspsync.Result, error){
		"import": func(_ *Sync, store *embedding.Imports, e *nostr.Event) (graspsync.Result, error) {
			out, err := store.Save(context.Background(), []graspsync.Incoming{{Event: eventtest.Of(e)}})
			if err != nil {
				return 0, err
			}
			return out[0].Result, nil
		},
		"release": func(s *Sync, _ *embedding.Imports, e *nostr.Event) (graspsync.Result, error) {
			o, err := s.Release(context.Background(), eventtest.Of(e))
			return o.Result, err
		},
	} {
		t.Run(name, func(t *testing.T) {
			relay, db, second, _ := withSecond(t)
			saved := 0
			relay.OnEventSaved = append(relay.OnEventSaved, func(context.Context, *nostr.Event) { saved++ })
			s, store, _ := embed(t, relay, &badSync{SliceStore: db}, Config{})
			e := event(alice, 1621, start)
			_, err := save(s, store, e)
			require.Error(t, err)
			assert.Zero(t, saved)
			for _, want := range []graspsync.Result{graspsync.Stored, graspsync.Duplicate} {
				result, err := save(s, store, e)
				require.NoError(t, err)
				assert.Equal(t, want, result)
				assert.Equal(t, 1, saved)
				assert.Equal(t, []string{e.ID}, in(t, second))
				assert.Equal(t, 1, broadcasts(s))
			}
		})
	}
}
