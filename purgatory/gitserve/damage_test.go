package gitserve

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
)

// What is not a note of an upload, or of one to a repository that has gone, is not one after a
// restart: its folder goes. A time that is yet to come is now.
func TestNotesThatCanNotBeReadGo(t *testing.T) {
	ref, future := owner.Ref("x"), time.Now().Add(1000*time.Hour)
	good := note{Repo: ref.String(), Client: "c", Tips: map[string]string{event: one}, Bytes: 7, Since: time.Now().Add(-time.Minute).UTC()}
	with := func(change func(n *note)) string {
		n := good
		n.Tips = map[string]string{event: one}
		change(&n)
		text, err := json.Marshal(n)
		require.NoError(t, err)
		return string(text)
	}
	for name, c := range map[string]struct {
		text  string
		stays bool
	}{
		"good":              {with(func(*note) {}), true},
		"two events":        {with(func(n *note) { n.Tips[stranger(2)] = two }), true},
		"yet to come":       {with(func(n *note) { n.Since = future }), true},
		"no text":           {"", false},
		"torn":              {with(func(*note) {})[:20], false},
		"no repository":     {with(func(n *note) { n.Repo = "x" }), false},
		"another that goes": {with(func(n *note) { n.Repo = owner.Ref("y").String() }), false},
		"no event":          {with(func(n *note) { n.Tips["x"] = two }), false},
		"no commit":         {with(func(n *note) { n.Tips[stranger(2)] = "x" }), false},
	} {
		dir := filepath.Join(t.TempDir(), "git")
		r, err := Open(dir, RepositoriesConfig{})
		require.NoError(t, err)
		require.NoError(t, r.Create(t.Context(), ref, nip34.SHA1))
		require.NoError(t, r.Close())
		folder := filepath.Join(dir, area, "upload")
		require.NoError(t, os.Mkdir(folder, 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(folder, noteName), []byte(c.text), 0o600))
		before := time.Now()
		r, err = Open(dir, RepositoriesConfig{})
		require.NoError(t, err, name)
		s := r.staging
		uploads := r.Staged(ref, eventID(t, event))
		if c.stays {
			require.Len(t, uploads, 1, name)
			require.Equal(t, one, uploads[0].Tip.String())
			want := leastStaged
			if name == "two events" {
				want *= 2
			}
			require.EqualValues(t, want, uploads[0].Bytes, name)
			require.EqualValues(t, want, s.uploads.Bytes(), name)
			require.Zero(t, s.ended[endedUnreadable], name)
			at := oldest(r).Add(s.limits.hold)
			require.Equal(t, name != "yet to come", at.Before(before.Add(s.limits.hold-30*time.Second)), name)
			require.False(t, at.After(time.Now().Add(s.limits.hold)), name)
		} else {
			require.Empty(t, uploads, name)
			require.EqualValues(t, 1, s.ended[endedUnreadable], name)
			require.NoDirExists(t, folder, name)
		}
		require.NoError(t, r.Close())
	}
}

// What can't be removed is told, and tried again soon; then it is gone.
func TestUploadThatCanNotBeRemovedIsTriedAgain(t *testing.T) {
	r := newRepositories(t)
	require.NoError(t, r.Create(t.Context(), owner.Ref("x"), nip34.SHA1))
	var said strings.Builder
	r.staging.log = slog.New(slog.NewTextHandler(&said, nil))
	f := &faultyFolder{folder: r.root, n: 1}
	folder := filepath.Join(r.dir, area, "upload")
	require.NoError(t, os.Mkdir(folder, 0o700))
	r.root = f
	r.staging.drop([]string{"upload", "not there"})
	require.Contains(t, f.failed(), "rename")
	require.Contains(t, said.String(), "could not be removed")
	require.Equal(t, []string{"upload"}, r.staging.stuck)
	require.DirExists(t, folder)
	f.heal()
	r.root = f.folder
	r.staging.sweep()
	require.Empty(t, r.staging.stuck)
	require.NoDirExists(t, folder)
	require.NoError(t, r.staging.discard("not there"))
}

// A folder that is none, or not what an earlier process left, is not opened, and is let go of:
// it can be opened when it is mended.
func TestOpenOfWhatIsNoFolder(t *testing.T) {
	for name, spoil := range map[string]string{"itself": "git", "above": "", "staging": "git/" + area, "departed": "git/" + departed} {
		at := t.TempDir()
		dir := filepath.Join(at, "git")
		if name == "above" {
			dir = filepath.Join(at, "file", "git")
			spoil = "file"
		}
		broken := filepath.Join(at, filepath.FromSlash(spoil))
		require.NoError(t, os.MkdirAll(filepath.Dir(broken), 0o700))
		require.NoError(t, os.WriteFile(broken, nil, 0o600))
		r, err := Open(dir, RepositoriesConfig{})
		if name == "departed" { // it is of use only for what departs
			require.NoError(t, err)
			require.Error(t, r.Sweep(t.Context(), time.Now()))
			require.NoError(t, r.Close())
			continue
		}
		require.Error(t, err, name)
		require.NotErrorIs(t, err, ErrLocked, name)
		require.NoError(t, os.Remove(broken))
		r, err = Open(dir, RepositoriesConfig{})
		require.NoError(t, err, name)
		lock, err := lockFolder(dir, 0)
		require.ErrorIs(t, err, ErrLocked)
		require.Nil(t, lock)
		require.NoError(t, r.Close())
		require.NoError(t, r.Close(), "again")
		lock, err = lockFolder(dir, 0)
		require.NoError(t, err)
		require.NoError(t, lock.Close())
	}
	_, err := lockFolder(filepath.Join(t.TempDir(), "none"), time.Hour)
	require.ErrorIs(t, err, os.ErrNotExist)
}

