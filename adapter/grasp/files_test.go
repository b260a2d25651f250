//go:build unix

package grasp_test

import (
	"bufio"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/fiatjaf/khatru"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/adapter/grasp"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// envFiles is set for the server process of TestCaseH8_IdleConnectionsLeaveFilesForOthers.
const envFiles = "GRASP_TEST_FILES"

// With a limit of 256 open files, idle websockets or idle connections took all of them, no fetch
// was answered, and nothing was logged.
func TestCaseH8_IdleConnectionsLeaveFilesForOthers(t *testing.T) {
	if os.Getenv(envFiles) != "" {
		serveUntilEOF(t)
		return
	}
	binary, err := os.Executable()
	require.NoError(t, err)
	child := exec.CommandContext(t.Context(), "sh", "-c", `ulimit -n 256; exec "$0" -test.run='^TestCaseH8_'`, binary)
	child.Env = append(os.Environ(), envFiles+"=1")
	child.Stderr = os.Stderr
	in, err := child.StdinPipe()
	require.NoError(t, err)
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	defer func() {
		_ = in.Close()
		require.NoError(t, child.Wait())
	}()
	said := bufio.NewScanner(out)
	next := func(prefix string) string {
		for said.Scan() {
			if rest, found := strings.CutPrefix(said.Text(), prefix); found {
				return rest
			}
		}
		t.Fatal("the server ended", prefix)
		return ""
	}
	require.Contains(t, next("log: "), "files=256")
	addr, repository := next("addr: "), next("repository: ")
	go func() { _, _ = io.Copy(io.Discard, out) }()

	r := &rig{t: t, addr: addr}
	for _, open := range []func(from net.Addr){
		func(from net.Addr) {
			dialer := net.Dialer{LocalAddr: from}
			c, err := dialer.DialContext(t.Context(), "tcp", addr)
			require.NoError(t, err)
			t.Cleanup(func() { _ = c.Close() })
			_ = c.SetDeadline(time.Now().Add(time.Minute))
			_, err = fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"+
				"Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n")
			require.NoError(t, err)
			_, _ = c.Read(make([]byte, 64)) // the beginning of an answer, if any
		},
		func(from net.Addr) {
			dialer := net.Dialer{LocalAddr: from}
			c, err := dialer.DialContext(t.Context(), "tcp", addr)
			require.NoError(t, err)
			t.Cleanup(func() { _ = c.Close() })
		},
	} {
		for i := range 300 {
			open(&net.TCPAddr{IP: net.IPv4(127, 0, byte(1+i%100), byte(1+i/100))})
		}
		// A connection that has not sent its request yet can be closed in favor of others. Clients
		// then retry.
		var (
			refs string
			c    *websocket.Conn
			err  error
		)
		for range 10 {
			if refs, err = r.try(t.TempDir(), "ls-remote", repository); err == nil {
				break
			}
		}
		require.NoError(t, err)
		require.Contains(t, refs, "refs/heads/main")
		for range 10 {
			if c, _, err = websocket.Dial(t.Context(), "ws://"+addr, nil); err == nil {
				break
			}
		}
		require.NoError(t, err)
		require.NoError(t, c.Write(t.Context(), websocket.MessageText, []byte(`["REQ","x",{"kinds":[30617],"limit":0}]`)))
		_, answer, err := c.Read(t.Context())
		require.NoError(t, err)
		require.Equal(t, `["EOSE","x"]`, strings.TrimSpace(string(answer)))
	}
}

// serveUntilEOF serves a repository and prints its address. It ends with the standard input.
func serveUntilEOF(t *testing.T) {
	t.Helper()
	r := unstarted(t)
	r.configure = func(_ *khatru.Relay, cfg *grasp.Config) {
		cfg.Logger = slog.New(slog.NewTextHandler(prefixed{}, &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	r.start()
	defer r.stop()
	owner := relaytest.NewKey("owner")
	work, commit := r.work()
	r.serve(work, commit, owner)
	fmt.Println("addr: " + r.addr)
	fmt.Println("repository: http://" + r.addr + "/" + owner.Npub() + "/repo.git")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// prefixed writes log lines to the standard output.
type prefixed struct{}

func (prefixed) Write(p []byte) (int, error) { return fmt.Print("log: " + string(p)) }
