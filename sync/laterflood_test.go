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

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/state"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// roomy never has room for a stranger's spam, and for pull requests of others only while
// it is not full.
type roomy struct {
	relaysync.Policy
	full atomic.Bool
}

func (p *roomy) Judge(ctx context.Context, ev *nostr.Event, src relaysync.Source, view relaysync.View) (relaysync.Verdict, error) {
	if strings.HasPrefix(ev.Content, spam) || p.full.Load() && ev.Kind == filters.KindPullRequest {
		return relaysync.Verdict{Decision: relaysync.Later, Reason: "rate-limited: no room"}, nil
	}
	return p.Policy.Judge(ctx, ev, src, view)
}

// flocked is a relay on which somebody puts pull requests to our repository, each with a key
// of its own, for which the host has no room, and honest newcomers a few others.
type flocked struct {
	*rig
	relay  *relaytest.Relay
	policy *roomy
	repo   filters.RepoRef
	keys   int
	honest []*nostr.Event
}

func (c *flocked) pull(ago time.Duration, text string) *nostr.Event {
	c.keys++
	key := relaytest.NewCheapKey(fmt.Sprint("newcomer", c.keys))
	return key.Event(at(ago), filters.KindPullRequest, text, nostr.Tag{"a", c.repo.String()}, nostr.Tag{"subject", "x"})
}

// flood puts n events of spam on the relay, at 15 a second.
func (c *flocked) flood(n int) {
	for i := range n {
		c.relay.Publish(c.pull(0, fmt.Sprint(spam, i)))
		time.Sleep(time.Second / 15)
	}
}

func (c *flocked) missing() (n int) {
	for _, ev := range c.honest {
		if !c.has(ev) {
			n++
		}
	}
	return n
}

// arrive waits until all honest ones are here.
func (c *flocked) arrive(most time.Duration) (took time.Duration) {
	began := time.Now()
	for c.missing() > 0 && time.Since(began) < most {
		after(10 * time.Second)
	}
	return time.Since(began)
}

// flockedTo starts a manager whose relay was away for a while, in which spam has come,
// and behind it, that is longer ago, the honest pull requests.
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

// Nothing was remembered of what the host had no room for. More of it than is looked at
// in the time of a batch had the catch-up begin anew each half hour: what lay behind it
// came with the daily pass.
func TestNoRoomForManyHidesNobody(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const n = 20_000
		c := flockedTo(t, n, relaytest.Behavior{}, relaysync.Config{})
		defer c.stop()
		for i := range 4 {
			verified, sent := c.manager.Status().Events.Verified, c.relay.Traffic().EventsSent
			after(30 * time.Minute)
			verified = c.manager.Status().Events.Verified - verified
			sent = c.relay.Traffic().EventsSent - sent
			t.Logf("%d honest ones are missing, %d verified, %d events sent", c.missing(), verified, sent)
			if i > 0 {
				assert.Zero(t, c.missing())
			}
			if i == 1 {
				assert.Less(t, sent, n/4, "it goes on where it was")
			}
			if i > 1 {
				assert.LessOrEqual(t, verified, uint64(3_100), "some are asked for again")
			}
		}
	})
}

// What nobody had room for is judged again from memory, so that it is here once there is.
func TestWhatHadNoRoomComesOnceThereIs(t *testing.T) {
	for _, restarts := range []bool{false, true} {
		t.Run(fmt.Sprint("restart ", restarts), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				kept := state.NewMemory()
				c := flockedTo(t, 2_000, relaytest.Behavior{}, relaysync.Config{State: kept})
				c.policy.full.Store(true)
				after(time.Hour)
				require.Equal(t, 32, c.missing())
				if restarts {
					c.stop()
					c.rig = c.rig.again(relaysync.Config{State: kept, Policy: c.policy})
				}
				defer c.stop()
				after(5 * time.Minute)
				c.policy.full.Store(false)
				took := c.arrive(26 * time.Hour)
				t.Logf("they came %v after there was room", took)
				if restarts {
					assert.LessOrEqual(t, took, time.Hour)
				} else {
					assert.LessOrEqual(t, took, 2*time.Minute)
				}
			})
		})
	}
}