// A folder whose description is an operator's own is nobody's repository; who lists them may
// stop at any.
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
	require.NoError(t, os.WriteFile(filepath.Join(r.dir, owner.Hex(), "file"), nil, 0o600))
	require.NoError(t, os.Mkdir(filepath.Join(r.dir, owner.Hex(), "empty"), 0o700))
	at := filepath.Join(r.dir, filepath.FromSlash(hashed(x)), "description")
	whole, err := os.ReadFile(at)
	require.NoError(t, err)
	for _, text := range []string{"", "my own", `"my own"`, strings.Replace(string(whole), ":x", ":z", 1)} {
		require.NoError(t, os.WriteFile(at, []byte(text), 0o600))
		require.Equal(t, []graspsync.RepoRef{y}, list(-1), text)
	}
	require.NoError(t, os.WriteFile(at, whole, 0o600))
	require.Len(t, list(-1), 2)
}

// Whoever's time is over has nothing made, nothing removed and nothing swept.
func TestWhoseTimeIsOverHasNothingDone(t *testing.T) {
	r := newRepositories(t)
	x, y := owner.Ref("x"), owner.Ref("y")
	require.NoError(t, r.Create(t.Context(), x, nip34.SHA1))
	require.NoError(t, r.Depart(t.Context(), x))
	over := errors.New("it is over")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(over)
	require.Error(t, r.Create(ctx, y, nip34.SHA1))
	require.Error(t, r.Sweep(ctx, time.Now().Add(time.Hour)))
	require.NoError(t, r.Create(t.Context(), x, nip34.SHA1), "it was kept")
	require.Error(t, r.Remove(ctx, x))
	_, unlock, err := r.Lock(t.Context(), x)
	require.NoError(t, err)
	unlock()
	_, _, err = r.Lock(t.Context(), y)
	require.ErrorIs(t, err, purgatory.ErrNoRepository)
}

// When nobody can say since when something is out of service, that begins now; that is told.
func TestDepartedSinceNobodyKnows(t *testing.T) {
	r := newRepositories(t)
	x := owner.Ref("x")
	for _, text := range []string{"", "yesterday", "gone"} {
		require.NoError(t, r.Create(t.Context(), x, nip34.SHA1))
		require.NoError(t, r.Depart(t.Context(), x))
		at := filepath.Join(r.dir, departed, filepath.FromSlash(hashed(x)))
		note := filepath.Join(at, since)
		require.NoError(t, os.Remove(note))
		if text != "gone" {
			require.NoError(t, os.WriteFile(note, []byte(text), 0o600))
		}
		require.Error(t, r.Sweep(t.Context(), time.Now().Add(-time.Minute)), text)
		require.DirExists(t, at)
		require.NoError(t, r.Sweep(t.Context(), time.Now().Add(-time.Minute)), "it is known by now")
		require.DirExists(t, at)
		require.NoError(t, r.Sweep(t.Context(), time.Now().Add(2*time.Second)))
		require.NoDirExists(t, at)
	}
}

// watcher is an authority that is told for which events something is staged.
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

// Who watches is told of what is staged: alone, with a branch, and not if it was refused. The
// same event twice in one push is none.
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
			rig := newRig(t, Config{})
			p := newPushed(t, "none of these", 0, nil, map[string]string{"refs/heads/main": rig.tip})
			w := &watcher{authority: p.authority}
			p.git.auth = w
			pack := packedTip(t, rig)
			var lines []string
			for i, ref := range c.refs {
				line := null + " " + rig.tip + " " + ref
				if i == 0 {
					line += "\x00report-status"
				}
				lines = append(lines, line)
			}
			_, said := p.push(packet(lines...) + pack)
			w.mu.Lock()
			defer w.mu.Unlock()
			require.Len(t, w.told, c.told, said)
			if c.status == "ok" {
				require.NotContains(t, said, "ng ")
			}
		})
	}
}

// packedTip is a pack of what is checked out.
func packedTip(t *testing.T, r *rig) string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", "pack-objects", "--stdout", "--revs", "-q")
	cmd.Dir, cmd.Stdin = r.work, strings.NewReader(r.tip+"\n")
	out, err := cmd.Output()
	require.NoError(t, err)
	return string(out)
}
