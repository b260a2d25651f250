package purgatory_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// Sixty keys with git servers that drip come before a newcomer, who waits for one turn of each: a minute at one
// of ten places.
func TestFreshSlowServersKeepNobodyOut(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		strangers := 0
		come := func(n int) {
			for range n {
				strangers++
				mallory := relaytest.NewCheapKey(fmt.Sprint("mallory", strangers))
				at := fmt.Sprintf("slow.example:%d/r.git", 2000+strangers)
				w.git.Serve(clone(at), fetchtest.Server{Err: errors.New("too slow"), Delay: 10 * time.Minute})
				w.held(announce(mallory, now(), at))
				w.held(says(mallory, now(), "main", 100_000+strangers))
			}
		}
		come(60)
		wait(10 * time.Second)
		w.git.Serve(clone("good.example/r.git"), fetchtest.Server{Objects: []nip34.ObjectID{object(1)}})
		w.held(announce(alice, now(), "good.example/r.git"))
		first := says(alice, now(), "main", 1)
		w.held(first)
		wait(7 * time.Minute)
		require.True(t, w.relay.has(first), "a newcomer waits for strangers")
		require.Positive(t, w.p.Status().Dropped["gave_way"])

		come(20)
		wait(10 * time.Minute)
		w.git.Serve(clone("good.example/r.git"), fetchtest.Server{Objects: []nip34.ObjectID{object(1), object(2)}})
		second := says(alice, now(), "main", 2)
		w.held(second)
		wait(9 * time.Minute) // they are eighty
		require.True(t, w.relay.has(second), "who is served waits for strangers")
	})
}

// A pull request of a stranger that names slow git servers has these asked one after the other, and what its owner published
// meanwhile came after all of them, though it was with a server that answers at once.
func TestSlowPullRequestsDoNotHoldUpTheirRepository(t *testing.T) {
	for _, c := range []struct{ pulls, urls int }{{1, 1}, {1, 16}, {8, 16}} {
		t.Run(fmt.Sprint(c), func(t *testing.T) {
			run(t, purgatory.Config{}, func(t *testing.T, w *world) {
				good := clone("good.example/r.git")
				w.git.Serve(good, fetchtest.Server{Objects: []nip34.ObjectID{object(1)}})
				w.held(announce(alice, now(), "good.example/r.git"))
				w.held(says(alice, now(), "main", 1))
				wait(10 * time.Second)
				for i := range c.pulls {
					eve := relaytest.NewCheapKey(fmt.Sprint("eve", i))
					urls := nostr.Tag{"clone"}
					for j := range c.urls {
						at := fmt.Sprintf("slow%d.example/r.git", 100*i+j)
						w.git.Serve(clone(at), fetchtest.Server{Err: errors.New("too slow"), Delay: 10 * time.Minute})
						urls = append(urls, "https://"+at)
					}
					w.held(eve.Event(now(), graspsync.KindPullRequest, "x",
						nostr.Tag{"a", repoOf(alice).String()}, nostr.Tag{"c", object(5000 + i).String()}, urls))
				}
				wait(40 * time.Second)
				for n := 2; n < 5; n++ {
					objects := []nip34.ObjectID{object(1), object(2), object(3), object(4)}
					w.git.Serve(good, fetchtest.Server{Objects: objects[:n]})
					next := says(alice, now(), "main", n)
					w.held(next)
					wait(90 * time.Second)
					require.True(t, w.relay.has(next), "state %d waits for what strangers name", n)
					wait(7 * time.Minute)
				}
			})
		})
	}
}

// A large repository of a newcomer, whose server nobody knows, is let finish while strangers come whose servers have a
// domain each and drip: of those that take long, who brings least gives way.
func TestLargeRepositoryIsLetFinish(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		strangers := 0
		come := func(n int) {
			for range n {
				strangers++
				mallory := relaytest.NewCheapKey(fmt.Sprint("mallory", strangers))
				at := fmt.Sprintf("slow%d.example/r.git", strangers)
				w.git.Serve(clone(at), fetchtest.Server{Err: errors.New("too slow"), Delay: 10 * time.Minute, Bytes: 1000})
				w.held(announce(mallory, now(), at))
				w.held(says(mallory, now(), "main", 100_000+strangers))
			}
		}
		w.git.Serve(clone("large.example/r.git"), fetchtest.Server{Objects: []nip34.ObjectID{object(1)}, Delay: 3 * time.Minute, Bytes: 20_000_000})
		w.held(announce(alice, now(), "large.example/r.git"))
		state := says(alice, now(), "main", 1)
		w.held(state)
		wait(time.Second)
		for range 4 {
			come(5)
			wait(time.Minute)
		}
		require.True(t, w.relay.has(state))
		require.Positive(t, w.p.Status().Dropped["gave_way"])
	})
}
