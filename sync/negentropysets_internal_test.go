package sync

import (
	"context"
	"encoding/binary"
	"iter"
	"sync/atomic"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
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
