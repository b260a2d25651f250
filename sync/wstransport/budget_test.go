package wstransport

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/limit"
)

// A connection used 144 KiB before it took a part of the budget, and 256 connections used 36 MiB
// that were not counted.
func TestPromiseP20_SmallUntilReserved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		b := limit.NewSlots(readLimit, readLimit)
		_, err := b.Acquire(ctx, limit.Stranger{ID: "other"}, readLimit)
		require.NoError(t, err)
		c := &conn{t: &Transport{readBudget: b}, ctx: ctx, liveness: newLiveness()}
		r := &endless{}
		_, err = c.readAll(r)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		assert.LessOrEqual(t, r.read, maxUnbudgeted)
		assert.LessOrEqual(t, r.largest, chunk)
		assert.Equal(t, time.Minute, c.Traffic().ReadWaited)
	})
}

type endless struct{ read, largest int }

// Read implements [io.Reader].
func (e *endless) Read(p []byte) (int, error) {
	e.read += len(p)
	e.largest = max(e.largest, len(p))
	return len(p), nil
}
