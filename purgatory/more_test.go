package purgatory_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/fetchtest"
	"github.com/graspsync/graspsync/state"
)

var errDisk = errors.New("input/output error")

// Whatever fails, and however often: when it works again everything is released, once,
// and no ref was ever without its objects.
func TestEveryFailureIsRetried(t *testing.T) {
	for seed := range uint64(60) {
		run(t, purgatory.Config{Membership: unanswered()}, func(t *testing.T, w *world) {
			rng, mishaps := rand.New(rand.NewPCG(seed, 9)), rand.New(rand.NewPCG(seed, 10))
			failing, dice := true, make(chan int, 1)
			dice <- 0
			w.git.FailWith(func(string) error {
				n := <-dice
				defer func() { dice <- n }()
				if failing && mishaps.IntN(3) == 0 {
					return errDisk
				}
				return nil
			})
			w.git.Serve(clone("a.example/r.git"), serving(1, 2, 3))
			at := now()
			d := nostrTag{"d", "r"}
			events := []*nostrEvent{
				alice.Event(at, graspsync.KindAnnouncement, "", d, nostrTag{"clone", "https://a.example/r.git"}),
				bob.Event(at, graspsync.KindAnnouncement, "", d, nostrTag{"maintainers", alice.Hex()}),
				says(alice, at, "main", 1, "dev", 2),
				pull(carol, repoOf(alice), 3, graspsync.KindPullRequest),
			}
			for _, ev := range events {
				w.held(ev)
			}
			wait(time.Duration(rng.IntN(20)) * time.Minute)
			n := <-dice
			failing = false
			dice <- n
			wait(9 * time.Minute)
			for i, ev := range events {
				require.True(t, w.relay.has(ev), "seed %d event %d", seed, i)
			}
			require.Equal(t, w.git.RefsOf(repoOf(alice))[branch("dev")], w.git.RefsOf(repoOf(bob))[branch("dev")])
			require.Equal(t, uint64(4), w.p.Status().Released)
		})
	}
}

// An announcement that waits for the data of a state which is served already was hunted
// for three times, and then not before the next check: after its time was over.
func TestAnnouncementWaitsForServedState(t *testing.T) {
	run(t, purgatory.Config{Membership: unanswered()}, func(t *testing.T, w *world) {
		w.relay.put(announce(alice, now()-500, "a.example/r.git"), says(alice, now()-400, "main", 1))
		w.git.Serve(clone("a.example/r.git"), fetchtest.Server{})
		a := bob.Event(now(), graspsync.KindAnnouncement, "", nostrTag{"d", "r"}, nostrTag{"maintainers", alice.Hex()})
		w.held(a)
		wait(20 * time.Minute)
		w.git.Serve(clone("a.example/r.git"), serving(1))
		wait(9 * time.Minute)
		require.True(t, w.relay.has(a))
	})
}

// After a release nothing is left in memory.
func TestNothingIsLeftInMemory(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		w.git.Serve(clone("a.example/r.git"), serving(1))
		w.held(announce(alice, now(), "a.example/r.git"))
		w.held(says(alice, now(), "main", 1, "dev", 2))
		wait(time.Minute)
		require.NotZero(t, w.p.Sizes()["needs"])
		w.git.Serve(clone("a.example/r.git"), serving(2))
		wait(28 * time.Minute)
		for name, n := range w.p.Sizes() {
			require.Zero(t, n, name)
		}
	})
}

