package sync

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
)

// What comes as history is checked together with what comes within a moment; what is live, or
// is the last of a request, waits for nothing.
func TestHistoryWaitsForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		toVerify := make(chan *job, 2*verifyBatch)
		v := newVerification(verification{toVerify: toVerify})
		job := func(kind graspsync.SourceKind) *job {
			return &job{incoming: graspsync.Incoming{Source: graspsync.Source{Kind: kind}}}
		}
		gathered := func() (n int, took time.Duration) {
			began := time.Now()
			return len(v.gather(t.Context())), time.Since(began)
		}
		check := func(jobs int, after time.Duration) {
			t.Helper()
			n, took := gathered()
			require.Equal(t, jobs, n)
			require.Equal(t, after, took)
		}
		later := func(d time.Duration, kind graspsync.SourceKind) {
			go func() {
				time.Sleep(d)
				toVerify <- job(kind)
			}()
		}

		toVerify <- job(graspsync.CatchUp)
		later(5*time.Millisecond, graspsync.Daily)
		later(15*time.Millisecond, graspsync.CatchUp)
		later(25*time.Millisecond, graspsync.CatchUp)
		check(3, verifyLinger)
		check(1, 25*time.Millisecond) // counted from the 20th

		toVerify <- job(graspsync.CatchUp)
		later(5*time.Millisecond, graspsync.Live)
		check(2, 5*time.Millisecond)
		toVerify <- job(graspsync.CatchUp)
		toVerify <- job(graspsync.Live)
		toVerify <- job(graspsync.CatchUp)
		check(3, 0)

		toVerify <- job(graspsync.CatchUp)
		v.hurry()
		check(1, 0)
		v.hurry() // nothing is there: whoever comes next does not hurry
		later(time.Millisecond, graspsync.CatchUp)
		check(1, time.Millisecond+verifyLinger)

		for range verifyBatch + 1 {
			toVerify <- job(graspsync.CatchUp)
		}
		check(verifyBatch, 0)
		check(1, verifyLinger)

		// One at a time gathers, and both end with their context.
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan int, 2)
		for range 2 {
			go func() { ended <- len(v.gather(ctx)) }()
		}
		toVerify <- job(graspsync.CatchUp)
		time.Sleep(time.Millisecond)
		toVerify <- job(graspsync.CatchUp)
		time.Sleep(verifyLinger)
		synctest.Wait()
		require.Len(t, ended, 1)
		require.Equal(t, 2, <-ended)
		cancel()
		require.Zero(t, <-ended)
	})
}
