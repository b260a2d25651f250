package server

import (
	"context"
	"errors"
	"iter"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/state"
)

// brittle is a store of records that can fail or hang.
type brittle struct {
	state.Store
	fails error
	hangs chan struct{}
	swaps atomic.Int32
}

func (b *brittle) Put(ctx context.Context, records ...state.Record) error {
	b.swaps.Add(1)
	if b.hangs != nil {
		<-b.hangs // a disk ignores contexts
	}
	if b.fails != nil {
		return b.fails
	}
	return b.Store.Put(ctx, records...)
}

func (b *brittle) Each(ctx context.Context, prefix string) iter.Seq2[state.Record, error] {
	return b.Store.Each(ctx, prefix)
}

func TestReady(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		read := make(chan struct{})
		var store, git error
		records := &brittle{Store: state.NewMemory()}
		r := newReadiness(read, func() error { return store }, records, func() error { return git })
		metric := func() float64 { return testutil.ToFloat64(r.Collector("ngit")) }
		require.ErrorIs(t, r.Ready(t.Context()), ErrStarting)
		require.Zero(t, records.swaps.Load())
		require.Zero(t, metric())
		close(read)
		for range 100 {
			require.NoError(t, r.Ready(t.Context()))
		}
		require.EqualValues(t, 1, records.swaps.Load(), "an answer holds for a while")
		require.InDelta(t, 1, metric(), 0)

		git, records.fails, store = errors.New("read-only"), errors.New("no space left"), errors.New("database broken")
		require.ErrorContains(t, r.Ready(t.Context()), "database broken", "what is known costs nothing")
		time.Sleep(period)
		err := r.Ready(t.Context())
		for _, says := range []string{"database broken", "read-only", "writing a record: no space left"} {
			require.ErrorContains(t, err, says)
		}
		require.Zero(t, metric())

		// If a disk hangs, callers wait only for a limited time, and one write is started.
		git, records.fails, store = nil, nil, nil
		records.hangs = make(chan struct{})
		time.Sleep(period)
		swaps, began := records.swaps.Load(), time.Now()
		answers := make(chan error, 20)
		for range cap(answers) {
			go func() { answers <- r.Ready(t.Context()) }()
		}
		for range cap(answers) {
			require.ErrorContains(t, <-answers, "takes too long")
		}
		require.Equal(t, timeout, time.Since(began))
		require.Equal(t, swaps+1, records.swaps.Load())
		impatient, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		require.ErrorIs(t, r.Ready(impatient), context.DeadlineExceeded)
		close(records.hangs)
		synctest.Wait()
		records.hangs = nil
		require.Error(t, r.Ready(t.Context()), "the answer came too late")
		time.Sleep(period)
		require.NoError(t, r.Ready(t.Context()))
	})
}