// Data that was pushed to several repositories for one event, to one that the event
// does not name, or for an event that is served, ends as it should.
func TestPushedBeforeItsEvent(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		w.relay.put(announce(alice, now()-500), announce(bob, now()-500))
		p := pull(carol, repoOf(alice), 5, graspsync.KindPullRequest)
		id, _ := graspsync.ParseEventID(p.ID)
		name := nip34.EventRef(id)
		push := func(ref graspsync.RepoRef) {
			w.git.Put(ref)
			w.git.Push(ref, map[nip34.RefName]nip34.ObjectID{name: object(5)}, object(5))
			require.NoError(t, w.p.Pushed(t.Context(), ref, []nip34.RefName{name, branch("main")}))
			wait(time.Second)
		}
		push(repoOf(alice))
		push(repoOf(bob))
		push(repoOf(bob))
		require.Equal(t, 1, w.p.Status().Placeholders)
		w.stop()
		w.start()
		w.held(p)
		wait(time.Second)
		require.True(t, w.relay.has(p))
		require.Empty(t, w.git.RefsOf(repoOf(bob)), "the event does not name it")
		push(repoOf(alice))
		wait(time.Hour)
		require.Equal(t, object(5), w.git.RefsOf(repoOf(alice))[name], "it is served")
		// An event that is stored without us needs no place any more.
		q := pull(carol, repoOf(alice), 6, graspsync.KindPullRequest)
		id, _ = graspsync.ParseEventID(q.ID)
		name = nip34.EventRef(id)
		w.git.Push(repoOf(alice), map[nip34.RefName]nip34.ObjectID{name: object(6)}, object(6))
		require.NoError(t, w.p.Pushed(t.Context(), repoOf(alice), []nip34.RefName{name}))
		w.relay.put(q)
		w.p.Arrived(eventtest.Of(q))
		wait(time.Second)
		require.Zero(t, w.p.Status().Placeholders)
		// Waiting, its data pushed elsewhere.
		r := pull(carol, repoOf(alice), 7, graspsync.KindPullRequest)
		w.held(r)
		id, _ = graspsync.ParseEventID(r.ID)
		name = nip34.EventRef(id)
		w.git.Push(repoOf(bob), map[nip34.RefName]nip34.ObjectID{name: object(5)})
		require.NoError(t, w.p.Pushed(t.Context(), repoOf(bob), []nip34.RefName{name}))
		wait(time.Second)
		require.Empty(t, w.git.RefsOf(repoOf(bob)))
	})
}

// An announcement that is deleted while it waits takes its repository along; what is
// over by NIP-40 goes as well.
func TestDeletedAnnouncement(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		a := announce(alice, now())
		require.Equal(t, purgatory.Held, w.submit(a, true))
		require.True(t, w.git.Has(repoOf(alice)), "at once: a push is next")
		d := alice.Event(now(), graspsync.KindDeletion, "", nostrTag{"e", a.ID})
		w.relay.put(d)
		w.p.Arrived(eventtest.Of(d))
		wait(time.Second)
		require.Empty(t, w.p.Held(nostrFilter{}))
		require.False(t, w.git.Has(repoOf(alice)))
		w.held(bob.Event(now(), graspsync.KindAnnouncement, "", nostrTag{"d", "r"}, nostrTag{"expiration", fmt.Sprint(now() + 60)}))
		wait(2 * time.Minute)
		w.held(says(bob, now(), "main", 1))
		wait(time.Second)
		require.Empty(t, w.p.Announcements("r"))
	})
}

// The repository of an announcement that is deleted while data is fetched for it goes
// when that has ended.
func TestDeletedWhileFetched(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		w.git.Serve(clone("slow.example/r.git"), fetchtest.Server{Objects: []nip34.ObjectID{object(1)}, Delay: 5 * time.Minute})
		a := announce(alice, now(), "slow.example/r.git")
		w.held(a)
		w.held(says(alice, now(), "main", 1))
		wait(time.Minute)
		require.Len(t, w.git.Calls(), 1)
		d := alice.Event(now(), graspsync.KindDeletion, "", nostrTag{"e", a.ID})
		w.relay.put(d)
		w.p.Arrived(eventtest.Of(d))
		wait(30 * time.Minute)
		require.Empty(t, w.p.Held(nostrFilter{}))
		require.False(t, w.relay.has(a))
		require.False(t, w.git.Has(repoOf(alice)))
	})
}

