package gitfetch

import (
	"context"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
)

// A server that could not be asked in time because others kept us busy has not gone
// beyond a limit: it would not be asked again before the next day.
func TestWaitingForOthersIsNotAServersFault(t *testing.T) {
	there := bare(t, nip34.SHA1)
	tip := history(t, there, "main", 1)[0]
	o := serve(t, there, nil)
	f := fetcher(t, Config{MaxFetches: 1, fixed: constants{Timeout: time.Second}})
	place, err := f.receiver.fetching.Acquire(t.Context(), limit.Stranger{}, 1)
	require.NoError(t, err)
	here := bare(t, nip34.SHA1)
	done := make(chan error, 1)
	go func() { done <- attempt(t.Context(), f, here, o.clone(t), tip) }()
	time.Sleep(1500 * time.Millisecond)
	place.Release()
	require.NoError(t, <-done)
}

// Nor is it the fault of one that has sent everything that git can't run yet.
func TestWaitingForGitIsNotAServersFault(t *testing.T) {
	there := bare(t, nip34.SHA1)
	tip := history(t, there, "main", 1)[0]
	answered := make(chan struct{})
	o := serve(t, there, func(w http.ResponseWriter, r *http.Request, next http.Handler) {
		if r.Method == http.MethodPost {
			<-answered
		}
		next.ServeHTTP(w, r)
	})
	f := fetcher(t, Config{MaxChildren: 1, fixed: constants{Timeout: 2 * time.Second}})
	here := bare(t, nip34.SHA1)
	done := make(chan error, 1)
	go func() { done <- attempt(t.Context(), f, here, o.clone(t), tip) }()
	require.Eventually(t, func() bool { return len(o.seen()) == 2 }, 10*time.Second, time.Millisecond)
	release, err := f.git.acquire(t.Context(), here, false)
	require.NoError(t, err)
	close(answered)
	time.Sleep(2500 * time.Millisecond)
	release()
	require.NoError(t, <-done)
}

// A repository that did not come within ten minutes never came, however fast it came. Now
// it has the more time the more has come, and a server that drips has no more than before.
func TestWhatComesFastEnoughMayTakeLong(t *testing.T) {
	for _, c := range []struct {
		name  string
		rate  int64 // bytes a second
		total time.Duration
		ends  time.Duration // 0: when all has come
	}{
		{"fast", 1 << 20, time.Hour, 0},
		{"just fast enough", 64<<10 + 100, 5 * time.Hour, 0},
		{"half of that", 32 << 10, time.Hour, 1200 * time.Second},
		{"a drip", 1100, time.Hour, 610 * time.Second},
		{"short", 1100, 9 * time.Minute, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := &receiver{cfg: Config{}.withDefaults()}
				ctx, end := context.WithCancelCause(t.Context())
				m := &meter{}
				done := r.allow(m, end)
				m.clock.run()
				began := time.Now()
				for ctx.Err() == nil && time.Since(began) < c.total {
					select {
					case <-time.After(time.Second):
						m.Came(int(c.rate))
					case <-ctx.Done():
					}
				}
				done()
				took := time.Since(began)
				if c.ends == 0 {
					require.NoError(t, ctx.Err())
					end(nil)
					return
				}
				require.InDelta(t, c.ends.Seconds(), took.Seconds(), 15)
				require.True(t, limited("seconds")(context.Cause(ctx)))
			})
		})
	}
}
