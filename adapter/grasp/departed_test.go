package grasp_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/sync/relaytest"
)

// out checks that a repository is out of service.
func (r *rig) out(work string, owner *relaytest.Key) {
	r.t.Helper()
	url := owner.CloneURL("ws://"+r.addr, "repo")
	r.eventually("it is not served", func() bool {
		_, err := r.try(work, "ls-remote", url)
		return err != nil
	})
	r.git(work, "commit", "-q", "--allow-empty", "-m", "later")
	_, err := r.try(work, "push", "-q", url, "HEAD:refs/nostr/"+fmt.Sprintf("%064x", time.Now().UnixNano()))
	require.Error(r.t, err, "it takes nothing")
}

// A repository was served and accepted pushes forever after its announcement was gone.
func TestRepositoryLeavesWithItsAnnouncement(t *testing.T) {
	for name, leave := range map[string]func(r *rig, owner *relaytest.Key, ann *nostr.Event){
		"deleted by address": func(r *rig, owner *relaytest.Key, _ *nostr.Event) {
			require.Empty(r.t, r.publish(owner.Event(nostr.Now(), nostr.KindDeletion, "", nostr.Tag{"a", owner.Ref("repo").String()})))
		},
		"deleted by id": func(r *rig, owner *relaytest.Key, ann *nostr.Event) {
			require.Empty(r.t, r.publish(owner.Event(nostr.Now(), nostr.KindDeletion, "", nostr.Tag{"e", ann.ID})))
		},
		"vanished": func(r *rig, owner *relaytest.Key, _ *nostr.Event) {
			require.Empty(r.t, r.publish(owner.Event(nostr.Now(), 62, "", nostr.Tag{"relay", "ALL_RELAYS"})))
		},
		"left": func(r *rig, owner *relaytest.Key, _ *nostr.Event) {
			require.Empty(r.t, r.publish(owner.Hosted(nostr.Now(), "repo", "wss://elsewhere.example")))
		},
		"moderated": func(r *rig, _ *relaytest.Key, ann *nostr.Event) {
			for _, hook := range r.relay.DeleteEvent {
				require.NoError(r.t, hook(r.t.Context(), ann))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, work, commit := newRig(t)
			owner, other := relaytest.NewKey("owner"), relaytest.NewKey("other")
			ann, _ := r.serve(work, commit, owner)
			stays := other.Hosted(nostr.Now()-100, "repo", "ws://"+r.addr)
			st := other.State(nostr.Now()-90, "repo", map[string]string{"refs/heads/main": commit}, "main")
			require.Empty(t, r.publish(stays, st))
			r.git(work, "push", "-q", other.CloneURL("ws://"+r.addr, "repo"), "main")
			r.eventually("another's is served", func() bool { return r.serves(st) })
			leave(r, owner, ann)
			r.out(work, owner)
			require.Equal(t, commit+"\trefs/heads/main", r.git(work, "ls-remote", other.CloneURL("ws://"+r.addr, "repo"), "refs/heads/main"))
		})
	}
}
