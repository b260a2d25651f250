package plan

import (
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
)

// start is time 0 of all tests.
var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

// defaults returns the Config of a SyncManager.
func defaults() Config {
	return Config{
		MaxDials: 90, MaxConnections: 256, MaxRelays: 50_000, MaxRoots: 5_000,
		MaxAuthors: 10_000, AuthorsPerPass: 1_000, MaxBatches: 4,
		BatchTimeout: 30 * time.Minute, Overlap: 15 * time.Minute, QuickReconnect: 15 * time.Minute,
		DailyMin: 23 * time.Hour, DailyMax: 25 * time.Hour,
		RetryBase: 30 * time.Second, RetryMax: time.Hour,
		PollEvery: 10 * time.Minute, PollFilters: 20, MaxNamed: 10_000, NamedIDs: 250,
		Salt: []byte("salt"),
	}
}

var usual = relaylimits.Requests{MaxMessage: 64 << 10, MaxFilters: 20, MaxSubscriptions: 20}

func newPlan(c Config) *Plan { return New(c, rand.New(rand.NewPCG(1, 2))) }

func relayURL(t testing.TB, name string) graspsync.RelayURL {
	t.Helper()
	u, err := graspsync.ParseRelayURL("wss://" + name + ".example")
	require.NoError(t, err)
	return u
}

func repoRef(name string) graspsync.RepoRef {
	return graspsync.RepoRef{Owner: graspsync.PubKey{1}, Identifier: name}
}

func rootID(n int) (id graspsync.EventID) {
	binary.BigEndian.PutUint32(id[:], uint32(n)+1)
	return id
}

func pubKey(n int) (k graspsync.PubKey) {
	binary.BigEndian.PutUint32(k[:], uint32(n)+1)
	return k
}

// full returns a change that makes repo wanted with these root events.
func full(repo graspsync.RepoRef, relays []graspsync.RelayURL, roots ...int) Changes {
	c := Changes{Repos: []RepoChange{{Ref: repo, Relays: relays, Level: LevelFull}}}
	for _, n := range roots {
		c.Roots = append(c.Roots, RootChange{ID: rootID(n), Repos: []graspsync.RepoRef{repo}})
	}
	return c
}

// only returns the effects of one type.
func only[T Effect](effects []Effect) (out []T) {
	for _, e := range effects {
		if e, ok := e.(T); ok {
			out = append(out, e)
		}
	}
	return out
}

// connect completes the dial of a relay.
func connect(t testing.TB, p *Plan, now time.Time, u graspsync.RelayURL) []Effect {
	t.Helper()
	r := p.relays[u]
	require.NotNil(t, r)
	require.True(t, r.dial.connecting, "%s is not being dialed", u)
	return p.Step(now, Connected{Relay: u, Epoch: r.dial.epoch, Limits: usual})
}

// settle ends all batches of a relay, including new ones, and returns their number.
func settle(p *Plan, now time.Time, u graspsync.RelayURL, effects []Effect) (n int) {
	queue := only[Start](effects)
	for len(queue) > 0 {
		b := queue[0]
		queue = queue[1:]
		n++
		queue = append(queue, only[Start](p.Step(now, Done{Relay: u, Epoch: b.Epoch, Batch: b.Batch.ID}))...)
	}
	return n
}

// urls returns n relay URLs.
func urls(t testing.TB, n int) []graspsync.RelayURL {
	t.Helper()
	out := make([]graspsync.RelayURL, n)
	for i := range out {
		out[i] = relayURL(t, fmt.Sprintf("r%d", i))
	}
	return out
}

// allKept returns the checkpoints of all relays.
func allKept(p *Plan) (out []Kept) {
	all := maps.Clone(p.checkpoints.restored)
	if all == nil {
		all = make(map[graspsync.RelayURL]*Kept)
	}
	for u, r := range p.relays {
		if delete(all, u); p.kept(r) != nil {
			all[u] = p.kept(r)
		}
	}
	for _, u := range sortedBy(all, graspsync.RelayURL.Compare) {
		out = append(out, *all[u])
	}
	return out
}
