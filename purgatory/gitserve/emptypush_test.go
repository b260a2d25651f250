package gitserve_test

import (
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/purgatory/gitserve"
)

// A push that moved no ref still added its objects to the repository, and every client could repeat
// it.
func TestPushThatMovesNothingBringsNothing(t *testing.T) {
	for _, packed := range []bool{false, true} {
		r := newRig(t, gitserve.Config{})
		first := r.tip
		r.says(map[string]string{"refs/heads/main": first})
		git(t, r.work, "push", "-q", r.repo(), "main", "main:refs/nostr/"+event)
		if packed {
			git(t, r.dir(), "pack-refs", "--all")
		}
		r.pushed = nil
		before := files(t, r.dir())
		junk, blob := r.file(t, "junk", "junk")
		for old, says := range map[string]string{null: "ok", one: "ok", first: "ok", junk: "ok"} {
			text := r.rawPush(t, []string{junk}, old+" "+first+" refs/heads/main\x00report-status", old+" "+first+" refs/nostr/"+event)
			require.Contains(t, text, says+" refs/heads/main\n")
			require.Contains(t, text, says+" refs/nostr/"+event+"\n")
		}
		// The state has changed, and the client's old value is wrong.
		r.says(map[string]string{"refs/heads/main": junk})
		text := r.rawPush(t, []string{junk}, null+" "+junk+" refs/heads/main\x00report-status")
		require.Contains(t, text, "ng refs/heads/main "+refusedStale)
		text = r.rawPush(t, []string{junk}, one+" "+null+" refs/heads/gone\x00report-status atomic", null+" "+junk+" refs/heads/main")
		require.Contains(t, text, "ng refs/heads/main "+refusedStale)
		require.Equal(t, before, files(t, r.dir()))
		require.False(t, r.downloads(t, blob))
		require.Empty(t, r.pushed)
	}
}

// Maintenance, or an operator's git gc, read the refs before a push moved them, and then removed the
// pushed objects.
func TestPushWhileGarbageIsCollected(t *testing.T) {
	r := newRig(t, gitserve.Config{})
	r.says(map[string]string{"refs/heads/main": r.tip})
	r.git.SetStarted(func(cmd *exec.Cmd) {
		if slices.Contains(cmd.Args, "update-ref") {
			git(t, r.dir(), "repack", "-d", "-n", "-q", "--cruft", "--cruft-expiration=now")
		}
	})
	git(t, r.work, "push", "-q", r.repo(), "main")
	git(t, r.dir(), "fsck", "--strict", "--connectivity-only")
	keeps, err := filepath.Glob(filepath.Join(r.dir(), "objects", "pack", "*.keep"))
	require.NoError(t, err)
	require.Empty(t, keeps)
}
