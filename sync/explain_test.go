package sync_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"sync/atomic"
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

// explained returns what became of an event, after a check that it is said in sentences.
func (r *rig) explained(ev *nostr.Event) relaysync.EventExplanation {
	r.t.Helper()
	x, err := r.manager.ExplainEvent(r.t.Context(), eventtest.Of(ev).ID)
	require.NoError(r.t, err)
	require.Contains(r.t, x.String(), ev.ID)
	return x
}

// Of whatever event somebody asks about it is said where it is, why, and what would change that.
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
		require.Equal(t, "blocked: announcement does not list this service", x.Why)
		require.Contains(t, x.Detail, "https://grasp.example/"+owner.Npub()+"/other.git")
		there := "https://elsewhere.example/" + owner.Npub() + "/other.git"
		require.Contains(t, x.Detail, ", found "+there+"; it lists relays wss://elsewhere.example, clone "+there, "the domain may be wrong")
		require.Equal(t, "wss://a.example", x.Relay.String())
		require.WithinDuration(t, time.Now().Add(-2*time.Minute), x.At, 10*time.Second)
		require.True(t, x.Again, "a newer version may have it wanted")
		require.Contains(t, x.String(), "A newer version of it that lists us is taken")

		x = r.explained(orphan)
		require.Equal(t, relaysync.IsWaiting, x.Is)
		require.Contains(t, x.String(), "an announcement of unknown by "+owner.Npub())

		require.Equal(t, relaysync.IsSuperseded, r.explained(old).Is)

		x = r.explained(ahead)
		require.Equal(t, relaysync.IsPostponed, x.Is)
		require.Contains(t, x.String(), "dated too far ahead")

		after(2 * time.Second) // at the full minute what is postponed is judged again, which may be seen
		never := owner.Issue(at(0), owner.Ref("repo"), "never sent")
		x = r.explained(never)
		require.Equal(t, relaysync.IsUnknown, x.Is)
		require.Equal(t, 2, x.Relays)
		require.Len(t, x.StillToAsk, 1)
		require.Equal(t, "wss://down.example", x.StillToAsk[0].URL.String())
		require.Contains(t, x.String(), "2 relays are followed; 1 has not answered all that we ask of it, and may have it:")
		require.Contains(t, x.String(), "wss://down.example is not connected (last error: ")
		require.Contains(t, x.String(), "next attempt at")

		_, err := r.manager.Judge(t.Context(), eventtest.Of(owner.Comment(at(0), never, "direct")))
		require.NoError(t, err)
		r.manager.Refused(eventtest.Of(never), "blocked: banned")
		x = r.explained(never)
		require.Equal(t, relaysync.IsRefused, x.Is)
		require.Contains(t, x.String(), "blocked: banned")
		require.Contains(t, x.String(), "from a client")
		after(time.Minute)
		require.EqualValues(t, 1, r.manager.Status().Events.Rejected["refused by the relay"], "whatever the words: an embedder may put a name in them")

		r.manager.Removed(eventtest.Of(never))
		require.Equal(t, relaysync.IsRemoved, r.explained(never).Is)

		again := eventtest.Of(gone)
		require.NoError(t, r.store.Remove(t.Context(), again)) // whatever the deletion left
		a.Publish(gone)
		after(time.Minute)
		require.False(t, r.has(gone))
	})
}

// What was deleted says so, and by what.
func TestExplainDeleted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		a := net.Add("wss://a.example", relaytest.Behavior{})
		r, owner := hosted(t, net, relaysync.Config{}, "a.example")
		defer r.stop()
		issue := owner.Issue(at(time.Hour), owner.Ref("repo"), "x")
		deletion := owner.Deletion(at(time.Minute), issue)
		r.save(issue, deletion)
		after(time.Minute)
		a.Publish(issue)
		after(time.Minute)
		x := r.explained(issue)
		require.Equal(t, relaysync.IsDeleted, x.Is)
		require.Equal(t, deletion.ID, x.DeletedBy.String())
		require.Contains(t, x.String(), deletion.ID)
	})
}

