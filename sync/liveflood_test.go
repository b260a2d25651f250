package sync_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/state"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// flooded starts a manager that follows an honest relay, on which a stranger then puts
// announcements that are not for us, and behind them an honest issue comes.
func flooded(t *testing.T, cfg relaysync.Config, ago time.Duration) (r *rig, a *relaytest.Relay, issue *nostr.Event) {
	t.Helper()
	net := relaytest.NewNetwork()
	a = net.Add("wss://a.example", relaytest.Behavior{})
	r, owner := hosted(t, net, cfg, "a.example")
	after(5 * time.Minute)
	stranger := relaytest.NewCheapKey("stranger")
	events := make([]*nostr.Event, 30_000)
	for i := range events {
		events[i] = stranger.Hosted(at(time.Duration(i)*ago), fmt.Sprint("r", i), "elsewhere.example")
	}
	a.Publish(events...)
	issue = owner.Issue(at(0), owner.Ref("repo"), "honest")
	a.Publish(issue)
	return r, a, issue
}

// The pace for what is of no use stopped the reading of the connection: an honest live
// issue waited three quarters of an hour behind 30,000 foreign announcements.
func TestLiveEventsDoNotWaitBehindForeignOnes(t *testing.T) {
	racetest.Amounts(t)
	bubble(t, func(t *testing.T) {
		r, _, issue := flooded(t, relaysync.Config{}, time.Second)
		defer r.stop()
		after(30 * time.Second)
		require.True(t, r.has(issue))
		s := r.manager.Status().Events
		assert.Less(t, s.Verified, uint64(2_000+500))
		assert.NotZero(t, s.Dropped["unread"])
		assert.Zero(t, s.Dropped["unproductive"])
	})
}

// What was left out of what came live is caught up with, at the pace of history, and what
// comes live meanwhile is not stopped by that.
func TestWhatIsLeftOutIsCaughtUpWith(t *testing.T) {
	racetest.Amounts(t)
	bubble(t, func(t *testing.T) {
		r, a, _ := flooded(t, relaysync.Config{}, 0)
		defer r.stop()
		owner := relaytest.NewCheapKey("owner")
		var slowest time.Duration
		for i := range 12 {
			after(10 * time.Minute)
			issue := owner.Issue(at(0), owner.Ref("repo"), fmt.Sprint("later", i))
			a.Publish(issue)
			began := time.Now()
			for !r.has(issue) && time.Since(began) < time.Hour {
				after(time.Second)
			}
			slowest = max(slowest, time.Since(began))
		}
		assert.Less(t, slowest, 5*time.Minute)
		after(2 * time.Hour)
		assert.Greater(t, r.manager.Status().Events.Verified, uint64(30_000))
		t.Logf("the slowest live event took %v", slowest)
	})
}

// A connection that was lost, or a process that was ended, while there was much to be read
// was taken for one that was read up to that moment: what it had not read came with the
// daily pass. Here it is more than may be left out.
func TestWhatWasNotReadIsCaughtUpWith(t *testing.T) {
	racetest.Amounts(t)
	waits := func(t *testing.T, r *rig, issue *nostr.Event) {
		t.Helper()
		began := time.Now()
		for !r.has(issue) && time.Since(began) < 2*time.Hour {
			after(10 * time.Second)
		}
		t.Logf("it came after %v", time.Since(began))
		assert.Less(t, time.Since(began), 10*time.Minute)
	}
	small := relaysync.Config{}.With(relaysync.Fixed{Unproductive: 256 << 10})
	t.Run("lost", func(t *testing.T) {
		bubble(t, func(t *testing.T) {
			r, a, issue := flooded(t, small, 10*time.Second)
			defer r.stop()
			after(10 * time.Minute)
			require.False(t, r.has(issue), "else nothing is tested")
			a.SetDown(true)
			after(time.Second)
			a.SetDown(false)
			waits(t, r, issue)
		})
	})
	for _, killed := range []bool{false, true} {
		t.Run(fmt.Sprint("restart, killed ", killed), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				kept := state.NewMemory()
				cfg := small
				cfg.State = kept
				r, _, issue := flooded(t, cfg, 10*time.Second)
				after(10 * time.Minute)
				require.False(t, r.has(issue), "else nothing is tested")
				cfg.State = kept
				if killed {
					cfg.State = copied(t, kept)
				}
				r.stop()
				r = r.again(cfg)
				defer r.stop()
				waits(t, r, issue)
			})
		})
	}
}
