package purgatoryadapter_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	purgatoryadapter "github.com/graspsync/graspsync/adapter/purgatory"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// A push for a served pull request extended the hold of an announcement in the same repository,
// although anybody can push one.
func TestServedPullRequestIsNoSignOfLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.stop()
		after(time.Minute)
		v, err := r.manager.Judge(t.Context(), eventtest.Of(owner.Hosted(at(time.Hour), "repo", us)))
		require.NoError(t, err)
		require.Equal(t, graspsync.Hold, v.Decision)
		pr := stranger.PullRequest(at(0), owner.Ref("repo"), "x", strings.Repeat("2", 40))
		_, err = r.store.Save(t.Context(), []graspsync.Incoming{{Event: eventtest.Of(pr)}})
		require.NoError(t, err)
		deadline := func() time.Time {
			waiting := r.waits.Status().Waiting
			require.Len(t, waiting, 1)
			return waiting[0].Deadline
		}
		before := deadline()
		after(10 * time.Minute)
		id, err := graspsync.ParseEventID(pr.ID)
		require.NoError(t, err)
		authority := purgatoryadapter.Authority{Store: r.store, Purgatory: r.waits}
		require.NoError(t, authority.AfterPush(t.Context(), owner.Ref("repo"), []nip34.RefName{nip34.EventRef(id)}))
		require.Equal(t, before, deadline())
	})
}

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

// If an author had more repositories than can be held, on a git server that is down, the rest was
// lost until another event of the author was stored.
func TestMoreOfAnAuthorThanMayWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		defer r.stop()
		a := r.net.Add("wss://a.example", relaytest.Behavior{})
		var all []*nostr.Event
		for i := range 130 {
			all = append(all, owner.Hosted(at(time.Hour), fmt.Sprint("repo", i), us))
		}
		a.Publish(all...)
		waited := map[string]bool{}
		look := func() int {
			for _, ann := range r.waits.AllAnnouncements() {
				waited[ann.Event.ID] = true
			}
			return len(waited)
		}
		after(5 * time.Minute)
		require.Equal(t, 100, look())
		after(35 * time.Minute) // those have expired
		require.Equal(t, 130, look())
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

// After a restart it is still known whether a client submitted a held event.
func TestReleasedAfterARestartIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a := r.net.Add("wss://a.example", relaytest.Behavior{})
		a.Publish(owner.Hosted(at(time.Hour), "repo", us, "a.example"))
		after(time.Minute)
		v, err := r.manager.Judge(t.Context(), eventtest.Of(helper.Hosted(at(time.Hour), "mine", us)))
		require.NoError(t, err)
		require.Equal(t, graspsync.Hold, v.Decision)
		r.stop()
		r.start()
		defer r.stop()
		after(time.Minute)
		id, err := nip34.ParseObjectID(commit)
		require.NoError(t, err)
		main, err := nip34.ParseRefName("refs/heads/main")
		require.NoError(t, err)
		for _, repo := range []graspsync.RepoRef{owner.Ref("repo"), helper.Ref("mine")} {
			st := helper
			if repo.Owner == owner.PubKey() {
				st = owner
			}
			v, err := r.manager.Judge(t.Context(), eventtest.Of(st.State(at(0), repo.Identifier, map[string]string{"refs/heads/main": commit}, "main")))
			require.NoError(t, err)
			require.Equal(t, graspsync.Hold, v.Decision, purgatory.Message)
			r.git.Push(repo, map[nip34.RefName]nip34.ObjectID{main: id}, id)
			r.waits.Pushed(t.Context(), repo, []nip34.RefName{main})
		}
		after(2 * time.Minute)
		s := r.manager.Status().Events
		require.EqualValues(t, 1, s.Stored)
		require.EqualValues(t, 1, s.Sources["catchup"])
		require.EqualValues(t, 3, s.Sources["direct"])
	})
}
