package gitfetch_test

import (
	"net/http"
	"net/http/httptest"
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
)

// An empty repository was reported as a protocol error.
func TestCaseC28_EmptyRepository(t *testing.T) {
	for name, advertisement := range map[string]string{
		"version 0": "001e# service=git-upload-pack\n00000000", "version 1": "001e# service=git-upload-pack\n0000000eversion 1\n0000",
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/x-git-upload-pack-advertisement")
			_, _ = w.Write([]byte(advertisement))
		}))
		t.Cleanup(server.Close)
		dialer, err := egress.NewDialer(egress.Config{AllowPlaintext: true, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
		require.NoError(t, err)
		fetcher, err := gitfetch.New(t.Context(), gitfetch.Config{Dialer: dialer})
		require.NoError(t, err)
		t.Cleanup(fetcher.Close)
		repos, err := gitserve.Open(t.TempDir(), gitserve.RepositoriesConfig{})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, repos.Close()) })
		ref := graspsync.RepoRef{Owner: graspsync.PubKey{1}, Identifier: "r"}
		require.NoError(t, repos.Create(t.Context(), ref, nip34.SHA1))
		dir, unlock, err := repos.Lock(t.Context(), ref)
		require.NoError(t, err)
		unlock()
		quarantine, err := fetcher.Quarantine(t.Context(), dir)
		require.NoError(t, err)
		from, err := graspsync.ParseCloneURL(server.URL + "/r.git")
		require.NoError(t, err)
		want, err := nip34.ParseObjectID("00000000000000000000000000000000000000aa")
		require.NoError(t, err)
		err = fetcher.Fetch(t.Context(), purgatory.FetchRequest{
			From: from, Want: []nip34.ObjectID{want}, Dir: dir, Quarantine: quarantine.Folder(), Received: new(atomic.Int64),
		})
		require.ErrorIs(t, err, purgatory.ErrNotServed, name)
		require.ErrorIs(t, err, gitfetch.ErrEmpty)
		require.ErrorContains(t, err, "empty")
		require.NotContains(t, err.Error(), "smart HTTP")
		require.NoError(t, quarantine.Discard())
	}
}
