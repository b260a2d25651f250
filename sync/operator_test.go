package sync_test

import (
	"context"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/rules"
	"github.com/graspsync/graspsync/state"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/wire"
)

func newBook(t *testing.T) *rules.RuleSet {
	b, err := rules.Open(t.Context(), state.NewMemory(), rules.File{})
	require.NoError(t, err)
	return b
}

func set(t *testing.T, b *rules.RuleSet, a rules.Action, s rules.Subject) {
	t.Helper()
	require.NoError(t, b.Set(t.Context(), rules.Rule{Action: a, Subject: s}))
}

// A blocked relay is disconnected immediately and gets no requests. It is followed again after the
// block is lifted.
func TestBlockedRelay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net, book := relaytest.NewNetwork(), newBook(t)
		a, b := net.Add("wss://a.example", relaytest.Behavior{}), net.Add("wss://b.example", relaytest.Behavior{})
		boot := net.Add("wss://boot.example", relaytest.Behavior{})
		r, owner := hosted(t, net, relaysync.Config{Rules: book, Bootstrap: []graspsync.RelayURL{boot.URL()}}, "a.example", "b.example")
		defer r.stop()
		after(time.Minute)
		require.Equal(t, [3]int{1, 1, 1}, [3]int{a.Open(), b.Open(), boot.Open()})

		for _, u := range []*relaytest.Relay{a, boot} {
			set(t, book, rules.Block, rules.OfHost(u.URL().HostPort()))
		}
		require.NoError(t, r.manager.RulesChanged(t.Context()))
		after(0)
		require.Equal(t, [3]int{0, 1, 0}, [3]int{a.Open(), b.Open(), boot.Open()})
		dials := len(a.Dials())
		issue := owner.Issue(at(0), owner.Ref("repo"), "while it is blocked")
		a.Publish(issue)
		r.save(owner.Hosted(at(0), "other", us, "a.example"))
		after(48 * time.Hour)
		require.Equal(t, dials, len(a.Dials()), "nothing is asked of it")
		require.False(t, r.has(issue))
		require.Positive(t, r.manager.Status().Events.Dropped["blocked"])

		for _, u := range []*relaytest.Relay{a, boot} {
			require.NoError(t, book.Unset(t.Context(), rules.OfHost(u.URL().HostPort())))
		}
		require.NoError(t, r.manager.RulesChanged(t.Context(), rules.OnRuleRemoved(rules.OfHost(a.URL().HostPort()))))
		after(time.Minute)
		require.Equal(t, [3]int{1, 1, 1}, [3]int{a.Open(), b.Open(), boot.Open()})
		require.True(t, r.has(issue))
	})
}

