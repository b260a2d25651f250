package eventstoreadapter_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fiatjaf/eventstore"
	"github.com/fiatjaf/eventstore/badger"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	eventstoreadapter "github.com/graspsync/graspsync/adapter/eventstore"
	"github.com/graspsync/graspsync/adapter/internal/asker"
	"github.com/graspsync/graspsync/internal/backendcaps"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/limit"
)

// weighed is a badger that measures the maximum number of events in memory, over all look-ups of a
// query.
type weighed struct {
	*badger.BadgerBackend
	limit, lookUps, now, most atomic.Int64 // now, most: pages
}

func (b *weighed) Caps() backendcaps.Caps { return (&metered{BadgerBackend: b.BadgerBackend}).Caps() }

func (b *weighed) QueryEvents(ctx context.Context, f nostr.Filter) (chan *nostr.Event, error) {
	n := 1
	for _, v := range f.Tags {
		n = max(n, len(v))
	}
	if len(f.Tags) == 0 {
		n = max(1, len(f.Authors)) * max(1, len(f.Kinds))
	}
	if f.IDs != nil {
		n = len(f.IDs)
	}
	raise(&b.limit, int64(f.Limit))
	raise(&b.lookUps, int64(n))
	pages := int64(f.Limit+255) / 256
	raise(&b.most, b.now.Add(pages))
	defer b.now.Add(-pages)
	time.Sleep(time.Millisecond)
	return b.BadgerBackend.QueryEvents(ctx, f)
}

func raise(n *atomic.Int64, to int64) {
	for had := n.Load(); had < to && !n.CompareAndSwap(had, to); had = n.Load() {
	}
}

// Memory per query is bounded. Before, an event with 30,000 tags was in memory once per value in a
// filter, and a few small queries took gigabytes.
func TestQuestionsAreReadInSmallParts(t *testing.T) {
	racetest.Amounts(t)
	db := &weighed{BadgerBackend: newBadger(t, 0)}
	s := newStore(t, db, eventstoreadapter.Config{NoSync: true})
	var tags []nostr.Tag
	var values []string
	for i := range 200 {
		values = append(values, strconv.Itoa(i))
		tags = append(tags, nostr.Tag{"t", values[i]})
	}
	var ids []string
	for i := range 300 {
		e := event(alice, 1621, start+nostr.Timestamp(i), tags[:10]...)
		if i == 0 {
			e = event(alice, 1621, start, tags...)
		}
		ids = append(ids, e.ID)
		require.NoError(t, db.SaveEvent(t.Context(), e))
	}
	var kinds []int
	for k := range 40 {
		kinds = append(kinds, 1600+k)
	}
	authors := make([]string, 50)
	for i := range authors {
		authors[i] = fmt.Sprintf("%064x", i)
	}
	authors = append(authors, alice)
	for name, f := range map[string]nostr.Filter{
		"values": {Tags: nostr.TagMap{"t": values}, Limit: 1}, "ids": {IDs: ids}, "an author": {Authors: []string{alice}, Limit: 500},
		"authors and kinds": {Authors: authors, Kinds: kinds, Limit: 400}, "all": {Limit: 1000},
	} {
		for _, ctx := range []context.Context{t.Context(), eventstore.SetNegentropy(t.Context())} {
			for _, n := range []*atomic.Int64{&db.limit, &db.lookUps, &db.most} {
				n.Store(0)
			}
			done := make(chan int)
			for range 8 {
				go func() {
					got := 0
					ch, err := s.Query(ctx, f)
					if assert.NoError(t, err) {
						for range ch {
							got++
						}
					}
					done <- got
				}()
			}
			for range 8 {
				n := 300
				if !eventstore.IsNegentropySession(ctx) && f.Limit > 0 {
					n = min(n, f.Limit)
				}
				assert.Equal(t, n, <-done, name)
			}
			assert.LessOrEqual(t, db.limit.Load(), int64(256), name)
			assert.LessOrEqual(t, db.most.Load(), int64(max(4, runtime.GOMAXPROCS(0))), name)
			assert.LessOrEqual(t, db.lookUps.Load(), int64(16), name)
		}
	}
}

