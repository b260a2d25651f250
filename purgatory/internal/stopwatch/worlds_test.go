package stopwatch

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/graspsync/graspsync/internal/goldentest"
)

// In random sequences of work and waits, each limit ends at the same time and for the same reason
// as in a simple model.
func TestWorlds(t *testing.T) {
	sums := goldentest.NewSums(t, "testdata/worlds.sum")
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 47))
			w := New(time.Duration(5+rng.IntN(60))*time.Second, errCrowded)
			type work struct {
				ctx    context.Context
				cancel context.CancelFunc
			}
			var all []work
			var waits []func()
			var lines []string
			for range 150 {
				switch n := rng.IntN(9); {
				case n < 2 && len(all) < 5:
					ctx, cancel := w.Limit(t.Context(), time.Duration(rng.IntN(8))*time.Second, errOver)
					all = append(all, work{ctx, cancel})
				case n < 4 && len(all) > 0:
					waits = append(waits, Waits(all[rng.IntN(len(all))].ctx))
				case n < 6 && len(waits) > 0:
					i := rng.IntN(len(waits))
					waits[i]()
					waits = append(waits[:i], waits[i+1:]...)
				case n == 6 && len(all) > 0 && len(waits) == 0:
					i := rng.IntN(len(all))
					all[i].cancel()
					all = append(all[:i], all[i+1:]...)
				default:
					time.Sleep([]time.Duration{1, time.Second - 1, time.Second, 3 * time.Second}[rng.IntN(4)])
				}
				synctest.Wait()
				line := fmt.Sprint(w.Worked(), len(w.limits), w.waits)
				for _, x := range all {
					left, limited := Left(x.ctx)
					line += fmt.Sprint("; ", left, limited, context.Cause(x.ctx))
				}
				lines = append(lines, line)
			}
			for _, done := range waits {
				done()
			}
			for _, x := range all {
				x.cancel()
			}
			sums.Equal(t, fmt.Sprintf("world%02d", seed), lines)
		})
	}
}
