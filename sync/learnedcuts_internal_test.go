package sync

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/sync/internal/relaylimits"
	"github.com/graspsync/graspsync/sync/wire"
)

// A connection that is lost within ten seconds after the largest request that is not answered
// is taken for the answer, unless we ended it.
func TestLargeRequestsAndCuts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, after := range []time.Duration{0, 10*time.Second - 1, 10 * time.Second} {
			for _, how := range []string{"lost", "answered", "another answered", "ended", "small", "larger", "smaller", "close"} {
				ctx, cancel := context.WithCancel(t.Context())
				c := &conn{ctx: ctx, stats: &relayStats{}}
				req := wire.Request{Type: wire.TypeReq, Sub: "a"}
				size := 5_000
				if how == "small" {
					size = 1_024
				}
				if how == "close" {
					req.Type = wire.TypeClose
				}
				c.largest.asked(req, size, time.Now())
				want := size
				switch how {
				case "small", "close":
					want = 0
				case "answered":
					c.largest.answered(c.stats, "a", time.Now())
					want = 0
				case "another answered":
					c.largest.answered(c.stats, "b", time.Now())
				case "ended":
					cancel()
					want = 0
				case "larger":
					want = size + 1
					c.largest.asked(wire.Request{Type: wire.TypeNegOpen, Sub: "b"}, want, time.Now())
				case "smaller":
					c.largest.asked(wire.Request{Type: wire.TypeReq, Sub: "b"}, size-1, time.Now())
				}
				time.Sleep(after)
				c.lost(time.Now())
				if after == 10*time.Second {
					want = 0
				}
				// The second cut is believed: to be about the smaller one.
				c.stats.cut(1<<20, time.Now())
				facts, _ := c.stats.learned(time.Now())
				require.Equal(t, want/2, facts.Value(relaylimits.MaxMessage, time.Now()), "%v %v", how, after)
				cancel()
			}
		}
	})
}
