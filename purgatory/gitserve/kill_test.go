package gitserve_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/gitserve"
)

// Environment of the process that is killed: folder, git, and the allowed commit of main.
const (
	envServe = "GITSERVE_TEST_FOLDER"
	envGit   = "GITSERVE_TEST_GIT"
	envTip   = "GITSERVE_TEST_TIP"
)

// serveUntilKilled is the process that is killed.
func serveUntilKilled() {
	repos, err := gitserve.Open(os.Getenv(envServe), gitserve.RepositoriesConfig{Git: os.Getenv(envGit)})
	if err != nil {
		panic(err)
	}
	auth := &authority{refs: map[string]string{"refs/heads/main": os.Getenv(envTip)}}
	h, err := gitserve.New(repos, auth, gitserve.Config{})
	if err != nil {
		panic(err)
	}
	fmt.Println(httptest.NewServer(h).URL)
	select {}
}

// When a server was killed during a push, git continued and moved refs without the lock, while the
// next server used them. Data of the push stayed forever.
func TestKilledInMidPush(t *testing.T) {
	real, err := exec.LookPath("git")
	require.NoError(t, err)
	dir := t.TempDir()
	shim, began := filepath.Join(dir, "git"), filepath.Join(dir, "began")
	// A slow git for a push: it creates a file, and moves refs later.
	require.NoError(t, os.WriteFile(shim, fmt.Appendf(nil, `#!/bin/sh
case "$*" in
*" update-ref "*)
	echo x > refs/heads/main.lock
	echo x > %s; sleep 3; mv refs/heads/main.lock refs/heads/main;;
*) exec %s "$@";;
esac
`, began, real), 0o700))
	folder, work := filepath.Join(dir, "git-data"), t.TempDir()
	repos, err := gitserve.Open(folder, gitserve.RepositoriesConfig{})
	require.NoError(t, err)
	require.NoError(t, repos.Create(t.Context(), owner.Ref("x"), nip34.SHA1))
	require.NoError(t, repos.Close())
	at := filepath.Join(folder, hashed(owner.Ref("x")))
	before := refsOf(t, at)
	git(t, work, "init", "-q", "-b", "main")
	git(t, work, "commit", "-q", "--allow-empty", "-m", "x")

	server := exec.Command(os.Args[0])
	server.Env = append(os.Environ(), envServe+"="+folder, envGit+"="+shim, envTip+"="+git(t, work, "rev-parse", "HEAD"))
	out, err := server.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, server.Start())
	url, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	pushed := make(chan error)
	go func() {
		_, err := try(t, work, "push", strings.TrimSpace(url)+"/"+owner.Npub()+"/x.git", "main")
		pushed <- err
	}()
	require.Eventually(t, func() bool {
		_, err := os.Stat(began)
		return err == nil
	}, time.Minute, time.Millisecond)
	held, err := os.Open(folder)
	require.NoError(t, err)
	require.ErrorIs(t, syscall.Flock(int(held.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), syscall.EWOULDBLOCK, "another process has it")
	require.NoError(t, held.Close())
	require.NoError(t, server.Process.Kill())
	_ = server.Wait() // it was killed
	require.Error(t, <-pushed)
	repos, err = gitserve.Open(folder, gitserve.RepositoriesConfig{})
	require.NoError(t, err)
	defer func() { require.NoError(t, repos.Close()) }()
	moved := func() []string {
		return slices.DeleteFunc(refsOf(t, at), func(name string) bool { return strings.HasSuffix(name, ".lock") })
	}
	require.Equal(t, before, moved())
	ctx, cancel := context.WithTimeout(t.Context(), 3500*time.Millisecond)
	defer cancel()
	<-ctx.Done() // the time that git would have taken
	require.Equal(t, before, moved())

	h, err := gitserve.New(repos, &authority{refs: map[string]string{"refs/heads/main": git(t, work, "rev-parse", "HEAD")}}, gitserve.Config{})
	require.NoError(t, err)
	defer h.Close()
	next := httptest.NewServer(h)
	defer next.Close()
	git(t, work, "push", "-q", next.URL+"/"+owner.Npub()+"/x.git", "main")
	require.Equal(t, refsOf(t, at), moved(), "no lock is left")
}

// refsOf returns the files of refs, with locks.
func refsOf(t *testing.T, dir string) []string {
	return files(t, filepath.Join(dir, "refs"))
}
