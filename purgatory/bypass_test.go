package purgatory_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// bytesOf returns the size of the objects in a repository.
func (w *world) bytesOf(of *relaytest.Key) (sum int64) {
	for _, id := range w.git.Objects(repoOf(of)) {
		sum += w.git.Bytes(id)
	}
	return sum
}

// lyingAt returns a pull request to alice's repository with a clone URL.
func lyingAt(by *relaytest.Key, tip int, u string) *nostrEvent {
	return by.Event(now(), graspsync.KindPullRequest, fmt.Sprint(tip), nostrTag{"a", repoOf(alice).String()},
		nostrTag{"c", object(tip).String()}, nostrTag{"clone", "https://" + u})
}

// Unneeded or incomplete objects in a reply count as well. Before, they could be added day after
// day, and stayed for two weeks.
func TestWhatIsFetchedInVainCounts(t *testing.T) {
	const most = 1000
	run(t, purgatory.Config{Limits: purgatory.Limits{MaxPullBytes: most, MaxRepoDay: 4 * most}}, func(t *testing.T, w *world) {
		w.serveAlice()
		worst := int64(0)
		for i := range 20 {
			small, part, u := 100+2*i, 101+2*i, fmt.Sprintf("eve%d.example/r.git", i)
			s := serving(small, part)
			s.Bytes = most - 50
			w.git.Serve(clone(u), s)
			w.git.Size(object(small), 10)
			w.git.Size(object(part), most-60)
			w.git.Needs(object(part), object(1000+i))
			eve := relaytest.NewKey(fmt.Sprint("eve", i))
			w.held(lyingAt(eve, small, u))
			w.held(lyingAt(eve, part, u))
			for range 12 * 60 / 5 {
				wait(5 * time.Minute)
				worst = max(worst, w.bytesOf(alice))
			}
		}
		t.Logf("at most %d bytes", worst)
		require.LessOrEqual(t, worst, int64(3*most))
		require.LessOrEqual(t, w.bytesOf(alice), int64(most))
	})
}
