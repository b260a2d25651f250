package main

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/sync/memstore"
)

// A heapWatch measures live bytes without those of the Store.
func TestHeapWatch(t *testing.T) {
	const size, all = 64 << 20, 10
	s := newStore(memstore.New(), all)
	w := watchHeap(s, all, size/2)
	s.left.Store(0)
	held := make([]byte, size)
	runtime.GC()
	w.end()
	runtime.KeepAlive(held)
	require.InDelta(t, size/2, w.peak, size/4)
	require.Positive(t, w.collections)
}
