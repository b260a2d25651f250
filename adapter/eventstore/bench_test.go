package eventstoreadapter_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fiatjaf/eventstore"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	eventstoreadapter "github.com/graspsync/graspsync/adapter/eventstore"
)

// hub returns n events about 100 repositories, as large as real ones are.
func hub(n int) (events []*nostr.Event, repos []string) {
	for i := range 100 {
		repos = append(repos, fmt.Sprintf("30617:%s:repo-%d", alice, i))
	}
	for i := range n {
		e := event(strings.Repeat(fmt.Sprintf("%02x", i%50), 32), 1621, start+nostr.Timestamp(i),
			nostr.Tag{"a", repos[i%100]}, nostr.Tag{"p", alice}, nostr.Tag{"subject", "a title"})
		e.Content += strings.Repeat(" and more", 60)
		events = append(events, e)
	}
	return events, repos
}

func BenchmarkBadger(b *testing.B) {
	events, repos := hub(10_000)
	s := newStore(b, newBadger(b, 0), eventstoreadapter.Config{})
	b.Run("save", func(b *testing.B) {
		for b.Loop() {
			s := newStore(b, newBadger(b, 0), eventstoreadapter.Config{})
			for chunk := range slices.Chunk(events, 256) {
				save(b, s, chunk...)
			}
		}
		b.ReportMetric(float64(len(events)*b.N)/b.Elapsed().Seconds(), "events/s")
	})
	for chunk := range slices.Chunk(events, 256) {
		save(b, s, chunk...)
	}
	stamps := func(f nostr.Filter, want int) func(b *testing.B) {
		return func(b *testing.B) {
			for b.Loop() {
				n := 0
				for _, err := range s.Stamps(b.Context(), f) {
					require.NoError(b, err)
					n++
				}
				require.Equal(b, want, n)
			}
		}
	}
	b.Run("stamps_all", stamps(nostr.Filter{}, 10_000))
	b.Run("stamps_100_values", stamps(nostr.Filter{Tags: nostr.TagMap{"a": repos}}, 10_000))
	b.Run("stamps_none", stamps(nostr.Filter{Tags: nostr.TagMap{"A": {alice}}}, 0))
	var ids []graspsync.EventID
	for i, e := range events[:128] {
		ids = append(ids, idOf(e), graspsync.EventID{byte(i)})
	}
	b.Run("has_256", func(b *testing.B) {
		for b.Loop() {
			_, err := s.Has(b.Context(), ids)
			require.NoError(b, err)
		}
	})
}

// What clients ask most, against badger alone, which gives not always the newest.
func BenchmarkAnswers(b *testing.B) {
	events, repos := hub(10_000)
	db := newBadger(b, 0)
	s := newStore(b, db, eventstoreadapter.Config{NoSync: true})
	kinds := []int{1111, 1617, 1618, 1619, 1621, 1630, 1631, 1632, 1633, 30617, 30618}
	for i, e := range events {
		e.Kind = kinds[i%len(kinds)]
		e.ID = e.GetID()
	}
	for chunk := range slices.Chunk(events, 256) {
		save(b, s, chunk...)
	}
	var authors []string
	for i := range 50 {
		authors = append(authors, strings.Repeat(fmt.Sprintf("%02x", i), 32))
	}
	for name, f := range map[string]nostr.Filter{
		"repository": {Kinds: kinds, Tags: nostr.TagMap{"a": repos[:1]}, Limit: 100},
		"100 values": {Kinds: kinds, Tags: nostr.TagMap{"a": repos}, Limit: 500},
		"kinds":      {Kinds: kinds, Limit: 500},
		"authors":    {Authors: authors, Limit: 500},
		"one author": {Authors: authors[:1], Kinds: kinds, Limit: 100},
	} {
		for by, backend := range map[string]eventstore.Store{"ours": s.Backend(), "badger": db} {
			b.Run(name+"/"+by, func(b *testing.B) {
				for b.Loop() {
					ch, err := backend.QueryEvents(b.Context(), f)
					require.NoError(b, err)
					for range ch {
					}
				}
			})
		}
	}
}
