package purgatory_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// flood describes held events of strangers: events per key and number of keys.
type flood struct {
	keys, each int
	fresh      bool // each round uses new keys
	relays     int  // number of relays that send them; 0: clients submit them
	steady     bool // each minute, instead of each half hour
	pulls      bool // pull requests for existing data of alice's
}

// come submits the events, and returns the number of held ones.
func (f flood) come(w *world, round int) (held int) {
	for j := range f.each {
		for i := range f.keys {
			name := fmt.Sprint("mallory ", i)
			if f.fresh {
				name = fmt.Sprint("mallory ", i, " ", round)
			}
			mallory := relaytest.NewCheapKey(name)
			ev := mallory.Event(now(), graspsync.KindAnnouncement, "", nostr.Tag{"d", fmt.Sprintf("spam-%d-%d-%d", round, i, j)})
			if f.pulls {
				ev = pull(mallory, repoOf(alice), 1_000_000*(round+1)+1000*i+j, graspsync.KindPullRequest)
			}
			if f.relays == 0 {
				if w.submit(ev, false) == purgatory.Held {
					held++
				}
			} else if w.from(ev, fmt.Sprintf("evil-%d.example", i%f.relays)) == purgatory.Held {
				held++
			}
		}
	}
	return held
}

func relayAt(t *testing.T, url string) graspsync.RelayURL {
	u, err := graspsync.ParseRelayURL(url)
	require.NoError(t, err)
	return u
}

// from submits an event from a relay with its own port and path. Places are shared by host, because
// ports and paths are free.
func (w *world) from(ev *nostr.Event, host string) purgatory.Decision {
	w.t.Helper()
	w.brought++
	relay := relayAt(w.t, fmt.Sprintf("wss://%s:%d/%d", host, 1024+w.brought%1024, w.brought))
	a, err := w.p.Submit(w.t.Context(), eventtest.Of(ev), graspsync.Source{Kind: graspsync.Live, Relay: relay})
	require.NoError(w.t, err)
	return a.Decision
}

func (w *world) waits(ev *nostr.Event) bool {
	id, err := graspsync.ParseEventID(ev.ID)
	require.NoError(w.t, err)
	return !w.p.Event(id).IsZero()
}

// newcomer has a repository, a state, and a pull request for existing data of alice's.
type newcomer struct {
	ref    graspsync.RepoRef
	pushAt time.Time // zero: the data is on a server
	tips   [2]int    // of the state and the pull request
	events [3]*nostr.Event
	served [3]time.Time
}

// newNewcomer announces a repository with data on a server, or with a push after a time.
func newNewcomer(w *world, n int, push time.Duration) *newcomer {
	key := relaytest.NewCheapKey(fmt.Sprint("honest ", n))
	server := fmt.Sprintf("git-%d.example/r.git", n)
	c := &newcomer{ref: key.Ref("r"), tips: [2]int{100 + n, 200 + n}}
	if push > 0 {
		c.pushAt = time.Now().Add(push)
	} else {
		w.git.Serve(clone(server), serving(c.tips[:]...))
	}
	c.events = [...]*nostr.Event{
		announce(key, now(), server),
		says(key, now(), "main", c.tips[0]),
		key.Event(now(), graspsync.KindPullRequest, "", nostr.Tag{"a", repoOf(alice).String()},
			nostr.Tag{"c", object(c.tips[1]).String()}, nostr.Tag{"clone", "https://" + server}),
	}
	return c
}

// look pushes the data when it is due, and records which events are served.
func (c *newcomer) look(w *world) {
	push := func(ref graspsync.RepoRef, name nip34.RefName, tip nip34.ObjectID) {
		w.git.Push(ref, map[nip34.RefName]nip34.ObjectID{name: tip}, tip)
		w.p.Pushed(w.t.Context(), ref, []nip34.RefName{name})
	}
	if !c.pushAt.IsZero() && !time.Now().Before(c.pushAt) {
		id, err := graspsync.ParseEventID(c.events[2].ID)
		require.NoError(w.t, err)
		if w.git.Has(c.ref) { // else its announcement had no room
			push(c.ref, branch("main"), object(c.tips[0]))
		}
		push(repoOf(alice), nip34.EventRef(id), object(c.tips[1]))
		c.pushAt = time.Time{}
		wait(time.Second)
	}
	for i, ev := range c.events {
		if c.served[i].IsZero() && w.relay.has(ev) {
			c.served[i] = time.Now()
		}
	}
}

