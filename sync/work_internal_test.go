package sync

import (
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"

	"github.com/graspsync/graspsync"
)

// What others do not use helps newcomers, down to half of it; history comes before them in
// what is its own, and who is known for what is refused has nothing of it.
func TestNewcomersBorrow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const most = 2_000 * 1_000 // two thousand events of a kilobyte
		taken := func(w *work, of lane) map[lane]int {
			n := make(map[lane]int)
			for {
				_, from, wait := w.try(1_000, of, true)
				if wait > 0 {
					return n
				}
				n[from]++
			}
		}
		w := newWork(most)
		assert.Equal(t, map[lane]int{newcomerLane: 2_000, foreignLane: 1_000, trustedLane: 1_000}, taken(w, newcomerLane))
		assert.Equal(t, map[lane]int{trustedLane: 1_000}, taken(w, trustedLane))
		assert.Equal(t, map[lane]int{foreignLane: 1_000}, taken(w, foreignLane))
		w.give(1_000, foreignLane)
		assert.Empty(t, taken(w, newcomerLane), "it is below half")

		w = newWork(most)
		assert.Equal(t, map[lane]int{oursLane: 2_000}, taken(w, oursLane))

		w = newWork(most)
		w.reserve(waiter{}, 0, 1)
		assert.Equal(t, map[lane]int{newcomerLane: 1_000, foreignLane: 1_000, trustedLane: 1_000}, taken(w, newcomerLane),
			"half is left to history")

		w = newWork(most)
		one := graspsync.PubKey{1}
		pull := categoryOf(graspsync.KindPullRequest, graspsync.PubKey{9})
		assert.Equal(t, trustedLane, w.laneFor(one, pull))
		for range distrust {
			w.judged(one, pull, false, 1_000)
		}
		assert.Equal(t, oursLane, w.laneFor(one, pull))
		assert.Equal(t, newcomerLane, w.laneFor(graspsync.PubKey{2}, pull))
		assert.Equal(t, trustedLane, w.laneFor(graspsync.PubKey{2}, categoryOf(graspsync.KindPullRequest, graspsync.PubKey{8})))
	})
}
