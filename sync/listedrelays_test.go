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

// on returns an announcement of "repo" that lists some hosts and maintainers.
func on(k *relaytest.Key, at nostr.Timestamp, hosts []string, lists ...*relaytest.Key) *nostr.Event {
	relays, clones := make([]string, len(hosts)), make([]string, len(hosts))
	for i, h := range hosts {
		relays[i] = "wss://" + h
		clones[i] = k.CloneURL(relays[i], "repo")
	}
	return k.Announcement(at, "repo", relays, clones, lists...)
}

// teamOf starts a manager with a repository of ann on us and a.example that lists maintainers.
func teamOf(t *testing.T, net *relaytest.Network, cfg relaysync.Config, lists ...*relaytest.Key) (*rig, *relaytest.Key) {
	t.Helper()
	ann := relaytest.NewCheapKey("ann")
	r := &rig{t: t, store: memstore.New()}
	r.save(on(ann, at(24*time.Hour), []string{us, "a.example"}, lists...))
	return start(t, net, r.store, cfg), ann
}

// listers returns the author who lists each relay of ann's repository.
func (r *rig) listers(ref graspsync.RepoRef) map[string]graspsync.PubKey {
	r.t.Helper()
	by := make(map[string]graspsync.PubKey)
	for _, rel := range r.repo(ref).Relays {
		by[rel.URL.String()] = rel.ListedBy
	}
	return by
}

// A relay that only a maintainer lists was never followed, so the maintainer's states, and all
// events about the repository there, did not arrive.
func TestRelaysOfThoseWhoAreListed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		a, b, c := net.Add("wss://a.example", relaytest.Behavior{}), net.Add("wss://b.example", relaytest.Behavior{}), net.Add("wss://c.example", relaytest.Behavior{})
		bob, cat, user := relaytest.NewCheapKey("bob"), relaytest.NewCheapKey("cat"), relaytest.NewCheapKey("user")
		r, ann := teamOf(t, net, relaysync.Config{}, bob)
		defer r.stop()
		ofBob := on(bob, at(time.Hour), []string{"b.example"}, ann, cat)
		ofCat := on(cat, at(time.Hour), []string{"c.example"}, bob)
		byBob, byCat := bob.State(at(time.Minute), "repo", nil, ""), cat.State(at(2*time.Minute), "repo", nil, "")
		pr := user.PullRequest(at(time.Hour), ann.Ref("repo"), "x", fmt.Sprintf("%040x", 1), "https://user.example/x.git")
		comment := user.Comment(at(time.Minute), pr, "please")
		issue := user.Issue(at(time.Minute), ann.Ref("repo"), "y")
		a.Publish(ofBob)
		b.Publish(ofCat, byBob, pr, comment) // listed only by bob
		c.Publish(byCat, issue)              // listed only by cat, whom bob lists
		after(2 * time.Minute)
		for _, ev := range []*nostr.Event{ofBob, ofCat, byBob, byCat, pr, comment, issue} {
			require.True(t, r.has(ev), ev.Kind)
		}
		require.Equal(t, map[string]graspsync.PubKey{
			"wss://a.example": ann.PubKey(), "wss://b.example": bob.PubKey(), "wss://c.example": cat.PubKey(),
		}, r.listers(ann.Ref("repo")))
		more := user.Comment(at(0), issue, "well?")
		c.Publish(more)
		after(time.Second)
		require.True(t, r.has(more), "it is followed live")
		require.True(t, r.manager.Status().Synced)
	})
}

// Relays are dropped when their lister no longer lists them or is no longer listed.
func TestRelaysOfThoseWhoAreListed_Leave(t *testing.T) {
	ann, bob, cat := relaytest.NewCheapKey("ann"), relaytest.NewCheapKey("bob"), relaytest.NewCheapKey("cat")
	roles := func(k *relaytest.Key, at nostr.Timestamp, roles ...nostr.Tag) *nostr.Event {
		ev := on(k, at, []string{"b.example"})
		return k.Event(at, ev.Kind, "", append(ev.Tags, roles...)...)
	}
	type world struct {
		r     *rig
		a, b  *relaytest.Relay
		ofBob *nostr.Event
	}
	for what, c := range map[string]struct {
		do     func(w world)
		stays  bool
		others int // connections to c.example
	}{
		"nothing happens": {func(world) {}, true, 0},
		"he is listed no more": {func(w world) {
			w.r.save(on(ann, at(0), []string{us, "a.example"}))
		}, false, 0},
		"his role has ended": {func(w world) {
			ev := on(ann, at(0), []string{us, "a.example"})
			w.r.save(ann.Event(at(0), ev.Kind, "", append(ev.Tags, nostr.Tag{"M", ann.Hex()}, nostr.Tag{"m", bob.Hex(), "10", "20"})...))
		}, false, 0},
		"he is no maintainer by his own word": {func(w world) {
			w.a.Publish(roles(bob, at(0), nostr.Tag{"m", bob.Hex(), "10", "20"}, nostr.Tag{"m", ann.Hex()}))
		}, false, 0},
		"he is invited, and answers nobody": {func(w world) { w.a.Publish(on(bob, at(0), []string{"b.example"})) }, true, 0},
		"his announcement is deleted":       {func(w world) { w.r.save(bob.Deletion(at(0), w.ofBob)) }, false, 0},
		"his announcement expires here":     {func(w world) { w.r.manager.NotifyRemoved(eventtest.Of(w.ofBob)) }, false, 0},
		"he names another": {func(w world) {
			w.a.Publish(on(bob, at(0), []string{"c.example"}, ann))
		}, false, 1},
		"the owner names it": {func(w world) {
			w.r.save(on(ann, at(0), []string{us, "a.example", "b.example"}))
		}, true, 0},
		"somebody else names it": {func(w world) {
			w.r.save(on(cat, at(0), []string{"b.example", "c.example"}, ann), on(ann, at(0), []string{us, "a.example"}, cat))
		}, true, 1},
		"the repository leaves us": {func(w world) {
			w.r.save(on(ann, at(0), []string{"a.example"}, bob))
		}, false, 0},
	} {
		t.Run(what, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				net := relaytest.NewNetwork()
				w := world{a: net.Add("wss://a.example", relaytest.Behavior{}), b: net.Add("wss://b.example", relaytest.Behavior{})}
				other := net.Add("wss://c.example", relaytest.Behavior{})
				w.r, _ = teamOf(t, net, relaysync.Config{}, bob)
				defer w.r.stop()
				w.ofBob = on(bob, at(time.Hour), []string{"b.example"}, ann)
				w.a.Publish(w.ofBob)
				after(time.Minute)
				require.Equal(t, 1, w.b.Open())
				c.do(w)
				after(time.Minute)
				require.Equal(t, c.stays, w.b.Open() == 1)
				require.Equal(t, c.others, other.Open())
			})
		})
	}
}