// Unread answers use bounded memory, in total and per client.
func TestAnswersThatWait(t *testing.T) {
	s := newStore(t, newBadger(t, 0), eventstoreadapter.Config{NoSync: true})
	for i := range 150 {
		e := event(alice, 1621, start+nostr.Timestamp(i))
		e.Content = strings.Repeat("x", 60_000)
		e.ID = e.GetID()
		save(t, s, e)
	}
	ask := func(ctx context.Context) (<-chan *nostr.Event, error) {
		return s.Query(ctx, nostr.Filter{Authors: []string{alice}, Limit: 300})
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for client := range 4 {
		ctx := asker.For(ctx, limit.Stranger{ID: strconv.Itoa(client)}, nil)
		var unread []<-chan *nostr.Event
		for range 4 {
			ch, err := ask(ctx)
			require.NoError(t, err)
			require.Equal(t, start+149, (<-ch).CreatedAt)
			unread = append(unread, ch)
		}
		impatient, end := context.WithTimeout(ctx, 10*time.Millisecond)
		_, err := ask(impatient)
		end()
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Greater(t, s.Waiting(), (client+1)*30<<20)
		require.LessOrEqual(t, s.Waiting(), (client+1)*32<<20)
		for range unread[0] {
		}
		_, err = ask(ctx)
		require.NoError(t, err)
	}
	cancel()
	require.Eventually(t, func() bool { return s.Waiting() == 0 }, time.Minute, time.Millisecond)

	// Clients that do not read are disconnected when another client waits for the memory.
	var disconnected atomic.Int64
	for client := range 4 {
		ctx, cancel := context.WithCancel(t.Context())
		ctx = asker.For(ctx, limit.Stranger{ID: strconv.Itoa(client)}, func() { disconnected.Add(1); cancel() })
		for range 4 {
			_, err := ask(ctx)
			require.NoError(t, err)
		}
	}
	honest, end := context.WithTimeout(asker.For(t.Context(), limit.Stranger{ID: "honest"}, nil), time.Minute)
	defer end()
	time.Sleep(3 * time.Second)
	require.Zero(t, disconnected.Load(), "nobody waits")
	ch, err := ask(honest)
	require.NoError(t, err)
	for range ch {
	}
	require.Positive(t, disconnected.Load())
}

// Several look-ups with a small limit do not crash badger, which happens if some look-ups have many
// events newer than those of the others. Before, the sixth of these queries crashed the process.
func TestSeveralLookUpsOfFewEvents(t *testing.T) {
	for seed := range uint64(8) {
		rnd := rand.New(rand.NewPCG(36+seed, 3))
		db := newBadger(t, 0)
		s := newStore(t, db, eventstoreadapter.Config{NoSync: true})
		var values []string
		n := 2 + rnd.IntN(15)
		hot := 1 + rnd.IntN(4)
		for v := range n {
			values = append(values, fmt.Sprintf("v%02d", v))
			have := 1 + rnd.IntN(12)
			if v < hot {
				have = 20 + rnd.IntN(80)
			}
			for i := range have {
				at := start - 1000 - nostr.Timestamp(rnd.IntN(3))
				if v < hot {
					at = start - nostr.Timestamp(i*(1+rnd.IntN(3)))
				}
				require.NoError(t, db.SaveEvent(t.Context(), event(alice, 1621, at, nostr.Tag{"t", values[v]})))
			}
		}
		for _, most := range rnd.Perm(90)[:40] {
			rnd.Shuffle(len(values), func(i, j int) { values[i], values[j] = values[j], values[i] })
			f := nostr.Filter{Tags: nostr.TagMap{"t": values[:2+rnd.IntN(len(values)-1)]}, Limit: most + 1}
			require.LessOrEqual(t, len(answer(t, s, f)), f.Limit)
		}
	}
}