// A state that waited, was stored, and was replaced, is one that has given way, and not one that
// waits: in a Store that does not tell what it removes as well.
func TestExplainOutlived(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		a := net.Add("wss://a.example", relaytest.Behavior{})
		r, owner := hosted(t, net, relaysync.Config{}, "a.example")
		defer r.stop()
		waited := owner.Event(at(time.Hour), graspsync.KindState, "", []string{"d", "late"})
		a.Publish(waited)
		after(time.Minute)
		require.Equal(t, relaysync.IsWaiting, r.explained(waited).Is)
		a.Publish(owner.Hosted(at(time.Hour), "late", us, "a.example"))
		after(time.Minute)
		require.Equal(t, relaysync.IsStored, r.explained(waited).Is)
		newer := owner.Event(at(0), graspsync.KindState, "", []string{"d", "late"})
		a.Publish(newer)
		after(time.Minute)
		x := r.explained(waited)
		require.Equal(t, relaysync.IsSuperseded, x.Is)
		require.True(t, x.Once)
		require.NotContains(t, x.String(), "waits")
		repo, err := r.manager.ExplainRepo(t.Context(), owner.Ref("late"))
		require.NoError(t, err)
		require.Empty(t, repo.Refused)

		r.save(owner.Event(at(0), graspsync.KindDeletion, "", []string{"a", "30618:" + owner.Hex() + ":late"}))
		after(time.Minute)
		require.Equal(t, relaysync.IsDeleted, r.explained(waited).Is)
	})
}

// That an event never came is said only as long as all is remembered that did. Of one that is not
// known a deletion may be here, by whomever; and whoever sends much by one relay has what others
// sent forgotten only where it shares with them.
func TestExplainForgotten(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		net.Add("wss://a.example", relaytest.Behavior{})
		r, owner := hosted(t, net, relaysync.Config{}, "a.example")
		defer r.stop()
		after(time.Minute)
		judge := func(ev *nostr.Event) {
			t.Helper()
			_, err := r.manager.Judge(t.Context(), eventtest.Of(ev))
			require.NoError(t, err)
		}
		after(2 * time.Second) // at the full minute what is postponed is judged again, which may be seen
		never := owner.Issue(at(0), owner.Ref("repo"), "never sent")
		r.save(relaytest.NewCheapKey("somebody").Deletion(at(0), never))
		x := r.explained(never)
		require.Equal(t, relaysync.IsUnknown, x.Is)
		require.Contains(t, x.String(), "never came here since the start")
		require.Contains(t, x.String(), "A deletion names it")

		// One stranger forgets nothing but the share of one key.
		var others []*nostr.Event
		for i := range 8 {
			others = append(others, relaytest.NewCheapKey(fmt.Sprint("somebody", i)).Hosted(at(0), "x", "elsewhere.example"))
			judge(others[i])
		}
		spammer := relaytest.NewCheapKey("spam")
		for i := range 1_001 {
			judge(spammer.Hosted(at(0), fmt.Sprint("s", i), "elsewhere.example"))
		}
		remembered := 0
		for _, ev := range others {
			if x := r.explained(ev); x.Why != "" {
				remembered++
			}
		}
		require.GreaterOrEqual(t, remembered, 5)
		require.Contains(t, r.explained(never).String(), "nothing is remembered of it")
	})
}

