package sync_test

import (
	"context"
	"iter"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// holdsNothing is a Holder without events.
type holdsNothing struct{}

func (holdsNothing) Held(context.Context, nostr.Filter) ([]graspsync.EventKey, error) {
	return nil, nil
}

func (holdsNothing) HeldForUser(graspsync.EventID) (byUser, held bool) { return false, false }

func (holdsNothing) HeldAnnouncements(context.Context) iter.Seq2[*nip34.Announcement, error] {
	return func(func(*nip34.Announcement, error) bool) {}
}

// keeper is a policy that holds announcements and their states.
type keeper struct {
	relaysync.Policy
	holdsNothing
	held []*nip34.Announcement
	all  map[string]bool
}

func (k *keeper) Judge(ctx context.Context, ev graspsync.Event, src graspsync.Source, view relaysync.View) (graspsync.Verdict, error) {
	switch ev.Kind {
	case graspsync.KindAnnouncement:
		a, err := nip34.ParseAnnouncement(ev)
		if err != nil || !k.Lists(a) {
			return graspsync.Verdict{Decision: graspsync.Reject}, err
		}
		k.held = append(k.held, a)
	case graspsync.KindState:
		s, err := nip34.ParseState(ev)
		if err != nil {
			return graspsync.Verdict{Decision: graspsync.Reject}, nil //nolint:nilerr // the verdict says it
		}
		family := nip34.Membership{}.AnnouncementSet(s.Ref.Identifier, k.held)
		if _, is := family.AllMembers(nip34.Owners(k.held))[s.Ref.Owner]; !is {
			return graspsync.Verdict{Decision: graspsync.Depend, DependsOn: []graspsync.Dependency{
				graspsync.OnMaintainer(s.Ref.Identifier, s.Ref.Owner)}}, nil
		}
	default:
		return k.Policy.Judge(ctx, ev, src, view)
	}
	k.all[ev.ID.String()] = true
	return graspsync.Verdict{Decision: graspsync.Hold}, nil
}

func (k *keeper) HeldAnnouncements(context.Context) iter.Seq2[*nip34.Announcement, error] {
	return func(yield func(*nip34.Announcement, error) bool) {
		for _, a := range k.held {
			if !yield(a, nil) {
				return
			}
		}
	}
}

func newKeeper(t *testing.T) *keeper {
	identity, err := nip34.ParseIdentity(us)
	require.NoError(t, err)
	return &keeper{Policy: relaysync.NewGRASPPolicy(identity), all: make(map[string]bool)}
}

// Announcements held before a restart are followed after it, without being received again.
func TestTrapP7_HeldAnnouncementIsFollowedAfterARestart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		b := net.Add("wss://b.example", relaytest.Behavior{})
		bob := relaytest.NewCheapKey("bob")
		ann, err := nip34.ParseAnnouncement(eventtest.Of(bob.Hosted(at(time.Hour), "held", us, "b.example")))
		require.NoError(t, err)
		policy := newKeeper(t)
		policy.held = append(policy.held, ann)
		state := bob.State(at(time.Minute), "held", nil, "")
		b.Publish(state)
		r, _ := hosted(t, net, relaysync.Config{Policy: policy, Holder: policy})
		defer r.stop()
		after(time.Minute)
		require.Equal(t, 1, b.Open())
		require.True(t, policy.all[state.ID])
	})
}

// A repository whose announcement was just released counted as held until the batch window closed,
// although the announcement was stored.
func TestJustReleasedIsOurs(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		a := net.Add("wss://a.example", relaytest.Behavior{})
		bob := relaytest.NewCheapKey("bob")
		ann := bob.Hosted(at(time.Hour), "held", us, "a.example")
		a.Publish(ann)
		policy := newKeeper(t)
		r, _ := hosted(t, net, relaysync.Config{Policy: policy, Holder: policy}, "a.example")
		defer r.stop()
		after(time.Minute)
		x, err := r.manager.RepoFollowState(t.Context(), bob.Ref("held"))
		require.NoError(t, err)
		require.Equal(t, relaysync.RepoHeld, x.Is)
		r.save(ann)
		x, err = r.manager.RepoFollowState(t.Context(), bob.Ref("held"))
		require.NoError(t, err)
		require.Equal(t, relaysync.RepoFollowed, x.Is)
		require.Equal(t, "state only", x.Status.Level)
		after(time.Minute)
		x, err = r.manager.RepoFollowState(t.Context(), bob.Ref("held"))
		require.NoError(t, err)
		require.Equal(t, "full", x.Status.Level)
	})
}
