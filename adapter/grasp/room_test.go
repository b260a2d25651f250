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

// crowded sets the minimum free space to twice the free space.
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

// Issues of strangers filled the disk, and the database did not start again. The server refuses
// events in time, also events that would be held. Deletions of repositories are still accepted.
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
