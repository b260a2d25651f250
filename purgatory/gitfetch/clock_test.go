package gitfetch_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/purgatory/gitfetch"
)

// A slow server is cut off. A repository that needs more than ten minutes gets more time with each
// received byte. A server that sends single bytes gets no more time.
func TestPromiseP30_Rate(t *testing.T) {
	for _, c := range []struct {
		name  string
		bytes int64         // per write
		every time.Duration // interval of writes
		comes time.Duration // duration
		total time.Duration // size of the complete answer
		ends  time.Duration // 0: after the complete answer
		why   error         // nil: the time limit
	}{
		{"1 byte a second", 1, time.Second, time.Hour, 5 * time.Minute, 30 * time.Second, gitfetch.ErrSlow},
		{"nothing", 0, time.Second, time.Hour, 5 * time.Minute, 30 * time.Second, gitfetch.ErrSlow},
		{"just too little", 1 << 10, 1100 * time.Millisecond, time.Hour, 5 * time.Minute, 30 * time.Second, gitfetch.ErrSlow},
		{"much, then nothing", 1 << 20, time.Second, 90 * time.Second, 5 * time.Minute, 120 * time.Second, gitfetch.ErrSlow},
		{"just enough", 1100, time.Second, time.Hour, 5 * time.Minute, 0, nil},
		{"in bursts", 31 << 10, 28 * time.Second, time.Hour, 5 * time.Minute, 0, nil},
		{"fast", 1 << 20, time.Second, time.Hour, time.Hour, 0, nil},
		{"just fast enough", 64<<10 + 100, time.Second, 5 * time.Hour, 5 * time.Hour, 0, nil},
		{"half of that", 32 << 10, time.Second, time.Hour, time.Hour, 1200 * time.Second, nil},
		{"a drip", 1100, time.Second, time.Hour, time.Hour, 610 * time.Second, nil},
		{"short", 1100, time.Second, time.Hour, 9 * time.Minute, 0, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, m, stop := gitfetch.Watch(t.Context())
				m.Sending.Store(true)
				began := time.Now()
				for ctx.Err() == nil && time.Since(began) < c.total {
					if time.Since(began) < c.comes {
						m.Bytes.Add(c.bytes)
					}
					select {
					case <-time.After(c.every):
					case <-ctx.Done():
					}
				}
				took, why := time.Since(began), context.Cause(ctx)
				stop()
				switch {
				case c.ends == 0:
					require.NoError(t, why)
					return
				case c.why != nil:
					require.ErrorIs(t, why, c.why)
				default:
					require.True(t, limited("seconds")(why))
				}
				require.InDelta(t, c.ends.Seconds(), took.Seconds(), 15)
			})
		})
	}
}
