package sync_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/state"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// roomy never has room for a stranger's spam, and has room for pull requests of others unless it is
// full.
type roomy struct {
	relaysync.Policy
	full atomic.Bool
}

func (p *roomy) Judge(ctx context.Context, ev graspsync.Event, src graspsync.Source, view relaysync.View) (graspsync.Verdict, error) {
	if strings.HasPrefix(ev.Content, spam) || p.full.Load() && ev.Kind == graspsync.KindPullRequest {
		return graspsync.Verdict{Decision: graspsync.Later, Reason: "rate-limited: no room"}, nil
	}
	return p.Policy.Judge(ctx, ev, src, view)
}

// flocked is a relay with many pull requests to a hosted repository, each by a new key, for which
// the host has no room, and a few by honest newcomers.
type flocked struct {
	*rig
	relay  *relaytest.Relay
	policy *roomy
	repo   graspsync.RepoRef
	keys   int
	honest []*nostr.Event
}

func (c *flocked) pull(ago time.Duration, text string) *nostr.Event {
	c.keys++
	key := relaytest.NewCheapKey(fmt.Sprint("newcomer", c.keys))
	return key.Event(at(ago), graspsync.KindPullRequest, text, nostr.Tag{"a", c.repo.String()}, nostr.Tag{"subject", "x"})
}

func (c *flocked) missing() (n int) {
	for _, ev := range c.honest {
		if !c.has(ev) {
			n++
		}
	}
	return n
}

// arrive waits until all honest pull requests are stored.
func (c *flocked) arrive(most time.Duration) (took time.Duration) {
	began := time.Now()
	for c.missing() > 0 && time.Since(began) < most {
		after(10 * time.Second)
	}
	return time.Since(began)
}

// flockedTo starts a manager whose relay was disconnected for a while. Spam was published in that
// time, after the honest pull requests.
func flockedTo(t *testing.T, n int, behavior relaytest.Behavior, cfg relaysync.Config) *flocked {
	t.Helper()
	identity, err := nip34.ParseIdentity(us)
	require.NoError(t, err)
	net := relaytest.NewNetwork()
	c := &flocked{relay: net.Add("wss://a.example", behavior), policy: &roomy{Policy: relaysync.NewGRASPPolicy(identity)}}
	cfg.Policy = c.policy
	r, owner := hosted(t, net, cfg, "a.example")
	c.rig, c.repo = r, owner.Ref("repo")
	after(5 * time.Minute)
	c.relay.SetDown(true)
	after(10 * time.Minute)
	for i := range 32 {
		c.honest = append(c.honest, c.pull(9*time.Minute, fmt.Sprint("honest", i)))
	}
	c.relay.Publish(c.honest...)
	for i := range n {
		c.relay.Publish(c.pull(time.Duration(i)*8*time.Minute/time.Duration(n), fmt.Sprint(spam, i)))
	}
	c.relay.SetDown(false)
	return c
}

// Events without room are judged again from memory and stored when there is room. A process that
// ends at any time loses none of them.
func TestWhatHadNoRoomComesOnceThereIs(t *testing.T) {
	racetest.Amounts(t)
	for name, m := range map[string]struct {
		runs            time.Duration
		restart, killed bool
		within          time.Duration
	}{
		"at once":                  {time.Hour, false, false, 2 * time.Minute},
		"killed, in the middle":    {3 * time.Minute, true, true, time.Hour},
		"killed a moment after it": {8*time.Minute + 20*time.Second, true, true, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				kept := state.NewMemory()
				c := flockedTo(t, 5_000, relaytest.Behavior{}, relaysync.Config{State: kept})
				c.policy.full.Store(true)
				after(m.runs)
				require.Equal(t, 32, c.missing())
				if m.restart {
					if m.killed {
						kept = copied(t, kept)
					}
					c.stop()
					c.rig = c.rig.again(relaysync.Config{State: kept, Policy: c.policy})
				}
				defer c.stop()
				after(15 * time.Minute)
				require.Equal(t, 32, c.missing())
				c.policy.full.Store(false)
				took := c.arrive(26 * time.Hour)
				assert.LessOrEqual(t, took, m.within)
			})
		})
	}
}
