package sync

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
)

// oddStore answers what it is told to.
type oddStore struct {
	Store
	has []bool
	err error
}

// Has implements [Store].
func (s *oddStore) Has(context.Context, []graspsync.EventID) ([]bool, error) { return s.has, s.err }

// bench is a pipeline whose steps a test takes one by one.
type bench struct {
	*ingest
	n uint64
}

func newBench(t *testing.T, store Store, inFlight int64) *bench {
	t.Helper()
	identity, err := nip34.ParseIdentity("grasp.example")
	require.NoError(t, err)
	cfg := Config{Limits: Limits{InFlight: inFlight}}.withDefaults()
	x := newWholeIndex(store, nil, nip34.Identity{})
	return &bench{ingest: newIngest(cfg, store, NewGRASPPolicy(identity), x, newFeed(x.index, 1, 1), newReport(Config{}), nil)}
}

func (b *bench) id() (id graspsync.EventID) {
	b.n++
	binary.BigEndian.PutUint64(id[:], b.n)
	return id
}

// waiting puts a job into the pipeline that has failed and waits to be tried again.
func (b *bench) waiting(t *testing.T, relay graspsync.RelayURL, size int64, change ...func(*job)) *job {
	t.Helper()
	id := b.id()
	tok := newToken(relay)
	tok.ended = func() {}
	j := &job{key: copyKey{id: id}, size: size, tries: 1, since: time.Now(), tokens: []*token{tok}}
	j.incoming = graspsync.Incoming{Event: eventtest.Of(&nostr.Event{ID: id.String()}), Source: graspsync.Source{Kind: graspsync.CatchUp, Relay: relay}}
	for _, f := range change {
		f(j)
	}
	if !j.revived {
		require.NoError(t, b.flights.room.enter(t.Context(), nil, size))
		tok.hold()
		require.True(t, b.flights.enter(j))
	}
	if j.apart {
		b.retrier.retries.apart += size
		b.flights.release(j)
	}
	b.flights.failing([]*job{j}, true)
	b.retrier.retries.add(j, time.Now())
	return j
}

// Where not even the ids of what can't be saved can be remembered, a few events go of the
// relay that holds most, and none as long as half of the bytes in flight is free.
func TestRelieve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, inFlight = 1 << 20, 64 << 20
		relay := func(n int) graspsync.RelayURL {
			u, err := graspsync.ParseRelayURL(fmt.Sprintf("wss://r%d.example", n))
			require.NoError(t, err)
			return u
		}
		b := newBench(t, &oddStore{}, inFlight)
		asked := make(map[graspsync.RelayURL]int)
		b.refetch.ask = func(u graspsync.RelayURL, ids []graspsync.EventID) { asked[u] += len(ids) }
		for i := range maxOwed { // of both as much, so that neither gives way
			j := &job{key: copyKey{id: b.id()}}
			j.incoming.Source.Relay = relay(i % 2)
			_, ok := b.retrier.retries.owe(j, time.Now())
			require.True(t, ok)
		}
		b.retrier.owed.Store(maxOwed)
		held := map[graspsync.RelayURL]int{}
		left := func() map[graspsync.RelayURL]int {
			clear(held)
			for _, j := range b.retrier.retries.jobs {
				held[j.incoming.Source.Relay]++
			}
			return held
		}
		b.waiting(t, relay(0), size, func(j *job) { j.apart = true })
		b.waiting(t, relay(1), size, func(j *job) { j.revived = true })
		for range 12 {
			b.waiting(t, relay(0), size)
		}
		for range 20 {
			b.waiting(t, relay(1), size, func(j *job) { j.incoming.Source.Kind = graspsync.Live })
		}
		b.audit(t)
		b.retrier.relieve()
		require.Equal(t, map[graspsync.RelayURL]int{relay(0): 13, relay(1): 21}, left(), "half is free")

		b.waiting(t, relay(1), size)
		b.waiting(t, relay(0), size)
		for range 9 {
			b.waiting(t, relay(1), size)
		}
		b.retrier.relieve()
		b.audit(t)
		require.Equal(t, map[graspsync.RelayURL]int{relay(0): 14, relay(1): 31 - 8}, left(), "eight of whom most is held")
		require.Equal(t, map[graspsync.RelayURL]int{relay(1): 8}, asked, "what came live is asked for")
		require.Equal(t, uint64(8), b.report.dropped["unsaved"])
		for range 10 {
			b.retrier.relieve()
			b.audit(t)
		}
		require.Equal(t, int64(inFlight/2), b.retrier.retries.held, "and no more than must")
	})
}

// The Store's error is told, and so is that it answers another question.
func TestHasOfAnOddStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &oddStore{}
		b := newBench(t, store, 0)
		ids := []graspsync.EventID{b.id(), b.id()}
		for _, err := range []error{nil, errors.New("disk on fire")} {
			for n := range 4 {
				store.has, store.err = make([]bool, n), err
				_, got := b.store.has(t.Context(), ids)
				switch {
				case err != nil:
					require.Equal(t, err, got)
				case n != len(ids):
					require.EqualError(t, got, fmt.Sprintf("%d answers on 2 ids", n))
				default:
					require.NoError(t, got)
				}
			}
		}
	})
}
