package sync

import (
	"encoding/binary"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
)

// What is owed of one relay took the room of all others; of the relay that most is owed
// of, the oldest goes, and no event of its own pushes out another.
func TestOwedIsSharedByRelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var r retries
		a, err := graspsync.ParseRelayURL("wss://a.example")
		require.NoError(t, err)
		b, err := graspsync.ParseRelayURL("wss://b.example")
		require.NoError(t, err)
		id := func(n int) (id graspsync.EventID) {
			binary.BigEndian.PutUint64(id[:], uint64(n)) //nolint:gosec // small
			return id
		}
		now := time.Now()
		owe := func(n int, relay graspsync.RelayURL) (*owed, bool) {
			j := &job{key: copyKey{id: id(n)}}
			j.incoming.Source.Relay = relay
			return r.owe(j, now)
		}
		for i := range maxOwed {
			lost, ok := owe(i, a)
			require.True(t, ok)
			require.Nil(t, lost)
		}
		_, ok := owe(maxOwed, a)
		require.False(t, ok)
		for i := range maxOwed / 2 {
			lost, ok := owe(2*maxOwed+i, b)
			require.True(t, ok)
			require.Equal(t, id(i), lost.turn.Item)
			require.Equal(t, a, lost.relay)
		}
		_, ok = owe(maxOwed, b)
		require.False(t, ok, "they have equal shares")
		require.Len(t, r.owed, maxOwed)
		for i := range maxOwed {
			r.paid(id(i))
		}
		require.Equal(t, []graspsync.RelayURL{{}, b}, r.relays.URLs(), "a relay of which nothing is owed takes no place")
	})
}

// An event that was let go of keeps what its relay has from counting as complete until
// the daily pass, and no longer.
func TestDroppedEventKeepsItsRelayIncomplete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		relay, err := graspsync.ParseRelayURL("wss://a.example")
		require.NoError(t, err)
		cfg := Config{}.withDefaults()
		g := newIngest(cfg, nil, nil, nil, nil, newReport(Config{}), nil)
		ctx := t.Context()
		failing, resting := g.flights.resting(g.flights.stage())
		require.True(t, resting)
		require.Empty(t, failing)
		g.retrier.miss(relay, time.Now())
		after := func(d time.Duration) map[graspsync.RelayURL]struct{} {
			select {
			case <-g.retrier.retries.due():
				g.writer.tryAgain(ctx)
			case <-time.After(d):
			}
			failing, resting := g.flights.resting(g.flights.stage())
			require.True(t, resting)
			return failing
		}
		require.Contains(t, after(23*time.Hour), relay)
		require.Empty(t, after(2*time.Hour))
		require.Nil(t, g.retrier.retries.due())
	})
}
