package grasp_test

import (
	"fmt"
	"math"
	"testing"

	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/adapter/grasp"
	"github.com/graspsync/graspsync/internal/disk"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// crowded has a server leave free twice of what is free.
func crowded(t *testing.T, then func(*khatru.Relay, *grasp.Config)) func(*khatru.Relay, *grasp.Config) {
	t.Helper()
	free, err := disk.Free(t.TempDir())
	require.NoError(t, err)
	if free == math.MaxUint64 {
		t.Skip("not known on this system")
	}
	return func(relay *khatru.Relay, cfg *grasp.Config) {
		cfg.Serve.MinFreeDisk = 2 * free
		if then != nil {
			then(relay, cfg)
		}
	}
}

// A stranger's issues filled the disk that git left alone, and the database did not start
// again. What clients publish is refused in time, what would wait for data as well; by its
// deletion a repository still goes.
func TestServerWithoutRoom(t *testing.T) {
	r := unstarted(t)
	r.start()
	owner := relaytest.NewKey("owner")
	theirs, other := r.publishRepo(owner), owner.Hosted(nostr.Now()-50, "other", "ws://"+r.addr)
	r.stop()
	r.configure = crowded(t, nil)
	r.start()
	defer r.stop()
	refused := r.publish(owner.Issue(nostr.Now(), owner.Ref("repo"), "x"), other)
	require.Len(t, refused, 2)
	for _, err := range refused {
		require.ErrorContains(t, err, "error: no room on the disk")
	}
	require.Len(t, r.served(), 2)
	require.False(t, r.waits(other))
	require.Len(t, r.folders(owner), 1)
	deletion := owner.Event(nostr.Now(), nostr.KindDeletion, "", nostr.Tag{"a", fmt.Sprintf("30617:%s:repo", owner.Hex())})
	require.Empty(t, r.publish(deletion))
	require.True(t, r.serves(deletion))
	require.False(t, r.serves(theirs[0]))
}

// What comes by sync does not wait for data, for which there is no room, and no repository is
// made for it. When there is room it comes with its data.
func TestSyncedWithoutRoom(t *testing.T) {
	owner := relaytest.NewKey("owner")
	other, us := unstarted(t), unstarted(t)
	us.start() // for its address
	us.stop()
	other.start()
	defer other.stop()
	us.configure = crowded(t, follow(other))
	us.start()
	theirs := other.publishRepo(owner, us)
	us.eventually("both were tried", func() bool { return us.server.Sync().Manager().Status().Events.Failed >= 2 })
	for _, ev := range theirs {
		require.False(t, us.serves(ev))
		require.False(t, us.waits(ev))
	}
	require.Empty(t, us.folders(owner))
	us.stop()
	us.configure = follow(other)
	us.start()
	defer us.stop()
	us.eventually("they are here", func() bool { return us.serves(theirs[0]) && us.serves(theirs[1]) })
}
