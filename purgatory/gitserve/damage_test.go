package gitserve_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitserve"
)

// A folder with an operator's description is no repository of the list. A loop over the list may
// stop anywhere.
func TestDescriptionsThatAreNone(t *testing.T) {
	r := newRepositories(t)
	x, y := owner.Ref("x"), owner.Ref("y")
	for _, ref := range []graspsync.RepoRef{x, y} {
		require.NoError(t, r.Create(t.Context(), ref, nip34.SHA1))
	}
	list := func(most int) (out []graspsync.RepoRef) {
		for ref, err := range r.Owned(t.Context(), owner.PubKey()) {
			require.NoError(t, err)
			if out = append(out, ref); len(out) == most {
				break
			}
		}
		return out
	}
	require.Len(t, list(1), 1)
	require.ElementsMatch(t, []graspsync.RepoRef{x, y}, list(-1))
	require.NoError(t, os.WriteFile(filepath.Join(r.Dir(), owner.Hex(), "file"), nil, 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(r.Dir(), owner.Hex(), "empty"), 0o700))
	at := filepath.Join(r.Dir(), filepath.FromSlash(hashed(x)), "description")
	whole, err := os.ReadFile(at)
	require.NoError(t, err)
	for _, text := range []string{"", "my own", `"my own"`, strings.Replace(string(whole), ":x", ":z", 1)} {
		require.NoError(t, os.WriteFile(at, []byte(text), 0o600))
		require.Equal(t, []graspsync.RepoRef{y}, list(-1), text)
	}
	require.NoError(t, os.WriteFile(at, whole, 0o600))
	require.Len(t, list(-1), 2)
}

// An expired context creates, removes and sweeps nothing.
func TestWhoseTimeIsOverHasNothingDone(t *testing.T) {
	r := newRepositories(t)
	x, y := owner.Ref("x"), owner.Ref("y")
	require.NoError(t, r.Create(t.Context(), x, nip34.SHA1))
	require.NoError(t, r.Retire(t.Context(), x))
	over := errors.New("it is over")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(over)
	require.Error(t, r.Create(ctx, y, nip34.SHA1))
	require.Error(t, r.DeleteRetired(ctx, time.Now().Add(time.Hour)))
	require.NoError(t, r.Create(t.Context(), x, nip34.SHA1), "it was kept")
	require.Error(t, r.Remove(ctx, x))
	_, unlock, err := r.Lock(t.Context(), x)
	require.NoError(t, err)
	unlock()
	_, _, err = r.Lock(t.Context(), y)
	require.ErrorIs(t, err, purgatory.ErrNoRepository)
}

// If the time of retirement is unreadable, it is reset to now, and an error is returned.
func TestDepartedSinceNobodyKnows(t *testing.T) {
	r := newRepositories(t)
	x := owner.Ref("x")
	for _, text := range []string{"", "yesterday", "gone"} {
		require.NoError(t, r.Create(t.Context(), x, nip34.SHA1))
		require.NoError(t, r.Retire(t.Context(), x))
		at := filepath.Join(r.Dir(), departed, filepath.FromSlash(hashed(x)))
		note := filepath.Join(at, "departed")
		require.NoError(t, os.Remove(note))
		if text != "gone" {
			require.NoError(t, os.WriteFile(note, []byte(text), 0o600))
		}
		require.Error(t, r.DeleteRetired(t.Context(), time.Now().Add(-time.Minute)), text)
		require.DirExists(t, at)
		require.NoError(t, r.DeleteRetired(t.Context(), time.Now().Add(-time.Minute)), "it is known by now")
		require.DirExists(t, at)
		require.NoError(t, r.DeleteRetired(t.Context(), time.Now().Add(2*time.Second)))
		require.NoDirExists(t, at)
	}
}

// watcher is an authority that records calls of Staged.
type watcher struct {
	*authority
	mu   sync.Mutex
	told []graspsync.EventID
}

func (w *watcher) Staged(_ graspsync.RepoRef, ids []graspsync.EventID) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told = append(w.told, ids...)
}

// Staged is called for uploads alone and beside a branch, but not for refused uploads, and not for
// duplicates in one push.
func TestWatcherIsToldWhatIsStaged(t *testing.T) {
	for name, c := range map[string]struct {
		refs   []string
		told   int
		status string
	}{
		"alone":    {[]string{"refs/nostr/" + stranger(1)}, 1, "ok"},
		"two":      {[]string{"refs/nostr/" + stranger(1), "refs/nostr/" + stranger(2)}, 2, "ok"},
		"a branch": {[]string{"refs/heads/main", "refs/nostr/" + stranger(1)}, 1, "ok"},
		"twice":    {[]string{"refs/nostr/" + stranger(1), "refs/nostr/" + stranger(1)}, 0, "ng"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, gitserve.Config{})
			r.says(map[string]string{"refs/heads/main": r.tip})
			w := &watcher{authority: r.authority}
			r.authorize(w)
			var lines []string
			for i, ref := range c.refs {
				lines = append(lines, null+" "+r.tip+" "+ref)
				if i == 0 {
					lines[0] += "\x00report-status"
				}
			}
			said := r.rawPush(t, r.tip+"\n", lines...)
			w.mu.Lock()
			defer w.mu.Unlock()
			require.Len(t, w.told, c.told, said)
			require.Equal(t, c.status == "ok", !strings.Contains(said, "ng "), said)
		})
	}
}
