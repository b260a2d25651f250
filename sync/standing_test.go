package sync_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// sameAfterARestart judges events before and after a restart.
func sameAfterARestart(r *rig, want graspsync.Decision, events ...*nostr.Event) *rig {
	r.t.Helper()
	for range 2 {
		for _, ev := range events {
			v, err := r.manager.Judge(r.t.Context(), eventtest.Of(ev))
			require.NoError(r.t, err)
			require.Equal(r.t, want, v.Decision, "kind %d", ev.Kind)
		}
		r.stop()
		r = start(r.t, r.net, r.store, relaysync.Config{})
		after(time.Minute)
	}
	return r
}

// The removal of a repository by moderation had no effect until a restart: events that tag it, and
// versions of it that do not list this server, were still accepted.
func TestModeratedRepository(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net, store := relaytest.NewNetwork(), memstore.New()
		net.Add("wss://a.example", relaytest.Behavior{})
		owner, x := relaytest.NewCheapKey("owner"), relaytest.NewCheapKey("x")
		ann := owner.Hosted(at(24*time.Hour), "repo", us, "a.example")
		issue := x.Issue(at(2*time.Hour), owner.Ref("repo"), "before")
		(&rig{t: t, store: store}).save(ann, issue)
		r := start(t, net, store, relaysync.Config{})
		after(time.Minute)
		require.NoError(t, store.Remove(t.Context(), eventtest.Of(ann)))
		r.manager.NotifyRemoved(eventtest.Of(ann))
		after(time.Minute)
		r = sameAfterARestart(r, graspsync.Depend,
			x.Issue(at(0), owner.Ref("repo"), "spam"), x.Comment(at(0), issue, "spam"),
			owner.State(at(0), "repo", nil, "main"))
		r = sameAfterARestart(r, graspsync.Reject, owner.Hosted(at(0), "repo", "elsewhere.example"))
		require.True(t, r.has(issue), "what was stored before is not ours to remove")
		r.save(owner.Hosted(at(0), "repo", us, "a.example"))
		after(time.Minute)
		r = sameAfterARestart(r, graspsync.Accept, x.Issue(at(0), owner.Ref("repo"), "welcome"), x.Comment(at(0), issue, "again"))
		r.stop()
	})
}

// A state of a former maintainer, signed after the removal from the list, was accepted until a
// restart.
func TestRemovedMaintainer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net, store := relaytest.NewNetwork(), memstore.New()
		net.Add("wss://a.example", relaytest.Behavior{})
		owner, carol := relaytest.NewCheapKey("owner"), relaytest.NewCheapKey("carol")
		relays, clones := []string{"wss://" + us, "wss://a.example"}, []string{owner.CloneURL("wss://"+us, "repo")}
		hers := carol.State(at(2*time.Hour), "repo", map[string]string{"refs/heads/main": fmt.Sprintf("%040x", 1)}, "")
		agrees := carol.Announcement(at(24*time.Hour), "repo", relays[1:], []string{carol.CloneURL(relays[1], "repo")}, owner)
		(&rig{t: t, store: store}).save(owner.Announcement(at(24*time.Hour), "repo", relays, clones, carol), agrees, hers)
		r := start(t, net, store, relaysync.Config{})
		after(time.Minute)
		r.save(owner.Announcement(at(time.Hour), "repo", relays, clones))
		after(time.Minute)
		late := carol.State(at(0), "repo", map[string]string{"refs/heads/main": fmt.Sprintf("%040x", 2)}, "")
		r = sameAfterARestart(r, graspsync.Depend, late)
		r = sameAfterARestart(r, graspsync.Accept,
			carol.Event(at(0), nostr.KindDeletion, "", nostr.Tag{"a", "30618:" + carol.Hex() + ":repo"}))
		r.save(owner.Announcement(at(0), "repo", relays, clones, carol))
		after(time.Minute)
		sameAfterARestart(r, graspsync.Accept, late).stop()
	})
}

// For a repository that left this server the newest announcement is served, in any order of
// arrival. Before, an older one was served forever if a newer one came after it.
func TestVersionsOfARepositoryThatLeft(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		a := net.Add("wss://a.example", relaytest.Behavior{})
		net.Add("wss://b.example", relaytest.Behavior{})
		r, owner := hosted(t, net, relaysync.Config{}, "a.example", "b.example")
		defer r.stop()
		after(time.Minute)
		leaves := owner.Hosted(at(time.Hour), "repo", "elsewhere.example", "a.example")
		r.save(leaves)
		after(time.Minute)
		r = sameAfterARestart(r, graspsync.Accept, owner.Hosted(at(0), "repo", "elsewhere.example"))
		later := owner.Hosted(at(0), "repo", "elsewhere.example")
		r.save(owner.Hosted(at(2*time.Hour), "other", us, "a.example")) // keeps relay a followed
		after(time.Minute)
		a.Publish(later)
		after(time.Minute)
		require.True(t, r.has(later))
		require.False(t, r.has(leaves))
		sameAfterARestart(r, graspsync.Depend, owner.Issue(at(0), owner.Ref("repo"), "not ours")).stop()
	})
}

// A stored request to vanish counted as an event of its author, so one key could send any number of
// requests, each of which was executed.
func TestVanishingTwice(t *testing.T) {
	following(t, relaytest.Behavior{}, func(t *testing.T, r *rig, a *relaytest.Relay, owner *relaytest.Key) {
		x := relaytest.NewCheapKey("x")
		after(time.Minute)
		issue := x.Issue(at(time.Hour), owner.Ref("repo"), "x")
		r.save(issue)
		var requests []*nostr.Event
		for i := range 100 {
			requests = append(requests, x.Event(at(time.Minute), graspsync.KindVanish, fmt.Sprint(i),
				nostr.Tag{"relay", "ALL_RELAYS"}, nostr.Tag{"a", owner.Ref("repo").String()}))
		}
		a.Publish(requests[0])
		after(time.Minute)
		a.Publish(requests[1:]...)
		after(time.Minute)
		require.False(t, r.has(issue))
		kept := 0
		for _, ev := range requests {
			if r.has(ev) {
				kept++
			}
		}
		require.Equal(t, 1, kept)
		again := x.Issue(at(2*time.Hour), owner.Ref("repo"), "covered")
		a.Publish(again)
		after(time.Minute)
		require.False(t, r.has(again))
	})
}
