//go:build !race

package main

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/wire"
)

// proxies are programs that are put in front of a server, with the settings that we ship.
var proxies = map[string]func(t *testing.T, front, behind string) *exec.Cmd{
	"nginx": func(t *testing.T, front, behind string) *exec.Cmd {
		dir := t.TempDir()
		site := strings.NewReplacer(
			"listen 443 ssl;", "listen "+front+";", "    listen [::]:443 ssl;\n", "", "127.0.0.1:7334", behind,
		).Replace(shipped(t, "nginx.conf"))
		kept := strings.Lines(site)
		site = ""
		for line := range kept {
			if !strings.Contains(line, "ssl_certificate") {
				site += line
			}
		}
		require.NotContains(t, site, "443 ssl") // a free port may have these digits
		conf := filepath.Join(dir, "nginx.conf")
		require.NoError(t, os.WriteFile(conf, fmt.Appendf(nil, `
daemon off; master_process off; pid %[1]s/pid; error_log stderr warn;
events {}
http { access_log off;
client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
%[2]s
}`, dir, site), 0o600))
		return exec.CommandContext(t.Context(), "nginx", "-e", "stderr", "-p", dir, "-c", conf)
	},
	"caddy": func(t *testing.T, front, behind string) *exec.Cmd {
		dir := t.TempDir()
		conf := filepath.Join(dir, "Caddyfile")
		require.NoError(t, os.WriteFile(conf, []byte("{\n\tadmin off\n}\n"+shipped(t, "Caddyfile")), 0o600))
		cmd := exec.CommandContext(t.Context(), "caddy", "run", "--config", conf, "--adapter", "caddyfile")
		cmd.Env = []string{"HOME=" + dir, "XDG_DATA_HOME=" + dir, "XDG_CONFIG_HOME=" + dir, "GRASPSERVER_DOMAIN=http://" + front, "GRASPSERVER_LISTEN=" + behind}
		return cmd
	},
}

func shipped(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("deploy", name))
	require.NoError(t, err)
	return string(text)
}

// atProxy puts each proxy that is installed in front of what listens behind it.
func atProxy(t *testing.T, f func(t *testing.T, front, behind string)) {
	for name, command := range proxies {
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(name); err != nil {
				t.Skipf("%s is not installed", name)
			}
			front, behind := freeAddr(t), freeAddr(t)
			proxy := command(t, front, behind)
			proxy.Stdout, proxy.Stderr = t.Output(), t.Output()
			require.NoError(t, proxy.Start())
			defer func() {
				_ = proxy.Process.Kill()
				_ = proxy.Wait()
			}()
			eventually(t, "the proxy listens", func() bool {
				c, err := net.DialTimeout("tcp", front, time.Second)
				if err == nil {
					_ = c.Close()
				}
				return err == nil
			})
			f(t, front, behind)
		})
	}
}

// Behind each of the proxies as we have it set up: a large push without a length, its release
// to a subscriber, a clone, and what git is told about a push that is refused.
func TestProxies(t *testing.T) {
	atProxy(t, func(t *testing.T, front, behind string) {
		_, stop := server(t, options{Listen: behind, Domain: front, ClientHeader: "X-Real-IP"})
		defer stop()
		owner := relaytest.NewKey("owner")
		onFront := owner.CloneURL("ws://"+front, "large one")
		work := newWork(t)
		random := make([]byte, 12<<20)
		_, _ = rand.Read(random)
		require.NoError(t, os.WriteFile(filepath.Join(work, "large"), random, 0o600))
		git(t, work, "add", "large")
		commit(t, work, "large")
		ann := owner.Hosted(nostr.Now()-100, "large one", "ws://"+front)
		state := owner.State(nostr.Now()-90, "large one", refs(t, work), "main")
		hold(t, front, ann, state)
		live := dial(t, front)
		defer live.Close()
		require.NoError(t, live.Send(t.Context(), wire.Request{Type: wire.TypeReq, Sub: "live", Filters: []nostr.Filter{{Kinds: []int{state.Kind}}}}))
		await(t, live, wire.TypeEOSE)

		git(t, work, "-c", "http.postBuffer=100000", "push", "-q", onFront, "main")
		require.Equal(t, state.ID, await(t, live, wire.TypeEvent).Event.ID.String())
		clone := t.TempDir()
		git(t, clone, "clone", "-q", onFront, "c")
		got, err := os.ReadFile(filepath.Join(clone, "c", "large"))
		require.NoError(t, err)
		require.True(t, bytes.Equal(random, got))
		out, err := try(t, work, "push", onFront, "HEAD:refs/heads/other")
		require.Error(t, err)
		require.Contains(t, out, "the newest state event says otherwise")
	})
}

// Who a client is they say, not the client, and they leave paths and names as they are.
func TestProxiesSayWhoAsks(t *testing.T) {
	atProxy(t, func(t *testing.T, front, behind string) {
		l, err := net.Listen("tcp", behind)
		require.NoError(t, err)
		echo := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, _ = fmt.Fprint(w, r.Header.Values("X-Real-IP"), " ", r.Host, " ", r.RequestURI)
		})}
		served := make(chan error)
		go func() { served <- echo.Serve(l) }()
		defer func() {
			_ = echo.Close()
			<-served
		}()
		const path = "/npub1xyz/a%20repo%3A%20%C3%BCnter%2Fway.git/info/refs?service=git-upload-pack"
		require.Equal(t, "[127.0.0.1] "+front+" "+path, get(t, "http://"+front+path, "X-Real-IP", "8.8.8.8"))
	})
}
