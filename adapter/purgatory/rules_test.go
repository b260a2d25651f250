package purgatoryadapter_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	relaysync "github.com/graspsync/graspsync/sync"
)

type brokenView struct{ relaysync.View }

func (brokenView) Event(context.Context, graspsync.EventID) (graspsync.Event, error) {
	return graspsync.Event{}, errDisk
}

// A failing store must not cause an event to be served that must be held.
func TestStoreDownIsNoVerdict(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.stop()
		v, err := r.policy.Judge(t.Context(), eventtest.Of(owner.Hosted(1, "x", us)), graspsync.Source{}, brokenView{})
		require.ErrorIs(t, err, errDisk)
		require.Zero(t, v)
		require.Empty(t, r.waits.Held(nostr.Filter{}))
	})
}

// A pull request without a commit was fetched and judged again for each event of its author.
func TestMalformedIsFinal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.stop()
		after(time.Minute)
		_, err := r.store.Save(t.Context(), []graspsync.Incoming{{Event: eventtest.Of(owner.Hosted(at(time.Hour), "repo", us))}})
		require.NoError(t, err)
		r.manager.NotifyStored(eventtest.Of(owner.Hosted(at(time.Hour), "repo", us)))
		v, err := r.manager.Judge(t.Context(), eventtest.Of(stranger.PullRequest(at(0), owner.Ref("repo"), "x", "bad")))
		require.NoError(t, err)
		require.Equal(t, graspsync.Reject, v.Decision)
		require.Empty(t, v.DependsOn)
	})
}

// An announcement by which an owner withdraws a held repository was refused, and the repository was
// served later.
func TestLeavingWhileWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.stop()
		after(time.Minute)
		judge := func(ev *nostr.Event) graspsync.Decision {
			v, err := r.manager.Judge(t.Context(), eventtest.Of(ev))
			require.NoError(t, err)
			return v.Decision
		}
		first := owner.Hosted(at(time.Hour), "repo", us)
		require.Equal(t, graspsync.Hold, judge(first))
		leaves := owner.Hosted(at(time.Minute), "repo", "elsewhere.example")
		require.Equal(t, graspsync.Hold, judge(leaves))
		require.Equal(t, graspsync.Reject, judge(stranger.Hosted(at(time.Minute), "repo", "elsewhere.example")))
		require.Empty(t, r.waits.AllAnnouncements())
		require.Equal(t, graspsync.Reject, judge(first), "it takes the place of what it replaces")
		after(time.Minute)
		_, unlock, err := r.git.Lock(t.Context(), owner.Ref("repo"))
		if err == nil {
			unlock()
		}
		require.ErrorIs(t, err, purgatory.ErrNoRepository)
		main, err := nip34.ParseRefName("refs/heads/main")
		require.NoError(t, err)
		r.waits.Pushed(t.Context(), owner.Ref("repo"), []nip34.RefName{main})
		after(time.Hour)
		require.False(t, r.has(first))
		require.False(t, r.has(leaves))
		require.Empty(t, r.waits.Held(nostr.Filter{}), "nobody waits for what has left")
	})
}
