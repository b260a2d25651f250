package grasp_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fiatjaf/eventstore/slicestore"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/grasp"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// size returns the size of the folder of repositories in bytes.
func (r *rig) size() (sum int64) {
	require.NoError(r.t, filepath.WalkDir(r.dir, func(_ string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // removed in the meantime
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			sum += info.Size()
		}
		return err
	}))
	return sum
}

// downloads reports whether a client can fetch an object by id.
func (r *rig) downloads(url, id string) bool {
	dir := r.t.TempDir()
	r.git(dir, "init", "-q")
	_, err := r.try(dir, "fetch", "-q", url, id)
	return err == nil
}

func (r *rig) write(work, name, text string) (commit, blob string) {
	require.NoError(r.t, os.WriteFile(filepath.Join(work, name), []byte(text), 0o600))
	r.git(work, "add", name)
	r.git(work, "commit", "-q", "-m", name)
	return r.git(work, "rev-parse", "HEAD"), r.git(work, "rev-parse", "HEAD:"+name)
}

// A contributor pushes before publishing, with a restart in between. The pull request is served
// with its ref from the pushed data, which was not available before. Data that another client
// pushed for the id of the event changes nothing and is removed.
func TestDataFirst(t *testing.T) {
	for _, kind := range []int{graspsync.KindPullRequest, graspsync.KindPullRequestUpdate} {
		r := &rig{t: t, addr: "127.0.0.1:0", dir: filepath.Join(t.TempDir(), "git"), kept: state.NewMemory(), db: &slicestore.SliceStore{}}
		require.NoError(t, r.db.Init())
		r.start()
		work := t.TempDir()
		r.git(work, "init", "-q", "-b", "main")
		commit, _ := r.write(work, "readme", "text")
		owner, contributor := relaytest.NewKey("owner"), relaytest.NewKey("contributor")
		r.serve(work, commit, owner)
		url := owner.CloneURL("ws://"+r.addr, "repo")
		r.eventually("it is served", func() bool { return len(r.served()) == 2 })

		tip, blob := r.write(work, "change", "a change")
		tags := nostr.Tags{{"a", owner.Ref("repo").String()}, {"c", tip}}
		if kind == graspsync.KindPullRequestUpdate {
			root := contributor.Event(nostr.Now()-50, graspsync.KindPullRequest, "", nostr.Tag{"a", owner.Ref("repo").String()}, nostr.Tag{"c", commit})
			require.Empty(t, r.publish(root))
			r.eventually("the root is served", func() bool { return len(r.served()) == 3 })
			tags = append(tags, nostr.Tag{"E", root.ID}, nostr.Tag{"P", root.PubKey}, nostr.Tag{"K", "1618"})
		}
		before := len(r.served())
		pr := contributor.Event(nostr.Now()-10, kind, "", tags...)
		r.git(work, "switch", "-qc", "evil", "main~")
		evil, secret := r.write(work, "evil", "his own")
		r.git(work, "push", "-q", url, "evil:refs/nostr/"+pr.ID)
		r.git(work, "push", "-q", url, "main:refs/nostr/"+pr.ID)
		require.Empty(t, r.git(work, "ls-remote", url, "refs/nostr/"+pr.ID))
		for _, id := range []string{tip, blob, evil, secret} {
			require.False(t, r.downloads(url, id))
		}
		r.stop()
		r.start()
		r.eventually("what is stored has been read", func() bool { return len(r.publish(pr)) == 0 })
		r.eventually("it is served", func() bool { return len(r.served()) == before+1 })
		require.Equal(t, tip+"\trefs/nostr/"+pr.ID, r.git(work, "ls-remote", url, "refs/nostr/"+pr.ID))
		require.True(t, r.downloads(url, tip))
		for _, id := range []string{evil, secret} {
			require.False(t, r.downloads(url, id))
		}
		left, err := os.ReadDir(filepath.Join(r.dir, "staged"))
		require.NoError(t, err)
		require.Empty(t, left)
		require.Zero(t, r.server.Purgatory().Status().Fetches, "nobody was asked")
		r.stop()
	}
}

// Pushed data without an event is kept for StageHold and then removed completely.
func TestUploadsWithoutEventsLeaveNothing(t *testing.T) {
	racetest.Foreign(t, "khatru broadcasts with one while a subscriber leaves")
	r := &rig{t: t, addr: "127.0.0.1:0", dir: filepath.Join(t.TempDir(), "git"), kept: state.NewMemory(), db: &slicestore.SliceStore{}}
	r.configure = func(_ *khatru.Relay, cfg *grasp.Config) { cfg.Repositories.StageHold = 10 * time.Second }
	require.NoError(t, r.db.Init())
	r.start()
	defer r.stop()
	owner := relaytest.NewKey("owner")
	work := t.TempDir()
	r.git(work, "init", "-q", "-b", "main")
	commit, _ := r.write(work, "readme", "text")
	r.serve(work, commit, owner)
	url := owner.CloneURL("ws://"+r.addr, "repo")
	r.eventually("it is served", func() bool { return len(r.served()) == 2 })
	was := r.size()
	_, blob := r.write(work, "film", strings.Repeat("0123456789abcdef", 1<<16)+time.Now().String())
	for i := range 5 {
		r.git(work, "push", "-q", url, "main:refs/nostr/"+strings.Repeat("0123456789abcdef"[i:i+1], 64))
	}
	require.Greater(t, r.size(), was)
	require.Eventually(t, func() bool { return r.size() == was }, time.Minute, 50*time.Millisecond)
	require.False(t, r.downloads(url, blob))
}
