package gitserve_test

import (
	"net/netip"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
	"github.com/graspsync/graspsync/purgatory/gitserve"
	"github.com/graspsync/graspsync/purgatory/internal/gitops"
)

// Package gitfetch can fetch from the handler: tips and reachable commits, in both formats. Missing
// objects are reported.
func TestGitfetchFetchesFromUs(t *testing.T) {
	dialer, err := egress.NewDialer(egress.Config{
		AllowPlaintext: true, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
	})
	require.NoError(t, err)
	f, err := gitfetch.New(t.Context(), gitfetch.Config{Dialer: dialer, MinFreeDisk: 1})
	require.NoError(t, err)
	defer f.Close()
	r := newRig(t, gitserve.Config{})
	for _, format := range []nip34.ObjectFormat{nip34.SHA1, nip34.SHA256} {
		work := t.TempDir()
		git(t, work, "init", "-q", "-b", "main", "--object-format="+format.String())
		var ids []nip34.ObjectID
		for _, text := range []string{"first", "second"} {
			git(t, work, "commit", "-q", "--allow-empty", "-m", text)
			id, err := nip34.ParseObjectID(git(t, work, "rev-parse", "HEAD"))
			require.NoError(t, err)
			ids = append(ids, id)
		}
		require.NoError(t, r.repos.Create(t.Context(), owner.Ref("x"), format))
		require.NoError(t, r.repos.Create(t.Context(), owner.Ref("y"), format))
		at, err := graspsync.ParseCloneURL(r.repo())
		require.NoError(t, err)
		git(t, work, "push", "-q", r.dir(), "main")
		dir, unlock, err := r.repos.Lock(t.Context(), owner.Ref("y"))
		require.NoError(t, err)
		lost, err := nip34.ParseObjectID((one + one)[:len(ids[0].String())])
		require.NoError(t, err)
		request := func(q gitops.Quarantine, want ...nip34.ObjectID) purgatory.FetchRequest {
			return purgatory.FetchRequest{From: at, Want: want, Dir: dir, Quarantine: q.Folder(), Received: new(atomic.Int64)}
		}
		for i := range ids { // a commit below the tip, then the tip
			q, err := f.Quarantine(t.Context(), dir)
			require.NoError(t, err)
			require.NoError(t, f.Fetch(t.Context(), request(q, lost, ids[i])))
			missing, err := q.Missing(t.Context(), []nip34.ObjectID{lost, ids[i]})
			require.NoError(t, err)
			require.Equal(t, []nip34.ObjectID{lost}, missing)
			require.NoError(t, q.Promote(t.Context()))
		}
		q, err := f.Quarantine(t.Context(), dir)
		require.NoError(t, err)
		require.ErrorIs(t, f.Fetch(t.Context(), request(q, lost)), purgatory.ErrNotServed)
		require.NoError(t, q.Discard())
		unlock()
		git(t, r.dir(), "update-ref", "-d", "refs/heads/main") // to be created again
	}
}