// Nor is it left when it can't be removed at once.
func TestDeletedAnnouncementWhoseRepositoryStays(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		a := announce(alice, now())
		w.held(a)
		wait(time.Second)
		failing := true
		w.git.FailWith(func(op string) error {
			if failing && op == "remove" {
				failing = false
				return errDisk
			}
			return nil
		})
		d := alice.Event(now(), graspsync.KindDeletion, "", nostrTag{"e", a.ID})
		w.relay.put(d)
		w.p.Arrived(eventtest.Of(d))
		wait(500 * time.Millisecond)
		w.stop()
		w.start()
		wait(10 * time.Second)
		require.Empty(t, w.p.Held(nostrFilter{}))
		require.False(t, w.git.Has(repoOf(alice)))
	})
}

// A deleted version goes alone where another one is served: also when repositories of others go
// at the same moment, whose looks took it away with theirs.
func TestDeletedVersionOfWhatIsServed(t *testing.T) {
	for _, others := range []bool{false, true} {
		t.Run(fmt.Sprint(others), func(t *testing.T) {
			run(t, purgatory.Config{}, func(t *testing.T, w *world) {
				newer, also := announce(alice, now()), announce(bob, now())
				w.held(newer)
				if others {
					w.held(also)
				}
				wait(time.Second)
				w.relay.put(announce(alice, now()-100)) // from elsewhere, in the same moment
				d := alice.Event(now(), graspsync.KindDeletion, "", nostrTag{"e", newer.ID})
				w.relay.put(d, bob.Event(now(), graspsync.KindDeletion, "", nostrTag{"e", also.ID}))
				removed := false
				w.git.FailWith(func(op string) error {
					removed = removed || op == "depart"
					return nil
				})
				w.p.Arrived(eventtest.Of(d))
				wait(time.Second)
				require.Empty(t, w.p.Held(nostrFilter{}))
				require.True(t, w.git.Has(repoOf(alice)))
				require.False(t, removed, "nor for a moment")
				require.False(t, w.git.Has(repoOf(bob)))
			})
		})
	}
}

// More repositories with one identifier than are dealt with at once: the one whose
// owner spoke comes first.
func TestManyRepositories(t *testing.T) {
	run(t, purgatory.Config{Membership: unanswered()}.With(purgatory.Fixed{MaxRepositories: 1}), func(t *testing.T, w *world) {
		d := nostrTag{"d", "r"}
		w.relay.put(announce(alice, now()-500, "a.example/r.git"))
		w.relay.put(bob.Event(now()-500, graspsync.KindAnnouncement, "", d, nostrTag{"maintainers", alice.Hex()}))
		w.relay.put(carol.Event(now()-500, graspsync.KindAnnouncement, "", d, nostrTag{"maintainers", alice.Hex()}))
		w.git.Serve(clone("a.example/r.git"), serving(1))
		s := says(alice, now(), "main", 1)
		w.held(s)
		wait(time.Second)
		require.True(t, w.relay.has(s))
		require.Positive(t, w.p.Status().Dropped["repositories"])
	})
}

// What the disk holds that is not ours is counted and left, and nothing else waits
// for it.
func TestUnreadable(t *testing.T) {
	store := state.NewMemory()
	for key, value := range map[string]string{
		"entry/xx": "{}", "entry/" + strings.Repeat("1", 64): `{"class":2}`, "entry/" + strings.Repeat("2", 64): "no",
		"entry/" + strings.Repeat("3", 64): `{"class":4,"repo":"x"}`,
		"expired/xx":                       "2000", "expired/" + strings.Repeat("4", 64): "1999-01-01T00:00:00Z",
		"aligning/x": "no", "aligning/y": `{"repo":"30617:` + alice.Hex() + `:r","changes":[{"ref":"x","old":"y","new":"z"}]}`,
	} {
		_, err := store.CompareAndSwap(t.Context(), "purgatory/"+key, state.Absent, []byte(value))
		require.NoError(t, err)
	}
	w := newWorld(t, purgatory.Config{})
	p, err := purgatory.Open(t.Context(), w.relay, w.git, w.git, store, purgatory.Config{})
	require.NoError(t, err)
	require.Equal(t, uint64(6), p.Status().Unreadable)
	require.Empty(t, p.Held(nostrFilter{}))
}

