package purgatory_test

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/internal/gittest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
	"github.com/graspsync/graspsync/purgatory/gitserve"
	"github.com/graspsync/graspsync/state"
)

// halfway is a repository with real git in which a transaction was killed half-way.
type halfway struct {
	relay    *relay
	repos    *gitserve.Repositories
	git      *gitfetch.Fetcher
	store    state.Store
	dir      string
	old, new string // commits
}

func (h *halfway) run(t *testing.T, args ...string) string {
	t.Helper()
	return gittest.Run(t, h.dir, args...)
}

// refs returns the refs according to git.
func (h *halfway) refs(t *testing.T) string {
	return h.run(t, "for-each-ref", "--format=%(refname) %(objectname)") + "\nHEAD " + h.run(t, "symbolic-ref", "HEAD")
}

// locks returns the lock files of git.
func (h *halfway) locks(t *testing.T) (out []string) {
	require.NoError(t, filepath.WalkDir(h.dir, func(path string, _ fs.DirEntry, err error) error {
		if strings.HasSuffix(path, ".lock") || strings.HasSuffix(path, "packed-refs.new") {
			out = append(out, path)
		}
		return err
	}))
	return out
}

func newHalfway(t *testing.T) *halfway {
	dialer, err := egress.NewDialer(egress.Config{})
	require.NoError(t, err)
	fetcher, err := gitfetch.New(t.Context(), gitfetch.Config{Dialer: dialer, MinFreeDisk: 1 << 20})
	require.NoError(t, err)
	dir := t.TempDir()
	repos, err := openFolders(dir)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, repos.Close()) })
	h := &halfway{relay: &relay{}, git: fetcher, store: state.NewMemory(), repos: repos, dir: folderOf(dir, alice)}
	require.NoError(t, h.repos.Create(t.Context(), repoOf(alice), nip34.SHA1))
	tree := h.run(t, "mktree")
	h.old = h.run(t, "commit-tree", "-m", "old", tree)
	h.new = h.run(t, "commit-tree", "-m", "new", "-p", h.old, tree)
	return h
}

// says returns a state with branches and tags at one commit.
func (h *halfway) says(at nostrTime, head, commit string, names ...string) *nostrEvent {
	tags := []nostrTag{{"d", "r"}, {"HEAD", "ref: refs/heads/" + head}}
	for _, name := range names {
		tags = append(tags, nostrTag{"refs/" + name, commit})
	}
	return alice.Event(at, graspsync.KindState, "", tags...)
}

// killedBefore submits an event, and kills the process after the journal is written.
func (h *halfway) killedBefore(t *testing.T, ev *nostrEvent) {
	ctx, kill := context.WithCancelCause(t.Context())
	journalled := make(chan struct{})
	l := &life{}
	p, err := purgatory.OpenWithStep(t.Context(), mortalRelay{h.relay, l}, h.repos, h.git, h.git, mortalStore{h.store, l}, purgatory.Config{}, func(name string) {
		if name == "journalled" {
			l.dead.Store(true)
			kill(errDead)
			close(journalled)
		}
	})
	require.NoError(t, err)
	done := make(chan error)
	go func() { done <- p.Run(ctx) }()
	answer, err := p.Submit(t.Context(), eventtest.Of(ev), graspsync.Source{Kind: graspsync.CatchUp})
	require.NoError(t, err)
	require.Equal(t, purgatory.Held, answer.Decision)
	<-journalled
	require.True(t, errors.Is(<-done, errDead))
}

// Git is killed in a transaction and leaves a partial change and locks. After Open the refs are
// either as before or complete according to the held state. Git can lock them again, and HEAD
// points to an existing branch.
func TestPromiseP34_HalfDoneByGit(t *testing.T) {
	for name, c := range map[string]struct {
		empty, deleted, unreadable, headMoved bool
	}{
		"the first state waits":                     {empty: true},
		"the first state is deleted":                {empty: true, deleted: true},
		"the first state, relay out of order":       {empty: true, unreadable: true},
		"the state waits":                           {},
		"the state is deleted":                      {deleted: true},
		"the state, relay out of order":             {unreadable: true},
		"HEAD is moved, and the state waits":        {headMoved: true},
		"HEAD is moved, and relay out of order":     {headMoved: true, unreadable: true},
		"HEAD is moved, and the state is deleted":   {headMoved: true, deleted: true},
		"of the first state HEAD is moved, deleted": {empty: true, deleted: true, headMoved: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newHalfway(t)
			if !c.empty {
				h.relay.put(h.says(now()-400, "main", h.old, "heads/main", "heads/dev", "heads/gone"))
				for _, name := range []string{"main", "dev", "gone"} {
					h.run(t, "update-ref", "refs/heads/"+name, h.old)
				}
				h.run(t, "pack-refs", "--all")
			}
			h.relay.put(announce(alice, now()-500))
			before := h.refs(t)
			s := h.says(now(), "new", h.new, "heads/main", "heads/dev", "heads/new", "tags/v1")
			h.killedBefore(t, s)
			require.Equal(t, before, h.refs(t), "the transaction has not begun")

			// Like git that is killed during the commit: some refs moved, the others locked.
			for _, name := range []string{"heads/dev", "heads/new"} {
				h.run(t, "update-ref", "refs/"+name, h.new)
			}
			if c.headMoved {
				h.run(t, "symbolic-ref", "HEAD", "refs/heads/new")
			}
			require.NoError(t, os.MkdirAll(filepath.Join(h.dir, "refs", "tags"), 0o700))
			for _, name := range []string{"refs/heads/main.lock", "refs/tags/v1.lock", "HEAD.lock", "packed-refs.lock", "packed-refs.new"} {
				require.NoError(t, os.WriteFile(filepath.Join(h.dir, name), nil, 0o600))
			}
			_, err := gittest.Try(t, h.dir, "update-ref", "refs/heads/main", h.new)
			require.Error(t, err, "it is locked")

			if c.deleted {
				h.relay.put(alice.Event(now(), graspsync.KindDeletion, "", nostrTag{"e", s.ID}))
			}
			r := newDoubtful(h.relay, c.unreadable)
			_, err = purgatory.Open(t.Context(), r, h.repos, h.git, h.git, h.store, purgatory.Config{})
			require.NoError(t, err)
			if c.deleted || c.unreadable {
				require.Equal(t, before, h.refs(t))
				require.False(t, h.relay.has(s))
			} else {
				want := "refs/heads/dev X\nrefs/heads/main X\nrefs/heads/new X\nrefs/tags/v1 X\nHEAD refs/heads/new"
				require.Equal(t, strings.ReplaceAll(want, "X", h.new), h.refs(t))
				require.True(t, h.relay.has(s))
			}
			require.Empty(t, h.locks(t))
			for _, name := range []string{"heads/main", "heads/other", "tags/v1"} {
				h.run(t, "update-ref", "refs/"+name, h.old)
			}
			h.run(t, "pack-refs", "--all")
			h.run(t, "fsck", "--strict")
		})
	}
}
