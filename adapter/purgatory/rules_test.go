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
