package gitserve

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
)

// Whoever may push can send more than his refs need. That takes up the room of the owner as
// long as it is there, which is until its grace is over: then maintenance has it go.
func TestJunkBesideARefIsCountedAndGoes(t *testing.T) {
	const junk = 1 << 20
	r := rigWith(t, RepositoriesConfig{MaxOwnerBytes: 8 * junk}, Config{})
	r.says(map[string]string{"refs/heads/main": r.tip})
	noise := exec.CommandContext(t.Context(), "git", "hash-object", "-w", "--stdin")
	noise.Dir, noise.Stdin = r.work, strings.NewReader(random(t, junk))
	blob, err := noise.Output()
	require.NoError(t, err)
	pack := exec.CommandContext(t.Context(), "git", "pack-objects", "--stdout", "--revs", "-q")
	pack.Dir, pack.Stdin = r.work, strings.NewReader(r.tip+"\n"+string(blob))
	data, err := pack.Output()
	require.NoError(t, err)
	resp, text := r.do(t, "POST", "/"+owner.Npub()+"/x.git/"+receivePack, packet(null+" "+r.tip+" refs/heads/main\x00report-status")+string(data))
	require.Equal(t, 200, resp.StatusCode)
	require.Contains(t, text, "ok refs/heads/main")
	size := func() int64 {
		folder := owner.Ref("x").Owner.String()
		c := measuring(r.repos, RepositoriesConfig{MaxOwnerBytes: 8 * junk}) // one that has measured nothing yet
		require.NoError(t, c.measure(t.Context(), folder, time.Now()))
		return c.sizes[folder].bytes
	}
	has := func() bool {
		_, err := try(t, r.dir(), "cat-file", "-e", strings.TrimSpace(string(blob)))
		return err == nil
	}
	require.True(t, has())
	require.Greater(t, size(), int64(junk))

	dialer, err := egress.NewDialer(egress.Config{})
	require.NoError(t, err)
	f, err := gitfetch.New(t.Context(), gitfetch.Config{Dialer: dialer, MinFreeDisk: 1})
	require.NoError(t, err)
	defer f.Close()
	maintain := func() {
		t.Helper()
		require.NoError(t, os.RemoveAll(filepath.Join(r.dir(), "graspsync-maintenance"))) // a week has gone by
		done, err := f.Maintain(t.Context(), purgatory.Maintenance{
			Lock:  func(ctx context.Context) (string, func(), error) { return r.repos.Lock(ctx, owner.Ref("x")) },
			Keep:  func(context.Context) ([]nip34.ObjectID, error) { return nil, nil },
			Grace: 14 * 24 * time.Hour, Remember: 30 * 24 * time.Hour,
		})
		require.NoError(t, err)
		require.True(t, done.Pruned)
	}
	age := func(by time.Duration) {
		t.Helper()
		git(t, r.dir(), "repack", "-adkq") // without the ages that git has noted
		packs, err := filepath.Glob(filepath.Join(r.dir(), "objects", "pack", "*"))
		require.NoError(t, err)
		for _, path := range packs {
			at := time.Now().Add(-by)
			require.NoError(t, os.Chtimes(path, at, at))
		}
	}
	age(13 * 24 * time.Hour)
	maintain()
	require.True(t, has())
	before := size()
	require.Greater(t, before, int64(junk))
	age(15 * 24 * time.Hour)
	maintain()
	require.False(t, has())
	t.Logf("%d bytes with the junk, %d when it had gone", before, size())
	require.Less(t, size(), int64(junk/4))
	git(t, r.dir(), "fsck", "--strict")
	require.Equal(t, r.tip, git(t, r.dir(), "rev-parse", "main"))
}
