package gitserve

import (
	"context"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/barerepo"
)

// endingDisk ends a context when so much was read of it.
type endingDisk struct {
	folder
	left int
	end  context.CancelFunc
	read int // after that
}

func (d *endingDisk) ReadFile(name string) ([]byte, error) {
	if d.left--; d.left < 0 {
		d.read++
	} else if d.left == 0 {
		d.end()
	}
	return d.folder.ReadFile(name)
}

// endingWriter ends a context when something is written.
type endingWriter struct {
	*httptest.ResponseRecorder
	end context.CancelFunc
}

func (w endingWriter) Write(p []byte) (int, error) {
	w.end()
	return w.ResponseRecorder.Write(p)
}

// All refs were read and told though the client had gone, or its time was over.
func TestRefsAreToldUntilTheEnd(t *testing.T) {
	r := newRig(t, Config{})
	for _, name := range []string{"a", "b", "c"} {
		require.NoError(t, os.WriteFile(filepath.Join(r.dir(), "refs", "heads", name), []byte(strings.Repeat("1", 40)+"\n"), 0o600))
	}
	var packed strings.Builder
	for range 5000 {
		packed.WriteString(strings.Repeat("1", 40) + " refs/heads/packed-" + strings.Repeat("x", packed.Len()%97) + "\n")
	}
	require.NoError(t, os.WriteFile(filepath.Join(r.dir(), "packed-refs"), []byte(packed.String()), 0o600))
	push := call{query: serviceOf(receivePack)}

	ctx, cancel := context.WithCancel(t.Context())
	disk := &endingDisk{folder: r.repos.root, left: 5, end: cancel}
	r.repos.root = disk
	w := httptest.NewRecorder()
	require.False(t, r.git.advertise(ctx, w, owner.Ref("x"), push), "git will say that it has ended")
	require.Zero(t, disk.read)
	require.Empty(t, w.Body.Bytes())
	r.repos.root = disk.folder

	ctx, cancel = context.WithCancel(t.Context())
	w = httptest.NewRecorder()
	require.True(t, r.git.advertise(ctx, endingWriter{w, cancel}, owner.Ref("x"), push))
	told := w.Body.Len()
	require.NotZero(t, told)
	w = httptest.NewRecorder()
	require.True(t, r.git.advertise(t.Context(), w, owner.Ref("x"), push))
	require.Greater(t, w.Body.Len(), told)
	require.Equal(t, http.StatusOK, w.Code)
	_, _, err := r.repos.refs(ctx, hashed(owner.Ref("x")))
	require.ErrorIs(t, err, context.Canceled)
	require.NotErrorIs(t, err, barerepo.ErrAskGit)
	_, format, err := r.repos.refs(t.Context(), hashed(owner.Ref("x")))
	require.NoError(t, err)
	require.Equal(t, nip34.SHA1, format)
}
