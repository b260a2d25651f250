package gitserve_test

import (
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/purgatory/gitserve"
)

// Hooks and configuration of a repository, or of the user who runs the server, must not run
// programs.
func TestTrapG11_NothingElseIsRun(t *testing.T) {
	proof := filepath.Join(t.TempDir(), "proof")
	hooks := t.TempDir()
	script := []byte("#!/bin/sh\necho $0 >> " + proof + "\nexit 1\n")
	global := filepath.Join(t.TempDir(), "config")
	require.NoError(t, os.WriteFile(global, []byte("[core]\n\thooksPath = "+hooks+"\n[transfer]\n\thideRefs = refs\n"), 0o600))
	t.Setenv("GIT_CONFIG_GLOBAL", global)
	r := newRig(t, gitserve.Config{})
	own := filepath.Join(r.repos.Dir(), filepath.FromSlash(hashed(owner.Ref("x"))), "hooks")
	require.NoError(t, os.MkdirAll(own, 0o700))
	for _, dir := range []string{hooks, own} {
		for _, name := range []string{"pre-receive", "update", "post-receive", "post-update", "reference-transaction", "proc-receive"} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name), script, 0o700))
		}
	}
	r.says(map[string]string{"refs/heads/main": r.tip})
	git(t, r.work, "push", "-q", r.repo(), "main")
	require.Contains(t, r.has(t), r.tip)
	require.NoFileExists(t, proof)
}

// Each git run has all limits, and nothing of the server's environment.
func TestPromiseP9_EveryChild(t *testing.T) {
	real, err := exec.LookPath("git")
	require.NoError(t, err)
	dir := t.TempDir()
	args, env, shim := filepath.Join(dir, "args"), filepath.Join(dir, "env"), filepath.Join(dir, "git")
	require.NoError(t, os.WriteFile(shim, []byte(fmt.Sprintf(
		"#!/bin/sh\necho \"$*\" >> %s\ntr '\\0' '\\n' < /proc/$$/environ >> %s\nexec %s \"$@\"\n", args, env, real)), 0o700))
	t.Setenv("OUR_SECRET", "x")
	r := rigWith(t, gitserve.RepositoriesConfig{Git: shim}, gitserve.Config{})
	r.says(map[string]string{"refs/heads/main": r.tip})
	git(t, r.work, "push", "-q", r.repo(), "main")
	git(t, r.work, "fetch", "-q", r.repo(), "main")
	seen, err := os.ReadFile(args)
	require.NoError(t, err)
	for line := range strings.Lines(string(seen)) {
		for _, setting := range []string{
			"core.hooksPath=/dev/null", "core.fsmonitor=false", "gc.auto=0", "maintenance.auto=false",
			"core.fsync=objects,derived-metadata,reference", "core.fsyncMethod=fsync", "core.logAllRefUpdates=always",
			"core.packedGitWindowSize=1m", "core.packedGitLimit=16m",
		} {
			require.Contains(t, line, "-c "+setting+" ")
		}
	}
	require.Contains(t, string(seen), " upload-pack --stateless-rpc ")
	require.Contains(t, string(seen), " index-pack ")
	require.Contains(t, string(seen), " update-ref ")
	seen, err = os.ReadFile(env)
	require.NoError(t, err)
	names := make(map[string]int)
	for line := range strings.Lines(string(seen)) {
		name, _, _ := strings.Cut(line, "=")
		names[name]++
	}
	for _, name := range []string{"GIT_ALLOC_LIMIT", "GIT_CONFIG_NOSYSTEM", "GIT_CONFIG_GLOBAL", "GIT_ATTR_NOSYSTEM", "GIT_TERMINAL_PROMPT", "GIT_ALLOW_PROTOCOL", "GIT_NO_REPLACE_OBJECTS"} {
		require.Equal(t, names["HOME"], names[name], name)
	}
	require.Zero(t, names["OUR_SECRET"])
	require.Contains(t, string(seen), "GIT_CONFIG_GLOBAL=/dev/null\n")
	require.Contains(t, string(seen), "GIT_ALLOW_PROTOCOL=\n")
}

// P31 for pushes: malformed pushes are refused and leave nothing.
func TestPromiseP31_MalformedPush(t *testing.T) {
	r := newRig(t, gitserve.Config{})
	blob := git(t, r.work, "hash-object", "-w", "--stdin")
	raw, err := hex.DecodeString(blob)
	require.NoError(t, err)
	entry := filepath.Join(t.TempDir(), "tree")
	require.NoError(t, os.WriteFile(entry, append([]byte("100644 .git\x00"), raw...), 0o600))
	tree := git(t, r.work, "hash-object", "-w", "--literally", "-t", "tree", entry)
	commit := git(t, r.work, "commit-tree", "-m", "x", tree)
	git(t, r.work, "update-ref", "refs/heads/bad", commit)
	r.says(map[string]string{"refs/heads/bad": commit})
	out, err := try(t, r.work, "push", r.repo(), "bad")
	require.Error(t, err, out)
	require.Empty(t, r.has(t))
	dir := filepath.Join(r.repos.Dir(), filepath.FromSlash(hashed(owner.Ref("x"))))
	_, err = try(t, dir, "--git-dir=.", "cat-file", "-e", commit)
	require.Error(t, err)
}

// Harmless faults of old programs were refused in pushes but accepted in fetches.
func TestPromiseP31_OldFaultsArePushed(t *testing.T) {
	r := newRig(t, gitserve.Config{})
	empty, err := hex.DecodeString(git(t, r.work, "hash-object", "-w", "-t", "tree", "/dev/null"))
	require.NoError(t, err)
	entry := filepath.Join(t.TempDir(), "tree")
	require.NoError(t, os.WriteFile(entry, append([]byte("040000 d\x00"), empty...), 0o600))
	tree := git(t, r.work, "hash-object", "-w", "--literally", "-t", "tree", entry)
	commit := git(t, r.work, "commit-tree", "-m", "x", tree)
	git(t, r.work, "update-ref", "refs/heads/old", commit)
	r.says(map[string]string{"refs/heads/old": commit})
	git(t, r.work, "push", "-q", r.repo(), "old")
	require.Contains(t, r.has(t), commit)
}

// If git cannot run, the client gets an error. It got an empty success.
func TestGitThatCannotBeRun(t *testing.T) {
	r := newRig(t, gitserve.Config{})
	r.git.SetStarted(func(cmd *exec.Cmd) { cmd.Path = "/nonexistent" })
	resp, _ := r.do(t, "GET", "/"+owner.Npub()+"/x.git/info/refs?service=git-upload-pack", "")
	require.Equal(t, 500, resp.StatusCode)
}