// Events of a blocked author are rejected from any source, and arrive after the block is lifted,
// without waiting for the next pass. The same holds for a repository with all its events.
func TestBlockedAuthorAndRepository(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net, book := relaytest.NewNetwork(), newBook(t)
		a := net.Add("wss://a.example", relaytest.Behavior{})
		mallory, bob := relaytest.NewCheapKey("mallory"), relaytest.NewCheapKey("bob")
		set(t, book, rules.Block, rules.OfAuthor(mallory.PubKey()))
		set(t, book, rules.Block, rules.OfRepository(bob.Ref("bad")))
		r, owner := hosted(t, net, relaysync.Config{Rules: book}, "a.example")
		defer r.stop()
		fine := bob.Issue(at(time.Hour), owner.Ref("repo"), "fine")
		spam := mallory.Issue(at(time.Hour), owner.Ref("repo"), "spam")
		theirs := mallory.Hosted(at(time.Hour), "theirs", us, "a.example")
		bad, good := bob.Hosted(at(time.Hour), "bad", us, "a.example"), bob.Hosted(at(time.Hour), "good", us, "a.example")
		about := owner.Issue(at(time.Hour), bob.Ref("bad"), "about")
		below := owner.Comment(at(time.Hour), about, "below")
		all := []*nostr.Event{fine, spam, theirs, bad, good, about, below}
		a.Publish(all...)
		which := func() (out []bool) {
			for _, ev := range all {
				out = append(out, r.has(ev))
			}
			return out
		}
		after(2 * time.Minute)
		require.Equal(t, []bool{true, false, false, false, true, false, false}, which())
		require.Equal(t, 2, r.manager.Status().Repos)
		for _, ev := range []*nostr.Event{spam, theirs, bad} {
			v, err := r.manager.Judge(t.Context(), eventtest.Of(ev))
			require.NoError(t, err)
			require.Equal(t, graspsync.Reject, v.Decision)
			require.Contains(t, v.Reason, "blocked: this server takes nothing")
		}

		require.NoError(t, book.Unset(t.Context(), rules.OfAuthor(mallory.PubKey())))
		require.NoError(t, r.manager.RulesChanged(t.Context(), rules.OnRuleRemoved(rules.OfAuthor(mallory.PubKey()))))
		after(time.Minute)
		require.Equal(t, []bool{true, true, true, false, true, false, false}, which())
		set(t, book, rules.Allow, rules.OfRepository(bob.Ref("bad")))
		require.NoError(t, r.manager.RulesChanged(t.Context(), rules.OnRuleRemoved(rules.OfRepository(bob.Ref("bad")))))
		after(time.Minute)
		require.Equal(t, []bool{true, true, true, true, true, true, true}, which())
		require.Equal(t, 4, r.manager.Status().Repos)

		// A stored repository is no longer followed after it is blocked.
		set(t, book, rules.Block, rules.OfRepository(bob.Ref("bad")))
		set(t, book, rules.Block, rules.OfAuthor(mallory.PubKey()))
		require.NoError(t, r.manager.RulesChanged(t.Context()))
		after(time.Minute)
		require.Equal(t, 2, r.manager.Status().Repos)
		unknown, err := r.manager.RepoStatus(t.Context(), bob.Ref("bad"))
		require.NoError(t, err)
		require.Empty(t, unknown)
		late := bob.Issue(at(0), bob.Ref("bad"), "late")
		a.Publish(late)
		after(48 * time.Hour) // the store was read again, and history was compared
		require.Equal(t, 2, r.manager.Status().Repos)
		require.False(t, r.has(late))
		require.NoError(t, book.Unset(t.Context(), rules.OfRepository(bob.Ref("bad"))))
		require.NoError(t, r.manager.RulesChanged(t.Context(), rules.OnRuleRemoved(rules.OfRepository(bob.Ref("bad")))))
		after(time.Minute)
		require.True(t, r.has(late))
		require.Equal(t, 3, r.manager.Status().Repos)
	})
}

// A repaired relay waits up to an hour for its backoff, unless an operator retries it.
func TestRetry(t *testing.T) {
	following(t, relaytest.Behavior{Down: true}, func(t *testing.T, r *rig, a *relaytest.Relay, owner *relaytest.Key) {
		after(10 * time.Hour)
		for time.Until(r.relay("a.example").NextAttempt) < 10*time.Minute {
			after(time.Minute)
		}
		a.SetDown(false)
		issue := owner.Issue(at(0), owner.Ref("repo"), "x")
		a.Publish(issue)
		after(time.Minute)
		require.False(t, r.has(issue))
		require.NoError(t, r.manager.Retry(t.Context(), a.URL()))
		after(10 * time.Second)
		require.True(t, r.has(issue))
		require.ErrorIs(t, r.manager.Retry(t.Context(), relayURL(t, "unknown.example")), relaysync.ErrUnknownRelay)
	})
}

