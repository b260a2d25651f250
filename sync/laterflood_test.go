package sync_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
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
	"github.com/graspsync/graspsync/sync/memstore"
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

// Events without room were not remembered. If there were more of them than one batch could process,
// the catch-up started again every half hour, and older events came only with the daily pass.
func TestNoRoomForManyHidesNobody(t *testing.T) {
	racetest.Amounts(t)
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
		"stopped":                  {time.Hour, true, false, time.Hour},
		"stopped, in the middle":   {3 * time.Minute, true, false, time.Hour},
		"killed, in the middle":    {3 * time.Minute, true, true, time.Hour},
		"killed":                   {time.Hour, true, true, time.Hour},
		"killed a moment after it": {8*time.Minute + 20*time.Second, true, true, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				kept := state.NewMemory()
				c := flockedTo(t, 5_000, relaytest.Behavior{}, relaysync.Config{State: kept})
				c.policy.full.Store(true)
				after(m.runs)
				require.Equal(t, 32, c.missing())
				verified := c.manager.Status().Events.Verified
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
				t.Logf("%d verified; they came %v after there was room", verified, took)
				assert.LessOrEqual(t, took, m.within)
			})
		})
	}
}

// Live events of newcomers were rejected for up to an hour if a relay was full of similar events,
// even in a repository that was not attacked.
func TestNewcomersBesideWhatThereIsNoRoomFor(t *testing.T) {
	racetest.Amounts(t)
	const soon = 2 * time.Minute
	rates := map[string]struct{ rate, n, least int }{
		"15 a second": {15, 13_500, 100},
		"60 a second": {60, 18_000, 35}, // twice the number that is processed for one relay
	}
	for _, name := range racetest.Some(1, slices.Sorted(maps.Keys(rates))) {
		f := rates[name]
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				identity, err := nip34.ParseIdentity(us)
				require.NoError(t, err)
				net := relaytest.NewNetwork()
				c := &flocked{relay: net.Add("wss://a.example", relaytest.Behavior{}), policy: &roomy{Policy: relaysync.NewGRASPPolicy(identity)}}
				r, owner := hosted(t, net, relaysync.Config{Policy: c.policy}, "a.example")
				defer r.stop()
				bob := relaytest.NewCheapKey("bob")
				r.save(bob.Hosted(at(24*time.Hour), "two", us, "a.example"))
				after(5 * time.Minute)
				sent := make(map[*nostr.Event]time.Time)
				took := make(map[graspsync.RepoRef][]time.Duration)
				look := func() {
					for ev, since := range sent {
						if r.has(ev) {
							a, err := graspsync.ParseAddress(ev.Tags.Find("a")[1])
							require.NoError(t, err)
							repo, _ := a.Repo()
							took[repo] = append(took[repo], time.Since(since))
							delete(sent, ev)
						}
					}
				}
				attacked, other := owner.Ref("repo"), bob.Ref("two")
				for n := range f.n {
					for i, repo := range []graspsync.RepoRef{attacked, other} {
						if n%293 == 100*i {
							c.repo = repo
							ev := c.pull(0, fmt.Sprint("honest", n))
							c.relay.Publish(ev)
							sent[ev] = time.Now()
						}
					}
					c.repo = attacked
					c.relay.Publish(c.pull(0, fmt.Sprint(spam, n)))
					time.Sleep(time.Second / time.Duration(f.rate))
					if n%f.rate == 0 {
						look()
					}
				}
				s := r.manager.Status().Events
				after(5 * time.Second)
				look()
				for range 36 {
					after(5 * time.Minute)
					look()
				}
				assert.Empty(t, sent, "nothing is lost")
				inTime := func(repo graspsync.RepoRef) (percent int, slowest time.Duration) {
					n := 0
					for _, d := range took[repo] {
						if slowest = max(slowest, d); d <= soon {
							n++
						}
					}
					return 100 * n / len(took[repo]), slowest
				}
				share, slowest := inTime(attacked)
				others, slowestOther := inTime(other)
				t.Logf("within 2 min: %d %%, slowest %v; of the other repository %d %%, %v; %d verified in the flood, dropped %v",
					share, slowest, others, slowestOther, s.Verified, s.Dropped)
				assert.GreaterOrEqual(t, share, f.least)
				assert.Equal(t, 100, others)
			})
		})
	}
}

// Events accepted after there was room were retried forever together with an event on which the
// Store fails. While nothing can be saved, they wait.
func TestWhatHadNoRoomAndCannotBeSaved(t *testing.T) {
	for _, down := range []bool{false, true} {
		t.Run(fmt.Sprint("down ", down), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				identity, err := nip34.ParseIdentity(us)
				require.NoError(t, err)
				store := &endlessStore{Store: memstore.New()}
				policy := &roomy{Policy: relaysync.NewGRASPPolicy(identity)}
				policy.full.Store(true)
				p := newPipeline(t, store, relaysync.Config{Policy: policy})
				owner := relaytest.NewCheapKey("owner")
				c := &flocked{rig: &rig{t: t, store: store}, repo: owner.Ref("repo")}
				p.bring(owner.Hosted(at(time.Hour), "repo", us))
				for i := range 40 {
					c.honest = append(c.honest, c.pull(0, fmt.Sprint("honest", i)))
				}
				p.bring(c.honest...)
				require.Equal(t, 40, c.missing())
				store.poison.Store(c.honest[20].ID)
				if down {
					store.down.Store(true)
				}
				policy.full.Store(false)
				if down {
					after(20 * time.Minute)
					require.Equal(t, 40, c.missing())
					store.down.Store(false)
				}
				poison := c.honest[20]
				c.honest = append(c.honest[:20:20], c.honest[21:]...)
				took := c.arrive(time.Hour)
				t.Logf("the others came after %v", took)
				assert.LessOrEqual(t, took, 10*time.Minute)
				store.poison.Store("")
				c.honest = []*nostr.Event{poison}
				c.arrive(24 * time.Hour)
				assert.True(t, p.wasAsked(poison) || p.has(poison), "it is here, or its relay was asked for it")
			})
		})
	}
}
