package sync_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/racetest"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

const (
	crowdHonest  = 6
	crowdHostile = 9 * crowdHonest
	crowdRepos   = 6
)

// crowd measures how fast honest relays are followed among nine times as many hostile or dead
// relays, or without these. Each repository lists one honest relay and nine others.
func crowd(t *testing.T, others map[string]relaytest.Behavior) (s speed) {
	net := relaytest.NewNetwork()
	var honest []*relaytest.Relay
	for i := range crowdHonest {
		honest = append(honest, net.Add(fmt.Sprintf("wss://honest%d.example", i), relaytest.Behavior{Latency: 20 * time.Millisecond}))
	}
	var hosts []string
	for _, name := range slices.Sorted(maps.Keys(others)) {
		hosts = append(hosts, fmt.Sprintf("odd%d.example", len(hosts)))
		net.Add("wss://"+hosts[len(hosts)-1], others[name])
	}
	store := newDiary(saveCost)
	first := &rig{t: t, store: store}
	var owners []*relaytest.Key
	var here []*nostr.Event
	for i := range crowdRepos {
		owner := relaytest.NewCheapKey(fmt.Sprint("owner", i))
		owners = append(owners, owner)
		relays := []string{us}
		for j := range len(hosts) / crowdHonest {
			relays = append(relays, hosts[(i+j*crowdHonest)%len(hosts)])
		}
		relays = append(relays, fmt.Sprintf("honest%d.example", i%crowdHonest))
		first.save(owner.Hosted(at(24*time.Hour), "repo", relays...))
		for k := range honestEvents {
			ev := owner.Issue(at(time.Duration(k+1)*time.Minute), owner.Ref("repo"), fmt.Sprint(i, " ", k))
			here = append(here, ev)
			honest[i%crowdHonest].Publish(ev)
		}
	}
	began := time.Now()
	r := start(t, net, store, relaysync.Config{Verifier: costly{}}.With(relaysync.Fixed{Workers: 2}))
	after(2 * time.Minute)
	for _, ev := range here {
		when, ok := store.when(ev)
		require.True(t, ok, "an honest relay was not synced")
		s.first = max(s.first, when.Sub(began))
	}
	// For an hour, a new event at intervals while the other relays continue.
	var live []time.Duration
	for i := range 60 {
		owner := owners[i%crowdRepos]
		ev := owner.Comment(at(0), here[(i%crowdRepos)*honestEvents], fmt.Sprint("live", i))
		published := time.Now()
		honest[i%crowdHonest].Publish(ev)
		after(time.Minute)
		when, ok := store.when(ev)
		require.True(t, ok, "a live event of an honest relay did not come")
		live = append(live, when.Sub(published))
	}
	slices.Sort(live)
	s.live, s.slowest = live[len(live)/2], live[len(live)-1]
	ending := time.Now()
	r.stop()
	require.LessOrEqual(t, time.Since(ending), 5*time.Second)
	require.Empty(t, store.savedTwice())
	for _, rel := range honest {
		require.Len(t, rel.Dials(), 1)
		require.Empty(t, rel.Violations())
	}
	return s
}

// With nine of ten relays hostile or dead, a new event on an honest relay is accepted within 1.5
// times the time without them.
func TestPromiseP37_HonestAmongHostile(t *testing.T) {
	racetest.Amounts(t)
	var alone speed
	bubble(t, func(t *testing.T) { alone = crowd(t, nil) })
	wild := temper{pace: 50 * time.Millisecond, bulk: 300}
	for name, mix := range map[string]func(i int, all []string) string{
		"dead":    func(i int, _ []string) string { return []string{"down", "never answers"}[i%2] },
		"hostile": func(i int, all []string) string { return all[i*len(all)/crowdHostile] },
		"floods": func(i int, _ []string) string {
			return []string{"foreign flood", "endless foreign events", "forged signatures", "future flood", "foreign live events"}[i%5]
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				names := slices.Sorted(maps.Keys(zoo(wild)))
				others := make(map[string]relaytest.Behavior)
				for i := range crowdHostile {
					others[fmt.Sprint("other", i)] = zoo(wild)[mix(i, names)]
				}
				s := crowd(t, others)
				t.Logf("first sync %v, alone %v: %.2f; live event %v, alone %v: %.2f; slowest %v, alone %v", s.first, alone.first,
					ratio(s.first, alone.first), s.live, alone.live, ratio(s.live, alone.live), s.slowest, alone.slowest)
				require.LessOrEqual(t, s.live, alone.live*3/2+150*time.Millisecond, "a new event")
				// At the first start no relay is known to work. Silent relays take their turns, ten
				// dials of ten seconds at a time.
				require.LessOrEqual(t, s.first, alone.first+(crowdHostile+9)/10*10*time.Second)
			})
		})
	}
}
