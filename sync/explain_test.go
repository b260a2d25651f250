package sync_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// explained returns the state of an event.
func (r *rig) explained(ev *nostr.Event) relaysync.EventState {
	r.t.Helper()
	x, err := r.manager.EventState(r.t.Context(), eventtest.Of(ev).ID)
	require.NoError(r.t, err)
	require.Equal(r.t, ev.ID, x.ID.String())
	return x
}

// EventState explains any event: where it is, why, and which change would affect it.
func TestExplainEvent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		a := net.Add("wss://a.example", relaytest.Behavior{})
		r, owner := hosted(t, net, relaysync.Config{}, "a.example", "down.example")
		defer r.stop()
		net.Add("wss://down.example", relaytest.Behavior{Down: true})
		after(time.Minute)

		issue := owner.Issue(at(0), owner.Ref("repo"), "x")
		foreign := owner.Hosted(at(0), "other", "elsewhere.example")
		orphan := owner.Event(at(0), graspsync.KindState, "", []string{"d", "unknown"})
		old := owner.Hosted(at(48*time.Hour), "repo", us, "a.example")
		gone := owner.Issue(at(0), owner.Ref("repo"), "z")
		for _, ev := range []*nostr.Event{issue, foreign, orphan, old, gone} {
			a.Publish(ev)
		}
		after(time.Minute)
		a.Publish(owner.Deletion(at(0), gone))
		ahead := owner.Issue(at(-time.Hour), owner.Ref("repo"), "from the future")
		a.Publish(ahead)
		after(time.Minute)

		require.Equal(t, relaysync.IsStored, r.explained(issue).Is)

		x := r.explained(foreign)
		require.Equal(t, relaysync.IsRejected, x.Is)
		require.Equal(t, "blocked: announcement does not list this service", x.Reason)
		require.Contains(t, x.Detail, "https://grasp.example/"+owner.Npub()+"/other.git")
		there := "https://elsewhere.example/" + owner.Npub() + "/other.git"
		require.Contains(t, x.Detail, "; it lists relays wss://elsewhere.example, clone "+there, "the domain may be wrong")
		require.Equal(t, "wss://a.example", x.Relay.String())
		require.WithinDuration(t, time.Now().Add(-2*time.Minute), x.At, 10*time.Second)
		require.True(t, x.Again, "a newer version may have it wanted")

		x = r.explained(orphan)
		require.Equal(t, relaysync.IsWaiting, x.Is)
		require.Contains(t, x.Detail, "an announcement of unknown by "+owner.Npub())

		require.Equal(t, relaysync.IsSuperseded, r.explained(old).Is)

		x = r.explained(ahead)
		require.Equal(t, relaysync.IsPostponed, x.Is)
		require.Contains(t, x.Reason, "dated too far ahead")

		after(2 * time.Second) // postponed events are judged again at the full minute, which may be visible
		never := owner.Issue(at(0), owner.Ref("repo"), "never sent")
		x = r.explained(never)
		require.Equal(t, relaysync.IsUnknown, x.Is)
		require.False(t, x.Since.IsZero())

		_, err := r.manager.Judge(t.Context(), eventtest.Of(owner.Comment(at(0), never, "direct")))
		require.NoError(t, err)
		r.manager.NotifyRefused(eventtest.Of(never), "blocked: banned")
		x = r.explained(never)
		require.Equal(t, relaysync.IsRefused, x.Is)
		require.Equal(t, "blocked: banned", x.Detail)
		require.Equal(t, "direct", x.Source)
		after(time.Minute)
		require.EqualValues(t, 1, r.manager.Status().Events.Rejected["refused by the relay"], "whatever the words: an embedder may put a name in them")

		r.manager.NotifyRemoved(eventtest.Of(never))
		require.Equal(t, relaysync.IsRemoved, r.explained(never).Is)

		again := eventtest.Of(gone)
		require.NoError(t, r.store.Remove(t.Context(), again)) // in addition to the deletion
		a.Publish(gone)
		after(time.Minute)
		require.False(t, r.has(gone))
	})
}

