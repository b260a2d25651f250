package turns

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var errQuiet = errors.New("quiet")

// Places are never more than there are, nobody takes what others have left but half of it, and whoever
// waits gets in.
func TestTurns(t *testing.T) {
	for seed := range uint64(50) {
		synctest.Test(t, func(t *testing.T) {
			const all = 20
			rng := rand.New(rand.NewPCG(seed, 1))
			turns := New(all)
			var done, gone atomic.Int32
			for range 200 {
				client, n := fmt.Sprint(rng.IntN(4)), 1+rng.IntN(8)
				wait, work := time.Duration(rng.IntN(300))*time.Second, time.Duration(rng.IntN(60))*time.Second
				begin := time.Duration(rng.IntN(600)) * time.Second
				go func() {
					time.Sleep(begin)
					ctx, cancel := context.WithTimeout(t.Context(), 2000*time.Second+wait)
					defer cancel()
					if turns.Enter(ctx, client, n) != nil {
						gone.Add(1)
						return
					}
					turns.mu.Lock()
					sum := 0
					for _, k := range turns.taken {
						sum += k
					}
					free := turns.free
					turns.mu.Unlock()
					if free < 0 || sum+free != all {
						t.Error("free", free, "taken", sum)
					}
					time.Sleep(work)
					turns.Leave(client, n)
					done.Add(1)
				}()
			}
			time.Sleep(3000 * time.Second)
			synctest.Wait()
			require.EqualValues(t, 200, done.Load()+gone.Load())
			require.Greater(t, done.Load(), int32(100))
			require.Equal(t, all, turns.free)
			require.Empty(t, turns.taken)
			require.Empty(t, turns.queue)
			require.Empty(t, turns.wait)
		})
	}
}

// A client with very many who wait lets another one in at once.
func TestTurnsAreByClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := New(4)
		for range 100 {
			go func() {
				if turns.Enter(t.Context(), "many", 1) == nil {
					time.Sleep(time.Second)
					turns.Leave("many", 1)
				}
			}()
		}
		synctest.Wait()
		require.Equal(t, 2, turns.free, "half")
		require.NoError(t, turns.Enter(t.Context(), "one", 1))
		turns.Leave("one", 1)
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errQuiet)
		require.True(t, errors.Is(turns.Enter(ctx, "many", 1), errQuiet))
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, 4, turns.free)
	})
}

// Who needs much has it though others always need a little.
func TestTurnsOfWhoNeedsMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := New(20)
		ctx, cancel := context.WithCancel(t.Context())
		for i := range 20 {
			go func() {
				for ctx.Err() == nil {
					if turns.Enter(ctx, fmt.Sprint(i), 1) == nil {
						time.Sleep(time.Second)
						turns.Leave(fmt.Sprint(i), 1)
					}
				}
			}()
		}
		time.Sleep(10*time.Second + time.Millisecond)
		began := time.Now()
		require.NoError(t, turns.Enter(ctx, "much", 10))
		require.LessOrEqual(t, time.Since(began), 2*time.Second)
		turns.Leave("much", 10)
		cancel()
		synctest.Wait()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Equal(t, 20, turns.free)
	})
}

// What was kept for who has gone is for others at once.
func TestTurnsOfWhoHasGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns := New(20)
		require.True(t, turns.Try("a", 5))
		require.True(t, turns.Try("b", 1))
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = turns.Enter(ctx, "much", 18) }()
		synctest.Wait()
		turns.Leave("b", 1) // it is kept for the one who needs much
		in := false
		go func() { in = turns.Enter(t.Context(), "few", 1) == nil }()
		synctest.Wait()
		require.False(t, in)
		cancel()
		synctest.Wait()
		require.True(t, in)
	})
}
