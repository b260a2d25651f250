package purgatory_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// A pull request to several repositories is served when one of them has its ref. The others get the
// ref when they have the data.
func TestPullRequestToSeveral(t *testing.T) {
	at := func(k *relaytest.Key, name string) graspsync.RepoRef { return k.Ref(name) }
	several := func(tip int, refs ...graspsync.RepoRef) *nostrEvent {
		tags := []nostrTag{{"c", object(tip).String()}}
		for _, ref := range refs {
			tags = append(tags, nostrTag{"a", ref.String()})
		}
		return carol.Event(now(), graspsync.KindPullRequest, "", tags...)
	}
	named := func(k *relaytest.Key, name, server string) *nostrEvent {
		return k.Event(now()-500, graspsync.KindAnnouncement, "", nostrTag{"d", name}, nostrTag{"clone", "https://" + server})
	}
	t.Run("other identifier", func(t *testing.T) {
		run(t, purgatory.Config{}, func(t *testing.T, w *world) {
			w.relay.put(named(alice, "r", "a.example/r.git"), named(bob, "s", "b.example/s.git"))
			w.git.Put(at(bob, "s"))
			w.git.Serve(clone("a.example/r.git"), serving(5))
			w.git.Serve(clone("b.example/s.git"), serving())
			p := several(5, at(alice, "r"), at(bob, "s"), at(dave, "nowhere"))
			w.held(p)
			wait(time.Second)
			require.True(t, w.relay.has(p), "one that has no data holds up nothing")
			require.Empty(t, w.p.Held(nostrFilter{}), "it is served, and does not wait")
			require.Equal(t, object(5), w.git.RefsOf(at(alice, "r"))[refOf(p)])
			require.Empty(t, w.git.RefsOf(at(bob, "s")))
			w.git.Serve(clone("b.example/s.git"), serving(5))
			wait(5 * time.Minute)
			require.Equal(t, object(5), w.git.RefsOf(at(bob, "s"))[refOf(p)])
			require.Zero(t, w.p.Status().PullRequests)
			require.Equal(t, uint64(1), w.p.Status().Ended[purgatory.Released])
			require.Zero(t, w.p.Sizes()["served"])
			require.Equal(t, 1, w.relay.saves)
			wait(3 * time.Hour)
			require.Equal(t, object(5), w.git.RefsOf(at(bob, "s"))[refOf(p)])
		})
	})
	t.Run("restart and deletion", func(t *testing.T) {
		run(t, purgatory.Config{}, func(t *testing.T, w *world) {
			w.relay.put(named(alice, "r", "a.example/r.git"), named(bob, "s", "b.example/s.git"))
			w.git.Serve(clone("a.example/r.git"), serving(5))
			p := several(5, at(alice, "r"), at(bob, "s"))
			w.held(p)
			wait(time.Second)
			w.stop()
			w.start()
			wait(time.Second)
			require.Empty(t, w.p.Held(nostrFilter{}))
			require.Equal(t, 1, w.p.Status().PullRequests)
			d := carol.Event(now(), graspsync.KindDeletion, "", nostrTag{"e", p.ID})
			w.relay.put(d)
			w.relay.remove(p.ID)
			w.p.NotifyStored(eventtest.Of(d))
			wait(time.Second)
			require.Empty(t, w.git.RefsOf(at(alice, "r")))
			require.Zero(t, w.p.Status().PullRequests)
			require.Zero(t, w.p.Sizes()["served"])
		})
	})
}
