package gitserve_test

import (
	"context"
	"fmt"
	"io"
	"net"
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
// They use the best of five tries, because other programs use the machine too.

func least(t *testing.T, f func()) time.Duration {
	t.Helper()
	out := time.Duration(0)
	for range 5 {
		began := time.Now()
		f()
		if took := time.Since(began); out == 0 || took < out {
			out = took
		}
	}
	return out
}

// beside compares the duration of f alone, and beside other clients.
func beside(t *testing.T, others string, f, arrive func()) {
	t.Helper()
	alone := least(t, f)
	arrive()
	took := least(t, f)
	t.Logf("beside %s: %v, alone %v", others, took.Round(time.Millisecond), alone.Round(time.Millisecond))
	// The failure would be a wait of 20 s in a queue. A factor of two needs an idle machine.
	require.Less(t, took, 2*alone+2*time.Second)
}

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
			r := newRig(t, gitserve.Config{}.With(gitserve.Fixed{RateWindow: 3 * time.Second}))
			require.NoError(t, r.repos.Create(t.Context(), owner.Ref("y"), nip34.SHA1))
			push := func() {
				r.tip = r.commit(t, "next")
				r.says(map[string]string{"refs/heads/main": r.tip})
				git(t, r.work, "push", "-q", r.at("x"), "main")
				git(t, r.work, "push", "-q", r.at("y"), "main")
			}
			beside(t, fmt.Sprint(n, " slow pushes"), push, func() {
				conns := make([]net.Conn, n)
				for i := range conns {
					conns[i] = r.post(t, receivePack, r.allowed()+"PACK\x00\x00\x00\x02\x00\x00\x00\x01")
				}
				crowd(t, conns, 200*time.Millisecond, func(c net.Conn) error {
					_, err := c.Write(make([]byte, 300))
					return err
				})
				// All open requests are old enough to be slow.
				require.Eventually(t, func() bool {
					return r.count(t, "requests", "push") >= min(n, 96)
				}, 10*time.Second, time.Millisecond)
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
	push := func() {
		r.tip = r.commit(t, "next")
		r.says(map[string]string{"refs/heads/main": r.tip})
		git(t, r.work, "push", "-q", r.at("x"), "main")
	}
	var wg sync.WaitGroup
	free := func() {}
	beside(t, "8 pushes to a locked repository", push, func() {
		_, unlock, err := r.repos.Lock(t.Context(), owner.Ref("y"))
		require.NoError(t, err)
		free = unlock
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
			r := rigWith(t, gitserve.RepositoriesConfig{Git: shim}, gitserve.Config{}.With(gitserve.Fixed{RateWindow: 10 * time.Second}))
			require.NoError(t, r.repos.Create(t.Context(), owner.Ref("y"), nip34.SHA1))
			r.says(map[string]string{"refs/heads/main": r.tip})
			git(t, r.work, "push", "-q", r.at("x"), "main")
			clone := func() {
				git(t, r.work, "ls-remote", r.at("x"))
				git(t, t.TempDir(), "clone", "-q", r.at("x"), "c")
			}
			u, err := url.Parse(r.url)
			require.NoError(t, err)
			beside(t, fmt.Sprint(n, " slow readers"), clone, func() {
				conns := make([]net.Conn, n)
				for i := range conns {
					conns[i], err = net.Dial("tcp", u.Host)
					require.NoError(t, err)
					t.Cleanup(func() { _ = conns[i].Close() })
					require.NoError(t, conns[i].(*net.TCPConn).SetReadBuffer(4096))
					_, err = fmt.Fprintf(conns[i], "POST /%s/y.git/%s HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n0000", owner.Npub(), uploadPack)
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
				// The clients are slow after some time.
				_, _ = io.Copy(io.Discard, ticks(2*time.Second))
			})
		})
	}
}

// ticks is a reader that ends after a time.
func ticks(after time.Duration) io.Reader {
	r, w := io.Pipe()
	time.AfterFunc(after, func() { _ = w.Close() })
	return r
}
