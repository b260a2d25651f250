package fetchtest

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
)

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
				var received, half atomic.Int64
				if one.server.Delay > 0 {
					time.AfterFunc(one.server.Delay/2+1, func() { half.Store(received.Load()) })
				}
				_ = f.Fetch(t.Context(), purgatory.FetchRequest{From: u, Want: ids, Dir: dir, Quarantine: q.Folder(), Received: &received})
				require.Equal(t, []int64{one.half, one.all}, []int64{half.Load(), received.Load()})
				require.NoError(t, q.Discard())
			})
		})
	}
}
