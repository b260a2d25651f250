package gitfetch_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
)

// Environment of the process that is killed: git and a repository.
const (
	envGit        = "GITFETCH_TEST_GIT"
	envRepository = "GITFETCH_TEST_REPOSITORY"
)

// Git of a killed process continued and moved refs while the next process held the lock.
func TestGitEndsWithUs(t *testing.T) {
	if program := os.Getenv(envGit); program != "" { // this is the process that is killed
		_, err := fetcher(t, gitfetch.Config{Git: program}).DiskUsage(t.Context(), os.Getenv(envRepository), nil, nil)
		require.NoError(t, err)
		return
	}
	here, dir := bare(t, nip34.SHA1), t.TempDir()
	shim, began, moved := filepath.Join(dir, "git"), filepath.Join(dir, "began"), filepath.Join(dir, "moved")
	real, err := exec.LookPath("git")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(shim, fmt.Appendf(nil, `#!/bin/sh
case "$*" in
version*) exec %s "$@";;
esac
echo x > %s
read -r _ < %s/pipe
echo x > %s
`, real, began, dir, moved), 0o700))
	require.NoError(t, exec.CommandContext(t.Context(), "mkfifo", filepath.Join(dir, "pipe")).Run())
	victim := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestGitEndsWithUs$")
	victim.Env = append(os.Environ(), envGit+"="+shim, envRepository+"="+here)
	require.NoError(t, victim.Start())
	require.Eventually(t, func() bool {
		_, err := os.Stat(began)
		return err == nil
	}, time.Minute, time.Millisecond)
	require.NoError(t, victim.Process.Kill())
	_ = victim.Wait() // it was killed
	pipe, err := os.OpenFile(filepath.Join(dir, "pipe"), os.O_RDWR, 0)
	require.NoError(t, err)
	defer pipe.Close()
	_, err = pipe.WriteString("go on\n")
	require.NoError(t, err)
	require.Never(t, func() bool {
		_, err := os.Stat(moved)
		return err == nil
	}, 500*time.Millisecond, 10*time.Millisecond)
}
