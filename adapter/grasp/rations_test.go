package grasp_test

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"testing"

	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/adapter/grasp"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// incompressible returns text that needs n bytes in a repository.
func incompressible(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b)
	return base64.StdEncoding.EncodeToString(b)
}

// Strangers filled the room that an owner has for pull requests, in a few of the owner's repositories, and pull requests to
// all the others were refused.
func TestCaseH5_PullRequestsToOneRepositoryLeaveRoomInTheOthers(t *testing.T) {
	racetest.Amounts(t)
	const kib = 1 << 10
	r := unstarted(t)
	r.configure = func(_ *khatru.Relay, cfg *grasp.Config) { cfg.Repositories.MaxOwnerBytes = 4000 * kib }
	r.start()
	defer r.stop()
	owner, n := relaytest.NewKey("owner"), 0
	work := make([]string, 8)
	for i := range work {
		work[i] = t.TempDir()
		name := fmt.Sprint("repo", i)
		r.git(work[i], "init", "-q", "-b", "main")
		tip, _ := r.write(work[i], "readme", name)
		require.Empty(t, r.publish(owner.Hosted(nostr.Now()-100, name, "ws://"+r.addr),
			owner.State(nostr.Now()-90, name, map[string]string{"refs/heads/main": tip}, "main")))
		r.git(work[i], "push", "-q", owner.CloneURL("ws://"+r.addr, name), "main")
	}
	r.eventually("all are served", func() bool { return len(r.served()) == 2*len(work) })
	proposes := func(i int, size int) (out string, err error) {
		n++
		name := fmt.Sprint("repo", i)
		r.git(work[i], "switch", "-q", "-C", "change", "main")
		tip, _ := r.write(work[i], "change", incompressible(size))
		ev := relaytest.NewKey(fmt.Sprint("author", n)).PullRequest(nostr.Now(), owner.Ref(name), "x", tip)
		require.Empty(t, r.publish(ev))
		return r.try(work[i], "push", "-q", owner.CloneURL("ws://"+r.addr, name), "change:refs/nostr/"+ev.ID)
	}
	pushed := 0
	for _, size := range []int{800, 200, 50, 10, 1} {
		for i := range 6 {
			for range 3 {
				if _, err := proposes(i, size*kib); err != nil {
					break
				}
				pushed++
			}
		}
	}
	require.Greater(t, pushed, 3)
	for i := 6; i < len(work); i++ {
		out, err := proposes(i, kib)
		require.NoError(t, err, out)
	}
}
