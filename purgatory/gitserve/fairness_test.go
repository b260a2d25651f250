package gitserve_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/gitserve"
)

// These tests measure the effect of misbehaving clients on honest clients, with sockets and git.

// inTime checks that f, which waits for a few slow clients, does not wait for a whole queue.
func inTime(t *testing.T, f func()) {
	t.Helper()
	began := time.Now()
	f()
	took := time.Since(began)
	t.Log(took.Round(time.Millisecond))
	require.Less(t, took, 30*time.Second)
}

// clientIn names the client of a request by a header.
func clientIn(req *http.Request) string { return req.Header.Get("X-Client") }

const honest = "http.extraHeader=X-Client: 203.0.113.9"

// slowClient is the header of one of 200 addresses of eight networks.
func slowClient(i int) string { return fmt.Sprintf("X-Client: 198.51.%d.%d", i%8, i%25) }

// crowd calls do for each connection periodically until an error.
func crowd(t *testing.T, conns []net.Conn, every time.Duration, do func(net.Conn) error) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(every)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			for i, c := range conns {
				if c != nil && do(c) != nil {
					conns[i] = nil
				}
			}
		}
	}()
	t.Cleanup(func() {
		cancel()
		<-done
	})
}

func (r *rig) at(name string) string { return r.url + "/" + owner.Npub() + "/" + name + ".git" }

// Eight connections that sent a byte now and then delayed all pushes of the server for 20 s and
// then had them refused, because each held a slot while it sent.
func TestHonestPushBesideSlowPushes(t *testing.T) {
	racetest.Amounts(t)
	for _, n := range []int{8, 100, 200} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			r := newRig(t, gitserve.Config{Client: clientIn}.With(gitserve.Fixed{RateWindow: 8 * time.Second}))
			require.NoError(t, r.repos.Create(t.Context(), owner.Ref("y"), nip34.SHA1))
			conns := make([]net.Conn, n)
			for i := range conns {
				conns[i] = r.post(t, receivePack, r.allowed()+"PACK\x00\x00\x00\x02\x00\x00\x00\x01", slowClient(i))
			}
			crowd(t, conns, 200*time.Millisecond, func(c net.Conn) error {
				_, err := c.Write(make([]byte, 300))
				return err
			})
			require.Eventually(t, func() bool {
				return r.count(t, "requests", "push") >= min(n, 96)
			}, time.Minute, time.Millisecond)
			inTime(t, func() {
				r.tip = r.commit(t, "next")
				r.says(map[string]string{"refs/heads/main": r.tip})
				git(t, r.work, "-c", honest, "push", "-q", r.at("x"), "main")
				git(t, r.work, "-c", honest, "push", "-q", r.at("y"), "main")
			})
			require.Zero(t, r.count(t, "running", "push"))
			if n < 96 {
				require.Zero(t, r.count(t, "shed_total", "push"), "nobody had to leave")
			}
		})
	}
}

// A push to a locked repository held a slot while it waited for the lock.
func TestHonestPushBesideALockedRepository(t *testing.T) {
	racetest.Amounts(t)
	r := newRig(t, gitserve.Config{})
	require.NoError(t, r.repos.Create(t.Context(), owner.Ref("y"), nip34.SHA1))
	_, free, err := r.repos.Lock(t.Context(), owner.Ref("y"))
	require.NoError(t, err)
	var wg sync.WaitGroup
	for i := range 8 {
		id, tip := fmt.Sprintf("%064x", i), r.tip
		r.mu.Lock()
		r.tips[id] = tip
		r.mu.Unlock()
		wg.Go(func() {
			_, err := try(t, r.work, "push", r.at("y"), tip+":refs/nostr/"+id)
			if err != nil {
				t.Error(err)
			}
		})
	}
	r.taken(t, "requests", "push", 8)
	r.taken(t, "running", "push", 0)
	inTime(t, func() {
		r.tip = r.commit(t, "next")
		r.says(map[string]string{"refs/heads/main": r.tip})
		git(t, r.work, "push", "-q", r.at("x"), "main")
	})
	free()
	wg.Wait()
}

// 32 slow clones blocked all clones and lists of refs, because git held a slot for each of them.
func TestHonestCloneBesideSlowReaders(t *testing.T) {
	racetest.Amounts(t)
	real, err := exec.LookPath("git")
	require.NoError(t, err)
	shim := filepath.Join(t.TempDir(), "git")
	// Clones of one repository never end.
	require.NoError(t, os.WriteFile(shim, fmt.Appendf(nil, `#!/bin/sh
case "$PWD/ $*" in
*%s/*upload-pack*) exec cat /dev/zero;;
*) exec %s "$@";;
esac
`, filepath.Base(hashed(owner.Ref("y"))), real), 0o700))
	for _, n := range []int{32, 200} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			r := rigWith(t, gitserve.RepositoriesConfig{Git: shim}, gitserve.Config{Client: clientIn}.With(gitserve.Fixed{RateWindow: 5 * time.Second, Wait: 30 * time.Second}))
			require.NoError(t, r.repos.Create(t.Context(), owner.Ref("y"), nip34.SHA1))
			r.says(map[string]string{"refs/heads/main": r.tip})
			git(t, r.work, "push", "-q", r.at("x"), "main")
			u, err := url.Parse(r.url)
			require.NoError(t, err)
			conns := make([]net.Conn, n)
			for i := range conns {
				conns[i], err = net.Dial("tcp", u.Host)
				require.NoError(t, err)
				t.Cleanup(func() { _ = conns[i].Close() })
				require.NoError(t, conns[i].(*net.TCPConn).SetReadBuffer(4096))
				_, err = fmt.Fprintf(conns[i], "POST /%s/y.git/%s HTTP/1.1\r\nHost: x\r\n%s\r\nContent-Length: 4\r\n\r\n0000",
					owner.Npub(), uploadPack, slowClient(i))
				require.NoError(t, err)
			}
			p := make([]byte, 400)
			crowd(t, conns, 500*time.Millisecond, func(c net.Conn) error {
				_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
				_, err := c.Read(p)
				if os.IsTimeout(err) {
					return nil
				}
				return err
			})
			r.taken(t, "running", "fetch", 32)
			inTime(t, func() {
				git(t, r.work, "-c", honest, "ls-remote", r.at("x"))
				git(t, t.TempDir(), "-c", honest, "clone", "-q", r.at("x"), "c")
			})
		})
	}
}
