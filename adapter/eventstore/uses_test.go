package eventstoreadapter_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	eventstoreadapter "github.com/graspsync/graspsync/adapter/eventstore"
)

// Close waits for reads, because a badger that is closed during a read panics in its own goroutine.
func TestCloseWaitsForWhatIsRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := func(takes time.Duration) *fake {
			return &fake{limit: 10, query: func(context.Context, nostr.Filter) (chan *nostr.Event, error) {
				ch := make(chan *nostr.Event)
				time.AfterFunc(takes, func() { close(ch) })
				return ch, nil
			}}
		}
		read := func(s *eventstoreadapter.Store, patience time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			_, err := s.Query(ctx, nostr.Filter{})
			return err
		}
		for _, c := range []struct {
			takes, patience, closes time.Duration
			err                     error
		}{
			{takes: 3 * time.Second, patience: time.Minute, closes: 3 * time.Second},
			{takes: 3 * time.Second, patience: time.Second, closes: 3 * time.Second}, // the client has left
			{takes: 15 * time.Second, patience: time.Minute, closes: 10 * time.Second, err: eventstoreadapter.ErrBackend},
		} {
			s := newStore(t, slow(c.takes), eventstoreadapter.Config{})
			began := time.Now()
			go func() { _ = read(s, c.patience) }()
			synctest.Wait()
			require.ErrorIs(t, s.Close(), c.err)
			require.Equal(t, c.closes, time.Since(began))
			require.ErrorIs(t, read(s, time.Minute), eventstoreadapter.ErrClosed)
			_, err := s.Save(t.Context(), incoming(event(alice, 1, start)))
			require.ErrorIs(t, err, eventstoreadapter.ErrClosed)
			time.Sleep(time.Minute)
			require.NoError(t, s.Close())
		}
	})
}