// An explanation of a repository names why it is ours or not, what is left out, and what was
// refused.
func TestExplainRepo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		a := net.Add("wss://a.example", relaytest.Behavior{})
		r, owner := hosted(t, net, relaysync.Config{}, "a.example")
		defer r.stop()
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
		explain := func(identifier string) relaysync.RepoExplanation {
			t.Helper()
			x, err := r.manager.ExplainRepo(t.Context(), owner.Ref(identifier))
			require.NoError(t, err)
			require.Contains(t, x.String(), identifier)
			require.Contains(t, x.String(), "Repository "+owner.Npub()+"/"+identifier, "as people write it")
			return x
		}
		x := explain("repo")
		require.Equal(t, relaysync.RepoFollowed, x.Is)
		require.Contains(t, x.String(), "wss://a.example is live")
		require.Contains(t, x.String(), "Stored here: ")

		x = explain("plain")
		require.Equal(t, relaysync.RepoFollowed, x.Is)
		require.Equal(t, "ws://plain.example", x.LeftOut[0].What)
		require.Contains(t, x.LeftOut[0].Why, "not encrypted")
		require.Equal(t, "relays nonsense://x", x.LeftOut[1].What)

		many := owner.Hosted(at(0), "many", us)
		for i := range 100 {
			many.Tags = append(many.Tags, nostr.Tag{"relays", fmt.Sprintf("nonsense://%d", i)})
		}
		owner.Sign(many)
		r.save(many)
		after(time.Minute)
		x = explain("many")
		require.Len(t, x.LeftOut, 65)
		require.Equal(t, "36 more", x.LeftOut[64].What)

		x = explain("wrong")
		require.Equal(t, relaysync.RepoRejected, x.Is)
		require.Equal(t, wrong.ID, x.Announcement.ID.String())
		require.Contains(t, x.Why, "another identifier")
		require.Contains(t, x.String(), "found https://grasp.example/"+owner.Npub()+"/other.git")

		x = explain("nowhere")
		require.Equal(t, relaysync.RepoUnknown, x.Is)
		require.Contains(t, x.String(), "https://grasp.example/"+owner.Npub()+"/nowhere.git")

		r.save(owner.Event(at(0), graspsync.KindDeletion, "", []string{"a", owner.Ref("plain").String()}))
		after(time.Minute)
		require.Equal(t, relaysync.RepoDeleted, explain("plain").Is)

		again := owner.Hosted(at(-time.Minute), "plain", "elsewhere.example")
		a.Publish(again)
		after(time.Minute)
		x = explain("plain")
		require.Equal(t, relaysync.RepoRejected, x.Is, "announced after it was deleted")
		require.Equal(t, again.ID, x.Announcement.ID.String())
		require.Contains(t, x.Why, "does not list this service")

		r.save(owner.Hosted(at(0), "repo", "elsewhere.example"))
		after(time.Minute)
		x = explain("repo")
		require.Equal(t, relaysync.RepoLeft, x.Is)
		require.Contains(t, x.Why, "does not list this service")
		require.False(t, x.Kept)
	})
}

// What is here of a maintainer who lists another server is here for a reason that is said.
func TestExplainAnnouncementThatIsKept(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		net.Add("wss://a.example", relaytest.Behavior{})
		bob := relaytest.NewCheapKey("bob")
		r, owner := hosted(t, net, relaysync.Config{}, "a.example")
		defer r.stop()
		listing := owner.Hosted(at(0), "repo", us, "a.example")
		listing.Tags = append(listing.Tags, nostr.Tag{"maintainers", bob.Hex()})
		owner.Sign(listing)
		r.save(listing, bob.Hosted(at(0), "repo", "elsewhere.example"))
		after(time.Minute)
		x, err := r.manager.ExplainRepo(t.Context(), bob.Ref("repo"))
		require.NoError(t, err)
		require.Equal(t, relaysync.RepoLeft, x.Is)
		require.True(t, x.Kept)
		require.Contains(t, x.String(), "is kept all the same")
	})
}

// A relay is followed or not for a reason.
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
		for url, want := range map[string]struct {
			is   relaysync.RelayStanding
			text string
		}{
			"wss://a.example":       {relaysync.RelayFollowed, "Listed by: " + owner.Npub() + "/repo."},
			"wss://down.example":    {relaysync.RelayFollowed, "next attempt"},
			"wss://grasp.example":   {relaysync.RelayOurs, "this server"},
			"ws://plain.example":    {relaysync.RelayLeftOut, "not encrypted"},
			"wss://nowhere.example": {relaysync.RelayNotFollowed, "no repository of this server lists it"},
			"wss://a.example/inbox": {relaysync.RelayNotFollowed, "wss://a.example is followed"},
		} {
			x, err := r.manager.ExplainRelay(t.Context(), relayURL(t, url))
			require.NoError(t, err)
			require.Equal(t, want.is, x.Is, url)
			require.Contains(t, x.String(), url)
			require.Contains(t, x.String(), want.text, url)
		}
	})
}

// A relay that has just been listed is taken up at the end of the batch window: it has not found no
// room.
func TestExplainRelayJustListed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		net.Add("wss://a.example", relaytest.Behavior{})
		net.Add("wss://b.example", relaytest.Behavior{})
		r, owner := hosted(t, net, relaysync.Config{}, "a.example")
		defer r.stop()
		after(time.Minute)
		explain := func() relaysync.RelayExplanation {
			t.Helper()
			x, err := r.manager.ExplainRelay(t.Context(), relayURL(t, "wss://b.example"))
			require.NoError(t, err)
			return x
		}
		r.save(owner.Hosted(at(0), "two", us, "b.example"))
		after(50 * time.Millisecond)
		x := explain()
		require.Equal(t, 1, x.Listed)
		require.Contains(t, x.String(), "taken up within 5s")
		after(time.Minute)
		require.Equal(t, relaysync.RelayFollowed, explain().Is)
	})
}