// Fetched events that were lost from the Store come again after a resync: of the relay, connected
// or not, or of the repository, and of no other one.
func TestResync(t *testing.T) {
	for name, c := range map[string]struct {
		down bool
		do   func(r *rig, a *relaytest.Relay, owner *relaytest.Key) error
		both bool
	}{
		"relay": {do: func(r *rig, a *relaytest.Relay, _ *relaytest.Key) error {
			return r.manager.Resync(r.t.Context(), a.URL())
		}, both: true},
		"relay that is down": {down: true, do: func(r *rig, a *relaytest.Relay, _ *relaytest.Key) error {
			return r.manager.Resync(r.t.Context(), a.URL())
		}, both: true},
		"repository": {do: func(r *rig, _ *relaytest.Relay, k *relaytest.Key) error {
			return r.manager.ResyncRepository(r.t.Context(), k.Ref("repo"))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				net := relaytest.NewNetwork()
				a := net.Add("wss://a.example", relaytest.Behavior{})
				r, owner := hosted(t, net, relaysync.Config{}, "a.example")
				defer r.stop()
				other := relaytest.NewCheapKey("other")
				r.save(other.Hosted(at(time.Hour), "repo", us, "a.example"))
				after(2 * time.Minute)
				asked := func(k *relaytest.Key) (n int) {
					for _, seen := range a.Requests(wire.TypeReq, wire.TypeNegOpen) {
						for _, f := range seen.Filters {
							for _, v := range f.Tags["a"] {
								if v == k.Ref("repo").String() && f.Since == nil {
									n++
								}
							}
						}
					}
					return n
				}
				if c.down {
					a.SetDown(true)
					after(time.Minute)
					a.SetDown(false)
				}
				before, otherBefore := asked(owner), asked(other)
				require.Positive(t, before)
				require.NoError(t, c.do(r, a, owner))
				after(30 * time.Second)
				require.Greater(t, asked(owner), before)
				require.Equal(t, c.both, asked(other) > otherBefore)
				require.True(t, r.manager.Status().Synced)
			})
		})
	}
	bubble(t, func(t *testing.T) {
		r, owner := hosted(t, relaytest.NewNetwork(), relaysync.Config{})
		defer r.stop()
		require.ErrorIs(t, r.manager.ResyncRepository(t.Context(), owner.Ref("none")), relaysync.ErrUnknownRepo)
		require.ErrorIs(t, r.manager.Resync(t.Context(), relayURL(t, "unknown.example")), relaysync.ErrUnknownRelay)
	})
}

// Bootstrap relays can be added and removed while a server runs, also before it has read its store.
func TestBootstrapAtRunTime(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		a, b := net.Add("wss://a.example", relaytest.Behavior{}), net.Add("wss://b.example", relaytest.Behavior{})
		r, _ := hosted(t, net, relaysync.Config{Bootstrap: []graspsync.RelayURL{a.URL()}}, "b.example")
		defer r.stop()
		added := net.Add("wss://added.example", relaytest.Behavior{})
		open := func() [3]int {
			return [3]int{a.Open(), b.Open(), added.Open()}
		}
		require.NoError(t, r.manager.AddBootstrap(t.Context(), added.URL()))
		require.NoError(t, r.manager.AddBootstrap(t.Context(), b.URL()))
		after(time.Minute)
		require.Equal(t, [3]int{1, 1, 1}, open())
		require.True(t, r.relay("added.example").Bootstrap)
		for _, u := range []graspsync.RelayURL{a.URL(), b.URL(), added.URL()} {
			require.NoError(t, r.manager.RemoveBootstrap(t.Context(), u))
			require.ErrorIs(t, r.manager.RemoveBootstrap(t.Context(), u), relaysync.ErrUnknownRelay)
		}
		after(0)
		require.Equal(t, [3]int{0, 1, 0}, open(), "one that a repository lists stays")
		for _, bad := range []graspsync.RelayURL{{}, relayURL(t, us), relayURL(t, "ws://plain.example")} {
			require.ErrorIs(t, r.manager.AddBootstrap(t.Context(), bad), relaysync.ErrUnusableRelay)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_ = r.manager.AddBootstrap(ctx, a.URL()) // the result does not matter, but the call must return
	})
	bubble(t, func(t *testing.T) {
		r, _ := hosted(t, relaytest.NewNetwork(), relaysync.Config{})
		r.stop()
		require.ErrorIs(t, r.manager.AddBootstrap(t.Context(), relayURL(t, "a.example")), relaysync.ErrNotRunning)
	})
}