// arrive adds 20 newcomers one after another, while a flood is repeated every 30 min. Half of them
// push after 20 min. It returns the number of held and of served events, and the longest time to be
// served.
func arrive(t *testing.T, w *world, f flood) (held, released int, longest time.Duration) {
	w.relay.put(announce(alice, now()-500))
	w.git.Put(repoOf(alice))
	began := time.Now()
	var all []*newcomer
	for minute, round := 0, 0; minute < 130; minute++ {
		if f.steady || minute%31 == 0 {
			f.come(w, round)
			round++
		}
		if n := len(all); n < 20 && minute%5 == 0 {
			c := newNewcomer(w, n, time.Duration(n%2)*20*time.Minute)
			all = append(all, c)
			for _, ev := range c.events {
				if w.from(ev, "honest.example") == purgatory.Held {
					held++
				}
			}
			wait(5 * time.Second)
		}
		for _, c := range all {
			c.look(w)
		}
		wait(time.Until(began.Add(time.Duration(minute+1) * time.Minute)))
	}
	for _, c := range all {
		for i, ev := range c.events {
			if !c.served[i].IsZero() {
				released++
				longest = max(longest, c.served[i].Sub(time.Unix(int64(ev.CreatedAt), 0)))
			}
		}
	}
	return held, released, longest
}

// Strangers fill the table repeatedly. 20 newcomers are still held, and served as soon as without
// the flood.
func TestFloodsKeepNobodyOut(t *testing.T) {
	racetest.Amounts(t)
	alone := time.Duration(0)
	type named struct {
		name string
		flood
	}
	floods := []named{
		{"88 keys", flood{keys: 88, each: 12, relays: 1}},
		{"88 keys by 200 relays", flood{keys: 88, each: 12, relays: 200}},
		{"88 users", flood{keys: 88, each: 12}},
		{"88 keys, pull requests", flood{keys: 88, each: 12, relays: 1, pulls: true}},
		{"a key for each, pull requests", flood{keys: 1056, each: 1, fresh: true, relays: 5, pulls: true}},
	}
	for _, f := range append([]named{{"nobody", flood{}}}, racetest.Some(3, floods)...) {
		t.Run(f.name, func(t *testing.T) {
			run(t, purgatory.Config{Limits: purgatory.Limits{MaxEntries: 1000, MaxBytes: 64 << 20 / 10}}, func(t *testing.T, w *world) {
				held, released, longest := arrive(t, w, f.flood)
				require.Equal(t, 60, held)
				require.Equal(t, 60, released)
				if f.keys == 0 {
					alone = longest
				}
				require.LessOrEqual(t, longest, alone+10*time.Second)
			})
		})
	}
}

// If each of very many keys has one announcement, a new owner has no room until one of them
// expires. Pull requests count for relays, and have room.
func TestFloodOfKeys(t *testing.T) {
	run(t, purgatory.Config{Limits: purgatory.Limits{MaxEntries: 80}}, func(t *testing.T, w *world) {
		w.relay.put(announce(bob, now()-500))
		w.git.Put(repoOf(bob))
		require.Equal(t, 80, flood{keys: 100, each: 1, relays: 1}.come(w, 0))
		ours := announce(alice, now())
		require.Equal(t, purgatory.Full, w.from(ours, "honest.example"))
		require.EqualValues(t, 21, w.p.Status().Dropped["full"])
		wait(31 * time.Minute)
		require.Equal(t, purgatory.Held, w.from(ours, "honest.example"))
		require.Equal(t, purgatory.Held, w.from(pull(alice, repoOf(bob), 1, graspsync.KindPullRequest), "honest.example"))
	})
}

// An evicted event is deleted from the disk, with its repository and dependent events. It is
// counted, and may be submitted again.
func TestDisplacedIsForgotten(t *testing.T) {
	run(t, purgatory.Config{Limits: purgatory.Limits{MaxEntries: 80}}, func(t *testing.T, w *world) {
		first := []*nostr.Event{announce(alice, now()), says(alice, now(), "main", 99)}
		for _, ev := range first {
			require.Equal(t, purgatory.Held, w.from(ev, "a.example"))
		}
		wait(time.Second)
		flood{keys: 39, each: 2, relays: 68}.come(w, 0)
		wait(2 * time.Minute)
		require.True(t, w.git.Has(repoOf(alice)))
		for n := range 2 {
			require.Equal(t, purgatory.Held, w.from(alice.Event(now(), graspsync.KindAnnouncement, "", nostr.Tag{"d", fmt.Sprint("new", n)}), "b.example"))
			wait(time.Second)
		}
		require.False(t, w.waits(first[0]) || w.waits(first[1]))
		wait(time.Minute)
		require.False(t, w.git.Has(repoOf(alice)))
		require.Equal(t, uint64(2), w.p.Status().Ended[purgatory.Displaced])
		require.Equal(t, uint64(2), w.p.Status().Dropped["displaced"])
		w.stop()
		w.start()
		require.False(t, w.waits(first[0]))
		for _, ev := range first {
			require.Equal(t, purgatory.Held, w.from(ev, "a.example"), "it is no verdict")
		}
	})
}
