package sync_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// answer is a note that names what it answers and nothing else: no root event, no repository.
func answer(k *relaytest.Key, at nostr.Timestamp, to *nostr.Event, text string) *nostr.Event {
	return k.Event(at, 1, text, nostr.Tag{"e", to.ID})
}

// What answers an answer names neither repository nor root event, so that it was asked for by
// nobody; it may lie on another relay than what it answers.
func TestAnswersToAnswers(t *testing.T) {
	for _, c := range []struct {
		name     string
		behavior relaytest.Behavior
		crowd    int // issues, of which a relay with little room takes a part
		within   time.Duration
	}{
		{"live", relaytest.Behavior{}, 0, 20 * time.Second},
		{"in rotation", relaytest.Behavior{MaxSubs: 4, MaxFilters: 4}, 300, 12 * time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				net := relaytest.NewNetwork()
				a, b := net.Add("wss://a.example", c.behavior), net.Add("wss://b.example", c.behavior)
				r, owner := hosted(t, net, relaysync.Config{}, "a.example", "b.example")
				defer func() { r.stop() }()
				ann, bob := relaytest.NewCheapKey("ann"), relaytest.NewCheapKey("bob")
				for i := range c.crowd {
					r.save(owner.Issue(at(time.Duration(i)*time.Minute), owner.Ref("repo"), fmt.Sprint(i)))
				}
				issue := owner.Issue(at(10*time.Hour), owner.Ref("repo"), "x")
				comment := ann.Comment(at(9*time.Hour), issue, "a comment")
				a.Publish(issue, comment)
				early := answer(bob, at(8*time.Hour), comment, "was there before")
				earlier := answer(ann, at(7*time.Hour), early, "and so was this")
				b.Publish(early)
				a.Publish(earlier)
				after(5 * time.Minute)
				require.True(t, r.has(early))
				require.True(t, r.has(earlier), "on a relay that has nothing of what it answers")

				late := answer(bob, at(0), earlier, "comes later")
				b.Publish(late)
				after(c.within)
				require.True(t, r.has(late))
				deeper := answer(ann, at(0), late, "and one more")
				a.Publish(deeper)
				after(c.within)
				require.True(t, r.has(deeper))
				s := r.relay("wss://a.example")
				require.Equal(t, 5, s.Descendants)
				require.Equal(t, c.crowd > 0, s.DescendantsLive == 0)

				r.stop()
				missed := answer(bob, at(0), deeper, "while we were away")
				b.Publish(missed)
				after(time.Hour)
				r = r.again(relaysync.Config{})
				after(5 * time.Minute)
				require.True(t, r.has(missed))
				last := answer(bob, at(0), missed, "after a restart")
				a.Publish(last)
				after(c.within)
				require.True(t, r.has(last))

				// Whoever answers something that is gone is not waited for.
				before := r.relay("wss://b.example").Descendants
				a.Publish(bob.Deletion(at(0), last))
				after(c.within)
				require.Equal(t, before-1, r.relay("wss://b.example").Descendants)
			})
		})
	}
}

// A stranger who answers himself is bounded in what is followed and asked for, and takes
// nothing from others: not their layers, and not the answers to what they write there.
func TestAnsweringOneselfIsBounded(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		a := net.Add("wss://a.example", relaytest.Behavior{})
		r, owner := hosted(t, net, relaysync.Config{}, "a.example")
		defer r.stop()
		ann, eve := relaytest.NewCheapKey("ann"), relaytest.NewCheapKey("eve")
		issue := owner.Issue(at(10*time.Hour), owner.Ref("repo"), "x")
		spam := eve.Comment(at(9*time.Hour), issue, "spam")
		a.Publish(issue, spam)
		after(time.Minute)
		for i := range 2_000 {
			down := answer(eve, at(8*time.Hour), spam, fmt.Sprint(i))
			r.save(down)
			if i%10 == 0 {
				spam = down // deeper and deeper
			}
		}
		after(time.Minute)
		s := r.relay("wss://a.example")
		require.LessOrEqual(t, s.Descendants, 500)
		require.Equal(t, s.Descendants, s.DescendantsLive)
		require.NotZero(t, r.manager.Status().Events.Dropped["descendants"])
		requests := len(a.Requests())

		comment := ann.Comment(at(0), issue, "honest")
		a.Publish(comment)
		after(20 * time.Second)
		reply := answer(owner, at(0), comment, "indeed")
		a.Publish(reply)
		another := owner.Issue(at(0), owner.Ref("repo"), "y")
		a.Publish(another)
		after(20 * time.Second)
		a.Publish(ann.Comment(at(0), another, "on it"))
		after(20 * time.Second)
		require.True(t, r.has(comment))
		require.True(t, r.has(reply))
		require.True(t, r.has(another))
		after(time.Hour)
		require.Less(t, len(a.Requests())-requests, 60)
	})
}

// Of a repository that has left us nothing is followed, and everything again when it is back,
// with what was stored before.
func TestAnswersOfARepositoryThatIsBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		a := net.Add("wss://a.example", relaytest.Behavior{})
		net.Add("wss://b.example", relaytest.Behavior{})
		owner, ann := relaytest.NewCheapKey("owner"), relaytest.NewCheapKey("ann")
		r := &rig{t: t, store: memstore.New()}
		r.save(owner.Hosted(at(24*time.Hour), "repo", us, "a.example"), owner.Hosted(at(24*time.Hour), "other", us, "a.example"))
		r = start(t, net, r.store, relaysync.Config{})
		defer r.stop()
		issue := owner.Issue(at(10*time.Hour), owner.Ref("repo"), "x")
		comment := ann.Comment(at(9*time.Hour), issue, "a comment")
		a.Publish(issue, comment, answer(owner, at(8*time.Hour), comment, "an answer"))
		after(time.Minute)
		require.Equal(t, 2, r.relay("wss://a.example").Descendants)
		r.save(owner.Hosted(at(2*time.Hour), "repo", "b.example"))
		after(time.Minute)
		require.Zero(t, r.relay("wss://a.example").Descendants)
		after(26 * time.Hour) // all that waited is forgotten
		r.save(owner.Hosted(at(time.Hour), "repo", us, "a.example"))
		after(time.Minute)
		require.Equal(t, 2, r.relay("wss://a.example").Descendants)
	})
}
