package grasp_test

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/fiatjaf/eventstore/slicestore"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// newRig returns a server that runs until the test ends, and a folder with one commit.
func newRig(t *testing.T) (r *rig, work, commit string) {
	t.Helper()
	r = unstarted(t)
	r.start()
	t.Cleanup(r.stop)
	work, commit = r.work()
	return r, work, commit
}

func unstarted(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, addr: "127.0.0.1:0", dir: filepath.Join(t.TempDir(), "git"), kept: state.NewMemory(), db: &slicestore.SliceStore{}}
	require.NoError(t, r.db.Init())
	return r
}

// work returns a folder with one commit.
func (r *rig) work() (work, commit string) {
	work = r.t.TempDir()
	r.git(work, "init", "-q", "-b", "main")
	r.git(work, "commit", "-q", "--allow-empty", "-m", "first")
	return work, r.git(work, "rev-parse", "HEAD")
}

// publish sends events like a client and returns the refusals. It uses a websocket directly,
// because closing go-nostr's client has a data race.
func (r *rig) publish(events ...*nostr.Event) (refused []error) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, "ws://"+r.addr+r.base, nil)
	require.NoError(r.t, err)
	defer func() { _ = conn.CloseNow() }()
	for _, ev := range events {
		message, err := json.Marshal([]any{"EVENT", ev})
		require.NoError(r.t, err)
		require.NoError(r.t, conn.Write(ctx, websocket.MessageText, message))
		for answered := false; !answered; {
			_, data, err := conn.Read(ctx)
			require.NoError(r.t, err)
			parsed, err := nostr.NewMessageParser().ParseMessage(string(data))
			require.NoError(r.t, err)
			ok, is := parsed.(*nostr.OKEnvelope)
			answered = is && ok.EventID == ev.ID
			if answered && !ok.OK {
				refused = append(refused, fmt.Errorf("msg: %s", ok.Reason))
			}
		}
	}
	return refused
}

// waits reports whether purgatory holds an event.
func (r *rig) waits(ev *nostr.Event) bool {
	return len(r.server.Purgatory().Held(nostr.Filter{IDs: []string{ev.ID}})) > 0
}

func (r *rig) eventually(what string, is func() bool) {
	r.t.Helper()
	require.Eventually(r.t, is, time.Minute, 10*time.Millisecond, what)
}

// serve announces a repository and pushes to it.
func (r *rig) serve(work, commit string, owner *relaytest.Key) (announcement, state *nostr.Event) {
	r.t.Helper()
	announcement = owner.Hosted(nostr.Now()-100, "repo", "ws://"+r.addr)
	state = owner.State(nostr.Now()-90, "repo", map[string]string{"refs/heads/main": commit}, "main")
	require.Empty(r.t, r.publish(announcement, state))
	r.git(work, "push", "-q", owner.CloneURL("ws://"+r.addr, "repo"), "main")
	r.eventually("served", func() bool { return len(r.served()) == 2 })
	return announcement, state
}

// Deletions of held events were refused, and the events were served when their git data arrived.
func TestDeletionOfWhatWaits(t *testing.T) {
	everything := nostr.Tag{"relay", "ALL_RELAYS"}
	for _, c := range []struct {
		name    string
		request func(k *relaytest.Key, waits *nostr.Event) *nostr.Event
	}{
		{"by id", func(k *relaytest.Key, waits *nostr.Event) *nostr.Event {
			return k.Event(nostr.Now(), nostr.KindDeletion, "", nostr.Tag{"e", waits.ID})
		}},
		{"by address", func(k *relaytest.Key, waits *nostr.Event) *nostr.Event {
			return k.Event(nostr.Now(), nostr.KindDeletion, "", nostr.Tag{"a", fmt.Sprintf("%d:%s:repo", waits.Kind, waits.PubKey)})
		}},
		{"request to vanish", func(k *relaytest.Key, _ *nostr.Event) *nostr.Event {
			return k.Event(nostr.Now(), 62, "", everything)
		}},
	} {
		t.Run("announcement, "+c.name, func(t *testing.T) {
			r, work, commit := newRig(t)
			owner := relaytest.NewKey("owner")
			ann := owner.Hosted(nostr.Now()-100, "repo", "ws://"+r.addr)
			st := owner.State(nostr.Now()-90, "repo", map[string]string{"refs/heads/main": commit}, "main")
			require.Empty(t, r.publish(ann, st))
			require.True(t, r.waits(ann))
			request := c.request(owner, ann)
			require.Empty(t, r.publish(request), "it deletes what is here")
			r.eventually("gone", func() bool { return !r.waits(ann) })
			require.Equal(t, []string{request.ID}, r.served())
			require.NotEmpty(t, r.publish(ann), "it was deleted")
			require.False(t, r.waits(ann))
			_, err := r.try(work, "push", "-q", owner.CloneURL("ws://"+r.addr, "repo"), "main")
			require.Error(t, err, "whose repository would it be?")
			require.Equal(t, []string{request.ID}, r.served())
		})
		t.Run("state of a served repository, "+c.name, func(t *testing.T) {
			r, work, commit := newRig(t)
			owner := relaytest.NewKey("owner")
			if c.name == "request to vanish" {
				return // the deletion would include the repository
			}
			r.serve(work, commit, owner)
			r.git(work, "commit", "-q", "--allow-empty", "-m", "second")
			second := r.git(work, "rev-parse", "HEAD")
			st := owner.State(nostr.Now()-50, "repo", map[string]string{"refs/heads/main": second}, "main")
			require.Empty(t, r.publish(st))
			require.True(t, r.waits(st))
			request := c.request(owner, st)
			require.Empty(t, r.publish(request))
			r.eventually("gone", func() bool { return !r.waits(st) })
			_, err := r.try(work, "push", "-q", owner.CloneURL("ws://"+r.addr, "repo"), "main")
			require.Error(t, err, "nothing says that main is that")
			require.NotContains(t, r.served(), st.ID)
		})
		t.Run("pull request, "+c.name, func(t *testing.T) {
			if c.name == "by address" {
				return // no repository
			}
			r, work, commit := newRig(t)
			owner, stranger := relaytest.NewKey("owner"), relaytest.NewKey("stranger")
			r.serve(work, commit, owner)
			r.git(work, "commit", "-q", "--allow-empty", "-m", "theirs")
			pr := stranger.PullRequest(nostr.Now()-50, owner.Ref("repo"), "x", r.git(work, "rev-parse", "HEAD"))
			require.Empty(t, r.publish(pr))
			require.True(t, r.waits(pr))
			request := c.request(stranger, pr)
			require.Empty(t, r.publish(request), "all that they have here waits")
			r.eventually("gone", func() bool { return !r.waits(pr) })
			_, _ = r.try(work, "push", "-q", owner.CloneURL("ws://"+r.addr, "repo"), "HEAD:refs/nostr/"+pr.ID)
			require.NotEmpty(t, r.publish(pr))
			require.NotContains(t, r.served(), pr.ID)
		})
	}
}

// Anybody could use the server to broadcast events of ephemeral kinds.
func TestEphemeralEventsAreRefused(t *testing.T) {
	r, _, _ := newRig(t)
	require.ErrorContains(t, r.publish(relaytest.NewKey("stranger").Event(nostr.Now(), 20_001, ""))[0], "blocked: ephemeral events are not kept")
}
