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

// A pull request with 16 slow clone URLs does not delay other pull requests, even if it names their
// servers as well. Slow pull requests to five repositories do not delay the owner's other
// repositories. Before, both took hours.
func TestSlowPullRequestsDoNotHoldUpOthers(t *testing.T) {
	for name, c := range map[string]struct {
		repos  int  // with slow pull requests
		keys   int  // that propose slow pull requests to each of them
		shares bool // the slow pull requests name the honest server too
		within time.Duration
	}{
		"one":      {1, 1, false, 3 * time.Minute},
		"names it": {1, 1, true, 3 * time.Minute},
		"eight":    {1, 8, false, 10 * time.Minute},
		"others":   {6, 1, false, 3 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, purgatory.Config{}, func(t *testing.T, w *world) {
				proposal := func(k *relaytest.Key, d string, tip int, urls ...string) *nostr.Event {
					clones := nostr.Tag{"clone"}
					for _, u := range urls {
						clones = append(clones, "https://"+u)
					}
					return k.Event(now(), graspsync.KindPullRequest, "x",
						nostr.Tag{"a", alice.Ref(d).String()}, nostr.Tag{"c", object(tip).String()}, clones)
				}
				serveRepo := func(d string) {
					tag := nostr.Tag{"d", d}
					w.git.Serve(clone("good.example/"+d+".git"), fetchtest.Server{Objects: []nip34.ObjectID{object(1), object(3)}})
					w.held(alice.Event(now(), graspsync.KindAnnouncement, "", tag, nostr.Tag{"clone", "https://good.example/" + d + ".git"}))
					w.held(alice.Event(now(), graspsync.KindState, "", tag, nostr.Tag{"refs/heads/main", object(1).String()}))
				}
				n := 0
				for i := range c.repos {
					d := fmt.Sprint("r", i)
					serveRepo(d)
					wait(10 * time.Second)
					for range c.keys {
						n++
						var urls []string
						for j := range 16 {
							urls = append(urls, fmt.Sprintf("slow%d.example/r.git", 100*n+j))
							w.git.Serve(clone(urls[j]), fetchtest.Server{Err: errors.New("too slow"), Delay: 10 * time.Minute, Bytes: 1_000_000})
						}
						if c.shares {
							urls[15] = "bob.example/r.git"
						}
						w.held(proposal(relaytest.NewCheapKey(fmt.Sprint("eve", n)), d, 5000+n, urls...))
					}
				}
				wait(10 * time.Second)
				last := "r0"
				if c.repos > 1 {
					last = "last"
					serveRepo(last)
				}
				w.git.Serve(clone("bob.example/r.git"), fetchtest.Server{Objects: []nip34.ObjectID{object(2)}})
				honest := proposal(bob, last, 2, "bob.example/r.git")
				w.held(honest)
				wait(c.within)
				require.True(t, w.relay.has(honest), "it waits for slow pull requests")
				state := alice.Event(now(), graspsync.KindState, "", nostr.Tag{"d", last}, nostr.Tag{"refs/heads/main", object(3).String()})
				w.held(state)
				wait(2 * time.Minute)
				require.True(t, w.relay.has(state), "the owner's state waits for slow pull requests")
			})
		})
	}
}

// Pull requests that name a new silent server every 8 s leave the server of another pull request half
// of the turns if they are of one author, and some if they are of many. Before, it was asked once an
// hour, because servers that were never asked came first.
func TestPullRequestsOfNewServersTakeTurns(t *testing.T) {
	for name, c := range map[string]struct {
		author func(n int) string
		often  int // in each 10 min
	}{
		"one author":   {func(int) string { return "eve" }, 40},
		"many authors": {func(n int) string { return fmt.Sprint("eve", n) }, 0},
	} {
		t.Run(name, func(t *testing.T) {
			run(t, purgatory.Config{}, func(t *testing.T, w *world) {
				asked := make([]int, 7) // in each 10 min
				began := time.Now()
				w.observe = func(o purgatory.Observation) {
					if f, is := o.(purgatory.FetchEnded); is && f.URL == clone("bob.example/r.git") {
						asked[time.Since(began)/(10*time.Minute)]++
					}
				}
				w.held(announce(alice, now(), "good.example/r.git"))
				w.git.Serve(clone("bob.example/r.git"), fetchtest.Server{Delay: time.Second})
				proposal := func(k *relaytest.Key, tip int, at string) *nostr.Event {
					return k.Event(now(), graspsync.KindPullRequest, "x", nostr.Tag{"a", alice.Ref("r").String()},
						nostr.Tag{"c", object(tip).String()}, nostr.Tag{"clone", "https://" + at})
				}
				w.held(proposal(bob, 2, "bob.example/r.git"))
				for n := range 450 {
					silent := fmt.Sprintf("silent%d.example/r.git", n)
					w.git.Serve(clone(silent), fetchtest.Server{Err: errTooSlow, Delay: 10 * time.Minute})
					w.held(proposal(relaytest.NewCheapKey(c.author(n)), 5000+n, silent))
					wait(8 * time.Second)
				}
				for _, n := range asked[:6] {
					require.GreaterOrEqual(t, n, c.often)
				}
				total := 0
				for _, n := range asked {
					total += n
				}
				require.GreaterOrEqual(t, total, 4)
			})
		})
	}
}
