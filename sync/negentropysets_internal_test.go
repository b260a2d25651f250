package sync

import (
	"context"
	"encoding/binary"
	"iter"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
)

// newestFirst yields n keys like a store, and counts the reads.
type newestFirst struct {
	Store
	n     int
	reads atomic.Int64
}

// Keys implements [Store].
func (s *newestFirst) Keys(context.Context, nostr.Filter) iter.Seq2[graspsync.EventKey, error] {
	s.reads.Add(1)
	return func(yield func(graspsync.EventKey, error) bool) {
		for i := range s.n {
			st := graspsync.EventKey{CreatedAt: nostr.Timestamp(1_700_000_000 + s.n - i)}
			binary.BigEndian.PutUint64(st.ID[:], uint64(i)*0x9e3779b97f4a7c15)
			if !yield(st, nil) {
				return
			}
		}
	}
}

// BenchmarkSetOfManyRelays loads the set of one filter for a hundred relays concurrently.
func BenchmarkSetOfManyRelays(b *testing.B) {
	store := &newestFirst{n: 100_000}
	for b.Loop() {
		s := newNegentropySets(store, nil, 1_000_000, nil, nil)
		var relays sync.WaitGroup
		for range 100 {
			relays.Go(func() {
				set, err := s.load(b.Context(), filters.Layer1())
				if err != nil || set.Len() != store.n {
					b.Errorf("%d of %d ids: %v", set.Len(), store.n, err)
				}
			})
		}
		relays.Wait()
	}
	b.ReportMetric(float64(store.reads.Load())/float64(b.N), "sets/op")
	require.Equal(b, int64(b.N), store.reads.Load(), "it is sealed once for all of them")
}
