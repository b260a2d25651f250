package purgatory_test

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// happening is an input in any order.
type happening func(w *world)

// history returns the inputs of three repositories with one identifier: versions of announcements,
// states of several maintainers, pull requests, deletions, and data by fetch and push. Events
// without data expire. If answered is true, listings become mutual, bob's by a separate version.
func history(answered bool) (out []happening) {
	at := now() - 1000
	event := func(ev *nostr.Event) { out = append(out, func(w *world) { submitOrStore(w, ev) }) }
	server := nostrTag{"clone", "https://a.example/r.git"}
	d := nostrTag{"d", "r"}
	both := nostrTag{"maintainers", bob.Hex(), carol.Hex()}
	event(alice.Event(at, graspsync.KindAnnouncement, "one", d, both))
	event(alice.Event(at+1, graspsync.KindAnnouncement, "two", d, both, server))
	his := nostr.Tags{d, {"clone", "https://b.example/r.git"}}
	event(bob.Event(at, graspsync.KindAnnouncement, "", his...))
	hers := nostr.Tags{d}
	if answered {
		event(bob.Event(at+2, graspsync.KindAnnouncement, "answers", append(his, nostrTag{"maintainers", alice.Hex(), carol.Hex()})...))
		hers = append(hers, nostrTag{"maintainers", bob.Hex()})
	}
	event(carol.Event(at, graspsync.KindAnnouncement, "never any data", hers...))
	event(says(alice, at, "main", 1))
	event(says(bob, at+5, "main", 2, "dev", 1))
	event(says(bob, at+6, "main", 3)) // no server has the object
	event(says(alice, at+4, "main", 1, "dev", 2))
	event(pull(carol, repoOf(alice), 4, graspsync.KindPullRequest))
	event(pull(carol, repoOf(alice), 5, graspsync.KindPullRequestUpdate)) // no server has the object
	gone := pull(bob, repoOf(alice), 4, graspsync.KindPullRequest)
	event(gone)
	deletion := bob.Event(at+9, graspsync.KindDeletion, "", nostrTag{"e", gone.ID})
	out = append(out, func(w *world) {
		w.relay.put(deletion)
		w.relay.remove(gone.ID)
		w.p.NotifyStored(eventtest.Of(deletion))
	})
	data := func(server string, objects ...nip34.ObjectID) {
		out = append(out, func(w *world) { w.git.Serve(clone(server), fetchtest.Server{Objects: objects}) })
	}
	data("a.example/r.git", object(1), object(4), object(8))
	data("b.example/r.git", object(2), object(8))
	return out
}

func (r *relay) knows(id graspsync.EventID) bool {
	for range r.Events(context.Background(), nostrFilter{IDs: []string{id.String()}}) {
		return true
	}
	return false
}

func (r *relay) remove(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = slices.DeleteFunc(r.events, func(ev *nostr.Event) bool { return ev.ID == id })
}

// submitOrStore submits an event as a relay does, which refuses deleted events.
func submitOrStore(w *world, ev *nostr.Event) {
	if deleted, _ := w.relay.Deleted(w.t.Context(), eventtest.Of(ev)); deleted {
		return
	}
	if w.submit(ev, false) == purgatory.Pass {
		w.relay.put(ev)
		w.p.NotifyStored(eventtest.Of(ev))
	}
}

// outcome returns the served events and the refs.
func outcome(w *world) string {
	var lines []string
	announcements := w.relay.announcements("r")
	for _, a := range announcements {
		lines = append(lines, "announcement "+a.ID.String())
	}
	states := w.relay.states("r")
	for _, s := range states {
		lines = append(lines, "state "+s.ID.String())
	}
	for _, ev := range w.relay.events {
		if _, err := nip34.ParsePullRequest(eventtest.Of(ev)); err == nil {
			lines = append(lines, "pull request "+ev.ID)
		}
	}
	for _, k := range []*relaytest.Key{alice, bob, carol} {
		for name, id := range w.git.RefsOf(repoOf(k)) {
			if hex, isEvent := strings.CutPrefix(name.String(), "refs/nostr/"); isEvent {
				if id, _ := graspsync.ParseEventID(hex); !w.relay.knows(id) {
					continue // it was served before its deletion, and its ref is removed with it
				}
			}
			lines = append(lines, fmt.Sprint(k.Hex()[:4], " ", name, " ", id))
		}
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// TestAnyOrder applies the same inputs in 500 orders, half of them with mutual listings. Refs and
// events must be the same in the end. It covers faults of order: an older state that undoes a newer
// release, data before its event, and a deletion before its event.
func TestAnyOrder(t *testing.T) {
	for name, rule := range map[string]nip34.Membership{"answered": {}, "one-sided": unanswered()} {
		t.Run(name, func(t *testing.T) { anyOrder(t, rule) })
	}
}

func anyOrder(t *testing.T, rule nip34.Membership) {
	results := make(map[string][]uint64)
	for seed := range uint64(racetest.Rounds(40)) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, purgatory.Config{Membership: rule})
			for _, server := range []string{"a.example/r.git", "b.example/r.git"} {
				w.git.Serve(clone(server), fetchtest.Server{}) // reachable, without objects
			}
			w.git.Needs(object(1), object(8))
			w.git.Needs(object(2), object(8))
			w.start()
			rng := rand.New(rand.NewPCG(seed, 5))
			all := history(!rule.OneSided)
			rng.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			for _, happens := range all {
				happens(w)
				wait(time.Duration(rng.IntN(100_000)) * time.Millisecond)
				require.Empty(t, w.git.Broken())
			}
			wait(30 * time.Minute)
			push(w)
			wait(49 * time.Hour)
			require.Empty(t, w.p.Held(nostrFilter{}))
			got := outcome(w)
			results[got] = append(results[got], seed)
			w.stop()
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	for got, seeds := range results {
		if len(results) > 1 {
			t.Logf("%d seeds, such as %d:\n%s", len(seeds), seeds[0], got)
		}
	}
	require.Len(t, results, 1)
	for got := range maps.Keys(results) {
		require.Contains(t, got, "refs/heads/dev")
		require.Contains(t, got, "refs/nostr/")
	}
}

// push pushes the refs of the newest state.
func push(w *world) {
	ref := repoOf(alice)
	if s, err := w.p.AuthorizedState(w.t.Context(), ref); err == nil && s != nil && w.git.Has(ref) {
		w.git.Push(ref, s.Refs, append(slices.Collect(maps.Values(s.Refs)), object(8))...)
		w.p.Pushed(w.t.Context(), ref, slices.Collect(maps.Keys(s.Refs)))
	}
}
