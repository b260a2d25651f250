package purgatory_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// Strangers' pull requests without room had everything thrown away that was gathered for a
// state from one server, while another one had the rest: it never became complete.
func TestNoRoomForAPullRequestLeavesWhatIsGatheredForAState(t *testing.T) {
	for _, strangers := range []int{0, 1, 10} {
		t.Run(fmt.Sprint(strangers), func(t *testing.T) {
			run(t, purgatory.Config{MaxPullBytes: 1000}, func(t *testing.T, w *world) {
				w.serveAlice()
				w.relay.put(announce(alice, now()-50, "first.example/r.git", "second.example/r.git"))
				w.git.Needs(object(40), object(41))
				w.git.Serve(clone("first.example/r.git"), serving(40))
				w.git.Serve(clone("second.example/r.git"), serving())
				s := says(alice, now(), "main", 40)
				w.held(s)
				wait(20 * time.Second)
				require.Equal(t, 1, w.git.Quarantines(), "the first one has sent its part")
				w.git.Serve(clone("first.example/r.git"), serving()) // and has it no more
				for i := range strangers {
					u := fmt.Sprintf("stranger%d.example/r.git", i)
					large := serving(50 + i)
					large.Bytes = 5000
					w.git.Serve(clone(u), large)
					w.git.Size(object(50+i), 5000)
					w.held(relaytest.NewKey(u).Event(now(), filters.KindPullRequest, "", nostrTag{"a", repoOf(alice).String()},
						nostrTag{"c", object(50 + i).String()}, nostrTag{"clone", "https://" + u}))
					wait(20 * time.Second)
				}
				require.GreaterOrEqual(t, w.p.Status().Dropped["pull_refs"], uint64(strangers))
				require.False(t, w.relay.has(s))
				w.git.Serve(clone("second.example/r.git"), serving(41))
				wait(20 * time.Minute)
				require.True(t, w.relay.has(s))
				require.Equal(t, object(40), w.git.RefsOf(repoOf(alice))[branch("main")])
				require.Zero(t, w.pullRefs(repoOf(alice)))
			})
		})
	}
}