func TestConfig(t *testing.T) {
	_, err := purgatory.Open(t.Context(), nil, nil, nil, nil, purgatory.Config{
		Times: purgatory.Times{Hold: -1, Backoff: -1}, Limits: purgatory.Limits{
			MaxEntries:   -1,
			DomainLimit:  purgatory.Limit{Concurrent: 1},
			DomainLimits: map[graspsync.HostPort]purgatory.Limit{{Host: "x", Port: 1}: {}},
		},
	}.With(purgatory.Fixed{MaxHold: -2, SoftExpiry: -1, Timeout: -1}))
	require.ErrorIs(t, err, purgatory.ErrConfig)
	for _, name := range []string{"relay", "repos", "git", "store", "Hold", "MaxHold", "SoftExpiry", "MaxEntries", "Timeout", "Backoff", "DomainLimit", "DomainLimits"} {
		require.ErrorContains(t, err, name)
	}
}

// The metrics have the names that operators know, and promlint has nothing to say.
func TestMetrics(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		w.git.Serve(clone("a.example/r.git"), serving(1))
		w.held(announce(alice, now(), "a.example/r.git", "b.example/r.git"))
		w.held(says(alice, now(), "main", 1))
		w.held(says(alice, now()+1, "main", 2))
		wait(time.Minute)
		c := w.p.Collector("")
		problems, err := testutil.CollectAndLint(c)
		require.NoError(t, err)
		require.Empty(t, problems)
		registry := prometheus.NewPedanticRegistry()
		require.NoError(t, registry.Register(c))
		require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(`
# HELP purgatory_sync_oids_fetched_total Wanted objects that came.
# TYPE purgatory_sync_oids_fetched_total counter
purgatory_sync_oids_fetched_total 1
# HELP purgatory_sync_queue_size Repositories that git data is hunted for.
# TYPE purgatory_sync_queue_size gauge
purgatory_sync_queue_size 1
`), "purgatory_sync_oids_fetched_total", "purgatory_sync_queue_size"))
		require.Equal(t, "released expired replaced deleted fate(9)", fmt.Sprintf("%v %v %v %v %v",
			purgatory.Released, purgatory.Expired, purgatory.Replaced, purgatory.Deleted, purgatory.Fate(9)))
		require.NotEmpty(t, w.seen)
		require.ErrorIs(t, w.p.Run(t.Context()), purgatory.ErrRunning)
		synctest.Wait()
	})
}

// What each server is asked is counted: an operator sees from that who is asked too much,
// and who keeps requests waiting.
func TestMetricsOfServers(t *testing.T) {
	run(t, purgatory.Config{}, func(t *testing.T, w *world) {
		slow := serving(1)
		slow.Delay = 2 * time.Minute
		w.git.Serve(clone("a.example/r.git"), serving())
		w.git.Serve(clone("b.example/r.git"), slow)
		w.held(announce(alice, now(), "a.example/r.git", "b.example/r.git"))
		w.held(says(alice, now(), "main", 1))
		wait(time.Minute)
		registry := prometheus.NewPedanticRegistry()
		require.NoError(t, registry.Register(w.p.Collector("")))
		shows := func(inFlight int) {
			t.Helper()
			asked := make(map[string]int)
			for _, c := range w.git.Calls() {
				asked[c.URL.HostPort().String()]++
			}
			require.NotZero(t, asked["a.example:443"])
			require.NotZero(t, asked["b.example:443"])
			require.NoError(t, testutil.GatherAndCompare(registry, strings.NewReader(fmt.Sprintf(`
# HELP purgatory_domain_in_flight Requests under way.
# TYPE purgatory_domain_in_flight gauge
purgatory_domain_in_flight{domain="a.example:443"} 0
purgatory_domain_in_flight{domain="b.example:443"} %d
# HELP purgatory_domain_requests_total Requests for git data.
# TYPE purgatory_domain_requests_total counter
purgatory_domain_requests_total{domain="a.example:443"} %d
purgatory_domain_requests_total{domain="b.example:443"} %d
`, inFlight, asked["a.example:443"], asked["b.example:443"])), "purgatory_domain_in_flight", "purgatory_domain_requests_total"))
		}
		shows(1)
		wait(10 * time.Minute)
		shows(0)
	})
}