// Before Run events are explained, and what Run would have to say is waited for no longer than
// ctx.
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
		require.Contains(t, x.String(), "no relay is followed before that")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = m.ExplainRepo(ctx, owner.Ref("repo"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = m.ExplainRelay(ctx, relayURL(t, "wss://a.example"))
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
}

// While the store can't be read nobody is followed, and it was said that nobody lists a relay.
func TestExplainWhileTheStoreCannotBeRead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		net.Add("wss://a.example", relaytest.Behavior{})
		owner := relaytest.NewCheapKey("owner")
		r := &rig{t: t, store: memstore.New()}
		r.save(owner.Hosted(at(24*time.Hour), "repo", us, "a.example"))
		store := &unreadable{Store: r.store}
		store.is.Store(true)
		r = start(t, net, store, relaysync.Config{})
		defer r.stop()
		after(time.Minute)
		require.True(t, r.manager.Status().Unread)
		require.Contains(t, r.manager.Status().StoreError, errUnreadable.Error())
		relay, err := r.manager.ExplainRelay(t.Context(), relayURL(t, "wss://a.example"))
		require.NoError(t, err)
		require.Contains(t, relay.String(), "not read yet")
		require.Contains(t, relay.String(), errUnreadable.Error())
		require.NotContains(t, relay.String(), "no repository")
		repo, err := r.manager.ExplainRepo(t.Context(), owner.Ref("repo"))
		require.NoError(t, err)
		require.Equal(t, relaysync.RepoStarting, repo.Is)
		require.Contains(t, repo.String(), errUnreadable.Error())
		event, err := r.manager.ExplainEvent(t.Context(), graspsync.EventID{1})
		require.NoError(t, err)
		require.Equal(t, relaysync.IsUnknown, event.Is)
		require.Contains(t, event.String(), errUnreadable.Error())
		store.is.Store(false)
		after(5 * time.Minute)
		require.False(t, r.manager.Status().Unread)
		require.Empty(t, r.manager.Status().StoreError)
		relay, err = r.manager.ExplainRelay(t.Context(), relayURL(t, "wss://a.example"))
		require.NoError(t, err)
		require.Equal(t, relaysync.RelayFollowed, relay.Is)
	})
}

var errUnreadable = errors.New("disk on fire")

// unreadable is a Store of which nothing can be read.
type unreadable struct {
	relaysync.Store
	is atomic.Bool
}

func (s *unreadable) Stamps(ctx context.Context, f nostr.Filter) iter.Seq2[graspsync.Stamp, error] {
	if s.is.Load() {
		return func(yield func(graspsync.Stamp, error) bool) { yield(graspsync.Stamp{}, errUnreadable) }
	}
	return s.Store.Stamps(ctx, f)
}

func (s *unreadable) Events(ctx context.Context, f nostr.Filter) iter.Seq2[graspsync.Event, error] {
	if s.is.Load() {
		return func(yield func(graspsync.Event, error) bool) { yield(graspsync.Event{}, errUnreadable) }
	}
	return s.Store.Events(ctx, f)
}

// A relay's copy of a state with a ref that cannot be read was taken, and the ref was deleted. The copy of an event that
// had expired was refused with another reason if what it belongs to was unknown.
func TestCaseC14_RelayCopyRefusalNamesItsCause(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		a := net.Add("wss://a.example", relaytest.Behavior{})
		r, owner := hosted(t, net, relaysync.Config{}, "a.example")
		defer r.stop()
		over := nostr.Tag{"expiration", fmt.Sprint(at(time.Second))}
		for why, ev := range map[string]*nostr.Event{
			"invalid: refs/heads/main: no object id": owner.Event(at(0), graspsync.KindState, "", nostr.Tag{"d", "repo"}, nostr.Tag{"refs/heads/main"}),
			"invalid: event is expired":              owner.Event(at(0), graspsync.KindState, "", nostr.Tag{"d", "unknown"}, over),
		} {
			a.Publish(ev)
			after(time.Minute)
			x := r.explained(ev)
			require.Equal(t, relaysync.IsRejected, x.Is)
			require.Equal(t, why, x.Why)
			require.False(t, r.has(ev))
		}
	})
}
