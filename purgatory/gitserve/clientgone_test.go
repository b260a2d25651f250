package gitserve_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/purgatory/gitserve"
)

// slowly returns a rig whose git answers as a script says.
func slowly(t *testing.T, cfg gitserve.Config, script string) *rig {
	t.Helper()
	real, err := exec.LookPath("git")
	require.NoError(t, err)
	dir := t.TempDir()
	shim := filepath.Join(dir, "git")
	text := fmt.Sprintf("#!/bin/sh\n%s \"$@\" > %s/out || exit 1\n%s\n", real, dir, strings.ReplaceAll(script, "OUT", dir+"/out"))
	require.NoError(t, os.WriteFile(shim, []byte(text), 0o700))
	return rigWith(t, gitserve.RepositoriesConfig{Git: shim}, cfg)
}

// send begins a push for an event and returns the connection unread.
func (r *rig) send(t *testing.T) net.Conn {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "git", "pack-objects", "--stdout", "--revs", "-q")
	cmd.Dir, cmd.Stdin = r.work, strings.NewReader(r.tip+"\n")
	pack, err := cmd.Output()
	require.NoError(t, err)
	body := packet(null+" "+r.tip+" refs/nostr/"+event+"\x00report-status side-band-64k") + string(pack)
	u, err := url.Parse(r.url)
	require.NoError(t, err)
	conn, err := net.Dial("tcp", u.Host)
	require.NoError(t, err)
	require.NoError(t, conn.(*net.TCPConn).SetReadBuffer(4096))
	_, err = fmt.Fprintf(conn, "POST /%s/x.git/git-receive-pack HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s",
		owner.Npub(), len(body), body)
	require.NoError(t, err)
	return conn
}

func (r *rig) ref(name string) bool {
	_, err := os.Stat(filepath.Join(r.repos.Dir(), hashed(owner.Ref("x")), filepath.FromSlash(name)))
	return err == nil
}

// A client disconnects while git moves refs. Git must complete, and AfterPush must be called.
// Otherwise a ref without a record would stay forever.
func TestClientGoneInMidPush(t *testing.T) {
	var log strings.Builder
	r := slowly(t, gitserve.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))}, "sleep 1; cat OUT")
	conn := r.send(t)
	require.Eventually(t, func() bool { return r.ref("refs/nostr/" + event) }, time.Minute, time.Millisecond)
	require.NoError(t, conn.Close())
	require.Eventually(t, func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.pushed) == 1
	}, time.Minute, 10*time.Millisecond)
	r.git.Close()
	require.NotContains(t, log.String(), "push answered", "there is nobody to answer")
}

// A client that does not read the answer to a push must not hold the lock.
func TestSlowReaderOfAPush(t *testing.T) {
	r := slowly(t, gitserve.Config{}, `cat OUT; case "$*" in *pack-objects*) ;; *) head -c 15000000 /dev/zero ;; esac`)
	conn := r.send(t)
	defer conn.Close()
	require.Eventually(t, func() bool { return r.ref("refs/nostr/" + event) }, time.Minute, time.Millisecond)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	_, unlock, err := r.repos.Lock(ctx, owner.Ref("x"))
	require.NoError(t, err)
	unlock()
}

// Close killed git while it moved refs, so only some refs were moved.
func TestCloseLetsAPushFinish(t *testing.T) {
	r := slowly(t, gitserve.Config{}, "sleep 0.3; cat OUT")
	conn := r.send(t)
	defer conn.Close()
	require.Eventually(t, func() bool { return r.ref("refs/nostr/" + event) }, time.Minute, time.Millisecond)
	r.git.Close()
	require.Len(t, r.pushed, 1)
	answer := make([]byte, 4096)
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Minute)))
	_, err := io.ReadAtLeast(conn, answer, 200)
	require.NoError(t, err)
	require.Contains(t, string(answer), "ok refs/nostr/"+event)
	entries, err := os.ReadDir(filepath.Join(r.repos.Dir(), incoming))
	require.NoError(t, err)
	require.Empty(t, entries, "git has come to its end")
}
