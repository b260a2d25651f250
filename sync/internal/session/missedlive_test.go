package session

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/internal/standing"
)

// An event counts as missed live if a matching subscription had been open for a minute when it was
// created, at least a minute ago.
func TestMissedLive(t *testing.T) {
	missed := 0
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 21))
		s := New(defaults())
		s.cfg.Limits.NoNegentropy, s.history.reconciling.offered = true, false
		stood := make(map[string][]time.Duration) // opening times of the subscriptions for each root
		now := time.Duration(0)
		for live := range 1 + rng.IntN(4) {
			root := []string{"x", "y"}[rng.IntN(2)]
			r := sent(t, s.Follow(start.Add(now), plan.LiveID(live+1), standing.Of(tagging(root))))
			now += time.Duration(rng.IntN(3)) * time.Second
			actions := s.Receive(start.Add(now), eose(r.Sub))
			require.Empty(t, actions)
			s.Receive(start.Add(now+time.Minute), eose(r.Sub)) // a second EOSE has no effect
			if rng.IntN(4) == 0 {
				s.Unfollow(start.Add(now), plan.LiveID(live+1))
				continue
			}
			stood[root] = append(stood[root], now)
		}
		now += 3 * time.Minute
		r := sent(t, s.Fetch(start.Add(now), batchOf(1, plan.History, nostr.Filter{Tags: nostr.TagMap{"e": {"x", "y"}}})))
		for n := range 12 {
			root := []string{"x", "y"}[rng.IntN(2)]
			made := []time.Duration{now, now - time.Minute, now - time.Minute + time.Second, now - 2*time.Minute, time.Minute, time.Minute + time.Duration(rng.IntN(12)-2)*time.Second}[rng.IntN(6)]
			want := false
			for _, at := range stood[root] {
				want = want || made >= at+time.Minute && made <= now-time.Minute
			}
			d := one[Deliver](t, s.Receive(start.Add(now), eventMsg(r.Sub, event(n, made, root))))
			require.Equal(t, want, d.Gap, "seed %d: made at %v, now %v, asked for since %v", seed, made, now, stood[root])
			if want {
				missed++
			}
		}
	}
	require.Greater(t, missed, 300)
}
