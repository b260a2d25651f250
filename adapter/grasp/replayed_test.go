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
