package grasp_test

import (
	"slices"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/sync/relaytest"
)

// After the newest state was deleted by id, anyone could publish the previous state again, and main
// moved back to a version that the owner had replaced, for example because of a security hole.
func TestCaseH6_OldStateAfterADeletionById(t *testing.T) {
	r := unstarted(t)
	r.start()
	t.Cleanup(func() { r.stop() }) // stops the last of several servers
	work, commit := r.work()
	owner := relaytest.NewKey("owner")
	_, old := r.serve(work, commit, owner)
	url := owner.CloneURL("ws://"+r.addr, "repo")
	main := func(at string) {
		t.Helper()
		require.Equal(t, at+"\trefs/heads/main", r.git(work, "ls-remote", url, "refs/heads/main"))
	}
	next := func(at nostr.Timestamp) (*nostr.Event, string) {
		t.Helper()
		r.git(work, "commit", "-q", "--allow-empty", "-m", "next")
		commit := r.git(work, "rev-parse", "HEAD")
		st := owner.State(at, "repo", map[string]string{"refs/heads/main": commit}, "main")
		require.Empty(t, r.publish(st))
		r.git(work, "push", "-q", url, "main")
		r.eventually("served", func() bool { return slices.Contains(r.served(), st.ID) })
		return st, commit
	}
	fix, fixed := next(nostr.Now() - 50)
	require.Empty(t, r.publish(owner.Event(nostr.Now()-40, nostr.KindDeletion, "", nostr.Tag{"e", fix.ID})))
	r.eventually("deleted", func() bool { return !slices.Contains(r.served(), fix.ID) })
	for range 2 {
		require.Len(t, r.publish(old, fix), 2, "both are deleted")
		require.False(t, r.waits(old))
		main(fixed)
		r.stop()
		r.start()
		work := t.TempDir()
		r.git(work, "clone", "-q", url, ".") // after the server has started
		main(fixed)
	}
	require.NotContains(t, r.served(), old.ID)
	_, latest := next(nostr.Now() - 30)
	main(latest)
}

// A deletion of a held version also deletes older versions.
func TestCaseH6_OldStateAfterADeletionOfAStateThatWaits(t *testing.T) {
	r, work, commit := newRig(t)
	owner := relaytest.NewKey("owner")
	_, old := r.serve(work, commit, owner)
	r.git(work, "commit", "-q", "--allow-empty", "-m", "second")
	fix := owner.State(nostr.Now()-50, "repo", map[string]string{"refs/heads/main": r.git(work, "rev-parse", "HEAD")}, "main")
	require.Empty(t, r.publish(fix))
	require.True(t, r.waits(fix))
	require.Empty(t, r.publish(owner.Event(nostr.Now()-40, nostr.KindDeletion, "", nostr.Tag{"e", fix.ID})))
	r.eventually("deleted", func() bool { return !r.waits(fix) && !slices.Contains(r.served(), old.ID) })
	require.Len(t, r.publish(old, fix), 2)
	require.False(t, r.waits(old))
}

// A removed maintainer returned by a replay of the announcement before the deleted one.
func TestCaseH6_OldAnnouncementAfterADeletionById(t *testing.T) {
	r, work, commit := newRig(t)
	lead, removed := relaytest.NewKey("lead"), relaytest.NewKey("removed")
	clones := []string{lead.CloneURL("ws://"+r.addr, "repo")}
	relays := []string{"ws://" + r.addr}
	both := lead.Announcement(nostr.Now()-100, "repo", relays, clones, lead, removed)
	theirs := removed.Announcement(nostr.Now()-99, "repo", relays, []string{removed.CloneURL("ws://"+r.addr, "repo")}, removed, lead)
	st := lead.State(nostr.Now()-90, "repo", map[string]string{"refs/heads/main": commit}, "main")
	require.Empty(t, r.publish(both, theirs, st))
	r.git(work, "push", "-q", clones[0], "main")
	r.eventually("served", func() bool { return slices.Contains(r.served(), both.ID) && slices.Contains(r.served(), st.ID) })

	alone := lead.Announcement(nostr.Now()-80, "repo", relays, clones, lead)
	require.Empty(t, r.publish(alone))
	require.Empty(t, r.publish(lead.Event(nostr.Now()-70, nostr.KindDeletion, "", nostr.Tag{"e", alone.ID})))
	r.eventually("deleted", func() bool { return !slices.Contains(r.served(), alone.ID) })
	require.Len(t, r.publish(both), 1, "it was replaced by one that is deleted")
	require.False(t, r.waits(both))
	require.NotContains(t, r.served(), both.ID)

	r.git(work, "commit", "-q", "--allow-empty", "-m", "theirs")
	moved := removed.State(nostr.Now()-60, "repo", map[string]string{"refs/heads/main": r.git(work, "rev-parse", "HEAD")}, "main")
	again := lead.Announcement(nostr.Now()-50, "repo", relays, clones, lead)
	_ = r.publish(moved)
	require.Empty(t, r.publish(again), "a newer one is taken")
	_, _ = r.try(work, "push", "-q", clones[0], "main")
	require.Equal(t, commit+"\trefs/heads/main", r.git(work, "ls-remote", clones[0], "refs/heads/main"))
}
