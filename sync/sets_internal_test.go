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

// newestFirst yields n stamps as a store does, and counts how often it is asked to.
type newestFirst struct {
	Store
	n     int
	reads atomic.Int64
}

// Stamps implements [Store].
func (s *newestFirst) Stamps(context.Context, nostr.Filter) iter.Seq2[graspsync.Stamp, error] {
	s.reads.Add(1)
	return func(yield func(graspsync.Stamp, error) bool) {
		for i := range s.n {
			st := graspsync.Stamp{CreatedAt: nostr.Timestamp(1_700_000_000 + s.n - i)}
			binary.BigEndian.PutUint64(st.ID[:], uint64(i)*0x9e3779b97f4a7c15)
			if !yield(st, nil) {
				return
			}
		}
	}
}

// BenchmarkSetOfManyRelays has a hundred relays reconcile the same filter at once.
func BenchmarkSetOfManyRelays(b *testing.B) {
	store := &newestFirst{n: 100_000}
	for b.Loop() {
		s := newSets(store, nil, 1_000_000, nil, nil)
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
