package gitserve

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
)

// Who comes when it is closed is told so, has nothing begun, and keeps nobody waiting.
func TestClosedHandlerBeginsNothing(t *testing.T) {
	r := newRig(t, Config{})
	r.git.Close()
	for method, path := range map[string]string{
		http.MethodPost: "/x.git/" + receivePack, http.MethodGet: "/x.git/info/refs?service=" + uploadPack,
	} {
		w := httptest.NewRecorder()
		r.git.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, "/"+owner.Npub()+path, strings.NewReader("0000")))
		require.Equal(t, http.StatusServiceUnavailable, w.Code)
		require.Contains(t, w.Body.String(), "closing")
	}
	ctx, end, ok := r.git.tasks.begin(t.Context())
	require.False(t, ok)
	require.Nil(t, ctx)
	require.Nil(t, end)
	r.git.Close()
}

// What is staged is left as it is when the folder was let go of, though its time is over.
func TestClosedStagingRemovesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "git")
	r, err := Open(dir, RepositoriesConfig{})
	require.NoError(t, err)
	folder := filepath.Join(dir, area, "upload")
	require.NoError(t, os.Mkdir(folder, 0o700))
	ref := owner.Ref("x")
	_, err = r.staging.charge(&staged{
		name: "upload", ref: ref, since: time.Now().Add(-1000 * time.Hour), ids: []graspsync.EventID{{1}},
	}, 1)
	require.NoError(t, err)
	require.NoError(t, r.Close())
	r.staging.sweep()
	require.DirExists(t, folder)
	r.staging.schedule()
	require.False(t, r.staging.timer.Stop(), "no timer goes on")
}

// Whoever reserved room before the folder was served had any: what was fetched by then went
// beyond all that the operator had set.
func TestRoomIsBoundedBeforeTheFolderIsServed(t *testing.T) {
	const mib = 1 << 20
	for name, cfg := range map[string]RepositoriesConfig{"owner": {MaxOwnerBytes: mib}, "all": {MaxBytes: mib}} {
		r := repositoriesWith(t, cfg)
		_, err := r.Reserve(t.Context(), owner.Ref("x"), false, 2*mib, nothing)
		require.ErrorIs(t, err, purgatory.ErrFull, name)
		done, err := r.Reserve(t.Context(), owner.Ref("x"), false, mib/2, nothing)
		require.NoError(t, err, name)
		done()
	}
}

// What pull requests have left in the repositories of an owner is said by whoever reserves room,
// and counts for these, not for the owner.
func TestWhatHasGivenWayCountsForPullRequests(t *testing.T) {
	const mib = 1 << 20
	r := repositoriesWith(t, RepositoriesConfig{MaxOwnerBytes: 4 * mib})
	ref := owner.Ref("x")
	require.NoError(t, r.Create(t.Context(), ref, nip34.SHA1))
	pack := filepath.Join(r.dir, filepath.FromSlash(hashed(ref)), "objects", "pack", "pack-1.pack")
	require.NoError(t, os.WriteFile(pack, make([]byte, 5*mib), 0o600))
	_, err := r.Reserve(t.Context(), ref, false, mib, nothing)
	require.ErrorIs(t, err, purgatory.ErrFull)
	forget := func() {
		r.quota.mu.Lock()
		defer r.quota.mu.Unlock()
		r.quota.usages[ref.Owner.String()].weighed = time.Time{} // a minute is over
	}
	forget()
	var asked []graspsync.PubKey
	displaced := func(who graspsync.PubKey) int64 {
		asked = append(asked, who)
		return 3 * mib
	}
	done, err := r.Reserve(t.Context(), ref, false, mib, displaced)
	require.NoError(t, err)
	done()
	require.Equal(t, []graspsync.PubKey{ref.Owner}, asked)
	_, err = r.Reserve(t.Context(), ref, true, mib, displaced)
	require.ErrorIs(t, err, purgatory.ErrFull)
	require.ErrorIs(t, err, errPullsFull)
}

// Closing ends the measuring of all that is here, and waits for it.
func TestCloseEndsMeasuring(t *testing.T) {
	r, err := Open(filepath.Join(t.TempDir(), "git"), RepositoriesConfig{MaxBytes: 1 << 20})
	require.NoError(t, err)
	ended := make(chan struct{})
	r.tasks.beside(func(ctx context.Context) {
		<-ctx.Done()
		close(ended)
	})
	require.NoError(t, r.Close())
	select {
	case <-ended:
	default:
		require.Fail(t, "somebody measures a folder that is somebody else's")
	}
	r.tasks.beside(func(context.Context) { t.Error("nobody would wait for it") })
}

// Where nobody says how much there may be, there is room for all.
func TestRoomWithoutALimit(t *testing.T) {
	r := newRepositories(t)
	done, err := r.Reserve(t.Context(), owner.Ref("x"), true, 1<<60, nothing)
	require.NoError(t, err)
	done()
}

// Of a path, only what is a repository's one name is one.
func TestParsePath(t *testing.T) {
	npub := owner.Npub()
	for path, rest := range map[string]string{
		"/" + npub + "/x.git": "", "/" + npub + "/x.git/": "", "/" + npub + "/x.git/info/refs": "info/refs",
	} {
		u, err := url.Parse("http://a.example" + path)
		require.NoError(t, err)
		ref, got, ok := parsePath(u)
		require.True(t, ok, path)
		require.Equal(t, owner.Ref("x"), ref)
		require.Equal(t, rest, got)
	}
	for _, path := range []string{
		"", "/", "/" + npub, "/" + npub + "/", "/" + npub + "/x", "/" + npub + "/x.gi", "/" + npub + "/.git", "/" + npub + "/%00.git",
		"/" + npub[:len(npub)-1] + "/x.git", "/" + npub + "q/x.git", "/" + strings.ToUpper(npub) + "/x.git", "/npub1/x.git",
		"/" + owner.Hex() + "/x.git", "/x.git/" + npub, "/npub1" + owner.Hex() + "/x.git",
	} {
		u, err := url.Parse("http://a.example" + path)
		require.NoError(t, err)
		ref, rest, ok := parsePath(u)
		require.False(t, ok, path)
		require.Zero(t, ref)
		require.Empty(t, rest)
	}
}
