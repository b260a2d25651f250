package plan

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/cputime"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
)

// changing is a hub that was synced completely and then changes step by step.
type changing struct {
	plan   *Plan
	relays []graspsync.RelayURL
	repos  int

	ended    time.Duration // taken by the ends of the batches that the changes led to
	concerns int           // relays, of all changes together
	effects  int           // for these
	others   int           // effects for other relays
	batches  int
}

// roomy are the limits of a relay that announces large ones.
var roomy = relaylimits.Requests{MaxMessage: 128 << 10, MaxFilters: 100, MaxSubscriptions: 200}

func newChanging(tb testing.TB, repos, relays int, limits relaylimits.Requests) *changing {
	c := &changing{relays: urls(tb, relays), repos: repos}
	cfg := defaults()
	cfg.MaxDials, cfg.MaxConnections = relays, relays
	c.plan = newPlan(cfg)
	c.plan.Step(start, hub(repos, 50, c.relays))
	for _, u := range c.relays {
		settle(c.plan, start, u, c.plan.Step(start, Connected{Relay: u, Epoch: c.plan.relays[u].dial.epoch, Limits: limits}))
	}
	return c
}

// relaysOf are the relays of the repository of that number.
func (c *changing) relaysOf(repo int) (out []graspsync.RelayURL) {
	for k := range 5 {
		out = append(out, c.relays[(repo*7+k)%len(c.relays)])
	}
	return out
}

// step makes a change that concerns these relays, and has all batches end that it leads to.
func (c *changing) step(in Changes, concerned []graspsync.RelayURL) {
	out := c.plan.Step(start, in)
	c.count(out, concerned)
	for queue := only[Start](out); len(queue) > 0; queue = queue[1:] {
		s := queue[0]
		began := time.Now()
		out := c.plan.Step(start, Done{Relay: s.Relay, Epoch: s.Epoch, Batch: s.Batch.ID})
		c.ended += time.Since(began)
		c.batches++
		c.count(out, []graspsync.RelayURL{s.Relay})
		queue = append(queue, only[Start](out)...)
	}
	c.concerns += len(concerned)
}

func (c *changing) count(effects []Effect, concerned []graspsync.RelayURL) {
	for _, e := range effects {
		if u, ok := relayOfEffect(e); ok && !slices.Contains(concerned, u) {
			c.others++
		} else {
			c.effects++
		}
	}
}

// relayOfEffect returns the relay that an effect is about.
func relayOfEffect(e Effect) (graspsync.RelayURL, bool) {
	switch e := e.(type) {
	case Dial:
		return e.Relay, true
	case OpenLive:
		return e.Relay, true
	case CloseLive:
		return e.Relay, true
	case Start:
		return e.Relay, true
	case Cancel:
		return e.Relay, true
	case Reset:
		return e.Relay, true
	case Hangup:
		return e.Relay, true
	case Forget:
		return e.Relay, true
	}
	return graspsync.RelayURL{}, false
}

func (c *changing) addRoot(i int) {
	repo := i % c.repos
	ref := repoRef(fmt.Sprint("repo", repo))
	c.step(Changes{Roots: []RootChange{{ID: rootID(10_000_000 + i), Repos: []graspsync.RepoRef{ref}}}}, c.relaysOf(repo))
}

func (c *changing) deleteRoot(i int) {
	repo := i % c.repos
	c.step(Changes{Roots: []RootChange{{ID: rootID(repo*50 + i/c.repos%50)}}}, c.relaysOf(repo))
}

func (c *changing) addRepo(i int) {
	c.step(full(repoRef(fmt.Sprint("new", i)), c.relaysOf(i)), c.relaysOf(i))
}

func (c *changing) dropRepo(i int) {
	ref := repoRef(fmt.Sprint("repo", i%c.repos))
	c.step(Changes{Repos: []RepoChange{{Ref: ref}}}, c.relaysOf(i%c.repos))
}

// BenchmarkChange measures the cost of a change for each relay that it concerns, with the ends of the
// batches that it causes and without, in a hub and in a hub of ten times the size.
func BenchmarkChange(b *testing.B) {
	for _, size := range []struct {
		repos, relays int
		limits        relaylimits.Requests
		name          string
	}{{1000, 50, usual, "usual"}, {10_000, 500, usual, "usual"}, {10_000, 500, roomy, "roomy"}} {
		for _, kind := range []struct {
			name string
			do   func(c *changing, i int)
		}{
			{"root", (*changing).addRoot}, {"deleted", (*changing).deleteRoot},
			{"repository", (*changing).addRepo}, {"gone", (*changing).dropRepo},
		} {
			b.Run(fmt.Sprintf("%s/%s/repos=%d", kind.name, size.name, size.repos), func(b *testing.B) {
				c := newChanging(b, size.repos, size.relays, size.limits)
				i := 0
				runtime.GC() // garbage of the preparation
				used := cputime.Used()
				for b.Loop() {
					kind.do(c, i)
					i++
				}
				used = cputime.Used() - used
				per := func(d time.Duration, n int) float64 { return float64(d.Nanoseconds()) / 1e3 / float64(max(1, n)) }
				b.ReportMetric(per(used, c.concerns), "cpu-us/relay")
				b.ReportMetric(per(c.ended, c.batches), "us/batch")
				b.ReportMetric(float64(c.effects)/float64(c.concerns), "effects/relay")
				b.ReportMetric(float64(c.others)/float64(i), "others/op")
			})
		}
	}
}
