package fetchtest

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
)

// counts is a Quarantine whose fetches take a second, and whose Received returns given numbers.
type counts struct {
	purgatory.Quarantine

	calls atomic.Int64
	says  func(call int64) int64
}

func (q *counts) Fetch(context.Context, graspsync.CloneURL, []nip34.ObjectID) (int64, error) {
	time.Sleep(time.Second)
	return 1 << 40, nil
}

func (q *counts) Received() int64 { return q.says(q.calls.Add(1) - 1) }

// The suite did not call Received, so any results passed.
func TestWhatReceivedSaysIsWatched(t *testing.T) {
	for name, one := range map[string]struct {
		says  func(call int64) int64
		wrong string
	}{
		"grows":                {says: func(n int64) int64 { return n }},
		"nobody knows":         {says: func(int64) int64 { return 0 }},
		"negative":             {says: func(int64) int64 { return -1 << 62 }, wrong: "Received: -4611686018427387904"},
		"panics":               {says: func(int64) int64 { panic("here") }, wrong: "Received: panic: here"},
		"panics while it runs": {says: func(n int64) int64 { return n / min(1, 3-n) }, wrong: "Received: panic: runtime error: integer divide by zero"},
		"falls":                {says: func(n int64) int64 { return n % 10 }, wrong: "Received: 0 after 9, during one Fetch"},
		"begins with some":     {says: func(n int64) int64 { return 7 }, wrong: "Received: 7 before anything is fetched"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := &counts{says: one.says}
				_, err := fetchWatched(t.Context(), q, graspsync.CloneURL{}, nil)
				if one.wrong == "" {
					require.NoError(t, err)
					require.Greater(t, q.calls.Load(), int64(100))
					return
				}
				require.EqualError(t, err, one.wrong)
			})
		})
	}
}

// A server without Bytes sends a hundred per object, evenly over its delay.
func TestTheFakeSaysWhatHasCome(t *testing.T) {
	object, err := nip34.ParseObjectID("00000000000000000000000000000000000000aa")
	require.NoError(t, err)
	u, err := graspsync.ParseCloneURL("https://git.example/r.git")
	require.NoError(t, err)
	ids := []nip34.ObjectID{object}
	for name, one := range map[string]struct {
		server    Server
		half, all int64
	}{
		"at once":       {Server{Objects: ids}, 0, 100},
		"in time":       {Server{Objects: ids, Delay: time.Minute}, 50, 100},
		"with bytes":    {Server{Objects: ids, Delay: time.Minute, Bytes: 5000}, 2500, 5000},
		"none of it":    {Server{Delay: time.Minute}, 0, 0},
		"fails":         {Server{Delay: time.Minute, Bytes: 8, Err: purgatory.ErrNotServed}, 4, 8},
		"at once, more": {Server{Objects: ids, Bytes: 7}, 0, 7},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, repo := New(), graspsync.RepoRef{Identifier: "r"}
				f.Serve(u, one.server)
				require.NoError(t, f.Create(t.Context(), repo, nip34.SHA1))
				dir, unlock, err := f.Lock(t.Context(), repo)
				require.NoError(t, err)
				defer unlock()
				q, err := f.Quarantine(t.Context(), dir)
				require.NoError(t, err)
				require.Zero(t, q.Received())
				for range 2 { // a second fetch begins at 0
					var half atomic.Int64
					if one.server.Delay > 0 {
						time.AfterFunc(one.server.Delay/2, func() { half.Store(q.Received()) })
					}
					n, _ := q.Fetch(t.Context(), u, ids)
					require.Equal(t, []int64{one.half, one.all, one.all}, []int64{half.Load(), n, q.Received()})
				}
				require.NoError(t, q.Discard())
				require.Equal(t, one.all, q.Received())
			})
		})
	}
}