// The explanation of a repository names why it is hosted or not, the unused URLs, and the rejected
// events.
func TestExplainRepo(t *testing.T) {
	following(t, relaytest.Behavior{}, func(t *testing.T, r *rig, a *relaytest.Relay, owner *relaytest.Key) {
		plain := owner.Hosted(at(time.Hour), "plain", us)
		plain.Tags = append(plain.Tags, nostr.Tag{"relays", "ws://plain.example", "nonsense://x"})
		owner.Sign(plain)
		wrong := owner.Hosted(at(0), "wrong", us)
		for i, tag := range wrong.Tags {
			if tag[0] == "clone" {
				wrong.Tags[i] = nostr.Tag{"clone", "https://grasp.example/" + owner.Npub() + "/other.git"}
			}
		}
		owner.Sign(wrong)
		r.save(plain)
		after(time.Minute)
		a.Publish(wrong)
		after(time.Minute)
		explain := func(identifier string) relaysync.RepoFollowState {
			t.Helper()
			x, err := r.manager.RepoFollowState(t.Context(), owner.Ref(identifier))
			require.NoError(t, err)
			return x
		}
		x := explain("repo")
		require.Equal(t, relaysync.RepoFollowed, x.Is)
		require.Equal(t, "live", x.Status.Relays[0].Phase)

		x = explain("plain")
		require.Equal(t, relaysync.RepoFollowed, x.Is)

		x = explain("wrong")
		require.Equal(t, relaysync.RepoRejected, x.Is)
		require.Equal(t, wrong.ID, x.Announcement.ID.String())
		require.Contains(t, x.Reason, "in clone")
		require.Contains(t, x.Reason, "clone https://grasp.example/"+owner.Npub()+"/other.git")

		x = explain("nowhere")
		require.Equal(t, relaysync.RepoUnknown, x.Is)
		require.Equal(t, [2]string{"wss://grasp.example", "https://grasp.example/" + owner.Npub() + "/nowhere.git"}, x.Want)

		r.save(owner.Event(at(0), graspsync.KindDeletion, "", []string{"a", owner.Ref("plain").String()}))
		after(time.Minute)
		require.Equal(t, relaysync.RepoDeleted, explain("plain").Is)

		again := owner.Hosted(at(-time.Minute), "plain", "elsewhere.example")
		a.Publish(again)
		after(time.Minute)
		x = explain("plain")
		require.Equal(t, relaysync.RepoRejected, x.Is, "announced after it was deleted")
		require.Equal(t, again.ID, x.Announcement.ID.String())
		require.Contains(t, x.Reason, "does not list this service")

		r.save(owner.Hosted(at(0), "repo", "elsewhere.example"))
		after(time.Minute)
		x = explain("repo")
		require.Equal(t, relaysync.RepoLeft, x.Is)
		require.Contains(t, x.Reason, "does not list this service")
	})
}

// The explanation of a relay names why it is followed or not.
func TestExplainRelay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		net.Add("wss://a.example", relaytest.Behavior{})
		net.Add("wss://down.example", relaytest.Behavior{Down: true})
		first := relayURL(t, "wss://down.example")
		r, owner := hosted(t, net, relaysync.Config{Bootstrap: []graspsync.RelayURL{first}}, "a.example")
		defer r.stop()
		plain := owner.Hosted(at(time.Hour), "plain", us)
		plain.Tags = append(plain.Tags, nostr.Tag{"relays", "ws://plain.example"})
		owner.Sign(plain)
		r.save(plain)
		after(time.Minute)
		for url, want := range map[string]relaysync.StateCode{
			"wss://a.example":       relaysync.RelayFollowed,
			"wss://down.example":    relaysync.RelayFollowed,
			"wss://grasp.example":   relaysync.RelayOurs,
			"ws://plain.example":    relaysync.RelayPlaintext,
			"wss://nowhere.example": relaysync.RelayNotFollowed,
		} {
			x := r.manager.RelayFollowState(relayURL(t, url))
			require.Equal(t, want, x.Is, url)
			require.Equal(t, want == relaysync.RelayFollowed, x.Status != nil, url)
		}
	})
}

// Before Run events are explained. Questions that need Run wait no longer than ctx.
func TestExplainBeforeRun(t *testing.T) {
	bubble(t, func(t *testing.T) {
		owner := relaytest.NewCheapKey("owner")
		r := &rig{t: t, store: memstore.New()}
		identity, err := nip34.ParseIdentity(us)
		require.NoError(t, err)
		m, err := relaysync.New(r.store, relaytest.NewNetwork(), identity, relaysync.Config{})
		require.NoError(t, err)
		r.manager = m
		x := r.explained(owner.Issue(at(0), owner.Ref("repo"), "x"))
		require.Equal(t, relaysync.IsUnknown, x.Is)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = m.RepoFollowState(ctx, owner.Ref("repo"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, relaysync.RelayUnread, m.RelayFollowState(relayURL(t, "wss://a.example")).Is)
	})
}

// A relay's copy of a state with an unreadable ref was accepted, and the ref was deleted. The copy
// of an expired event was rejected for another reason if its repository was unknown.
func TestCaseC14_RelayCopyRefusalNamesItsCause(t *testing.T) {
	following(t, relaytest.Behavior{}, func(t *testing.T, r *rig, a *relaytest.Relay, owner *relaytest.Key) {
		over := nostr.Tag{"expiration", fmt.Sprint(at(time.Second))}
		for why, ev := range map[string]*nostr.Event{
			"invalid: refs/heads/main: no object id": owner.Event(at(0), graspsync.KindState, "", nostr.Tag{"d", "repo"}, nostr.Tag{"refs/heads/main"}),
			"invalid: event is expired":              owner.Event(at(0), graspsync.KindState, "", nostr.Tag{"d", "unknown"}, over),
		} {
			a.Publish(ev)
			after(time.Minute)
			x := r.explained(ev)
			require.Equal(t, relaysync.IsRejected, x.Is)
			require.Equal(t, why, x.Reason)
			require.False(t, r.has(ev))
		}
	})
}
