package conformance

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/porttest"
)

// field returns the folder of the programs of other authors.
func field(t *testing.T) string {
	t.Helper()
	dir := os.Getenv("FIELD_TOOLS")
	if dir == "" {
		t.Skip("FIELD_TOOLS does not name a folder with ngit, git-remote-nostr, ngit-grasp and grasp-audit")
	}
	for _, name := range []string{"ngit", "git-remote-nostr", "ngit-grasp", "grasp-audit"} {
		_, err := exec.LookPath(filepath.Join(dir, name))
		require.NoError(t, err)
	}
	return dir
}

// graspserver builds graspserver once.
var graspserver = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "conformance")
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "graspserver")
	out, err := exec.Command("go", "build", "-o", bin, "github.com/graspsync/graspsync/cmd/graspserver").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return bin, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if os.Getenv("FIELD_TOOLS") != "" {
		if bin, err := graspserver(); err == nil {
			_ = os.RemoveAll(filepath.Dir(bin))
		}
	}
	os.Exit(code)
}

// address returns a free loopback address.
func address(t *testing.T) string {
	t.Helper()
	return porttest.Address(t)
}

// Kinds of servers.
const (
	ours = "ours"
	peer = "peer"
)

// server is a server that runs until the test ends.
type server struct {
	address, data string
}

// serve starts a server at an address. bootstrap is the relay to follow first, if any.
func serve(t *testing.T, kind, at, bootstrap string, flags ...string) server {
	t.Helper()
	return serveAs(t, kind, at, at, bootstrap, flags...)
}

// serveAs starts a server with another public address.
func serveAs(t *testing.T, kind, at, domain, bootstrap string, flags ...string) server {
	t.Helper()
	tools := field(t)
	s := server{address: at, data: t.TempDir()}
	var cmd *exec.Cmd
	if kind == ours {
		bin, err := graspserver()
		require.NoError(t, err)
		args := []string{"-listen", at, "-admin-listen", "off", "-domain", domain, "-data", s.data, "-allow-plaintext", "-allow-net", "127.0.0.0/8", "-base-backoff", "1s"}
		if bootstrap != "" {
			args = append(args, "-bootstrap", "ws://"+bootstrap)
		}
		cmd = exec.Command(bin, append(args, flags...)...)
	} else {
		for _, dir := range []string{"git", "relay"} {
			require.NoError(t, os.Mkdir(filepath.Join(s.data, dir), 0o700))
		}
		cmd = exec.Command(filepath.Join(tools, "ngit-grasp"))
		cmd.Dir = s.data // the server writes its key there
		cmd.Env = append(os.Environ(), "NGIT_DOMAIN="+domain, "NGIT_BIND_ADDRESS="+at, "NGIT_GIT_DATA_PATH="+filepath.Join(s.data, "git"),
			"NGIT_RELAY_DATA_PATH="+filepath.Join(s.data, "relay"), "NGIT_DATABASE_BACKEND=lmdb",
			"NGIT_SYNC_ALLOW_NON_GLOBAL_TARGETS=true", "NGIT_SYNC_PLUS_ENABLED=false", "NGIT_SYNC_BASE_BACKOFF_SECS=1")
		if bootstrap != "" {
			cmd.Env = append(cmd.Env, "NGIT_SYNC_BOOTSTRAP_RELAY_URL=ws://"+bootstrap)
		}
	}
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &log, &log, 10*time.Second
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		kill := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		kill.Stop()
		if t.Failed() {
			t.Logf("%s at %s said:\n%.20000s", kind, at, log.String())
		}
	})
	require.Eventually(t, func() bool {
		resp, err := http.Get("http://" + at + "/")
		if err == nil {
			resp.Body.Close()
		}
		return err == nil
	}, time.Minute, 50*time.Millisecond, "%s does not start", kind)
	return s
}

// events returns the kinds of all served events by id.
func (s server) events(t *testing.T) map[string]int {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	relay, err := dial(ctx, s.address)
	require.NoError(t, err)
	defer relay.close()
	events, err := relay.query(ctx, nostr.Filter{Limit: 500})
	require.NoError(t, err)
	out := make(map[string]int)
	for _, ev := range events {
		out[ev.ID] = ev.Kind
	}
	return out
}

// people are the users of a server. They have their own home folder, and ngit knows only this
// relay.
type people struct {
	t   *testing.T
	env []string
}

// Their keys.
var (
	owner       = fmt.Sprintf("%064x", 11111)
	contributor = fmt.Sprintf("%064x", 22222)
)

func newPeople(t *testing.T, at string) people {
	t.Helper()
	home := t.TempDir()
	all := "ws://" + at
	p := people{t, []string{
		"PATH=" + field(t) + ":" + os.Getenv("PATH"), "HOME=" + home, "XDG_CONFIG_HOME=" + home, "XDG_DATA_HOME=" + home, "XDG_CACHE_HOME=" + home,
		"GIT_CONFIG_GLOBAL=" + filepath.Join(home, ".gitconfig"), "GIT_CONFIG_SYSTEM=/dev/null", "NGITTEST=TRUE", "NGIT_RELAY_DEFAULT_SET=" + all,
		"NGIT_RELAY_BLASTER_SET=" + all, "NGIT_RELAY_SIGNER_FALLBACK_SET=" + all, "NGIT_GRASP_DEFAULT_SET=" + all,
	}}
	for name, value := range map[string]string{"user.name": "t", "user.email": "t@example.com", "init.defaultBranch": "main"} {
		p.do(home, "git", "config", "--global", name, value)
	}
	return p
}

// do runs a program in a folder and returns its output.
func (p people) do(dir string, args ...string) string {
	p.t.Helper()
	out, err := p.try(dir, args...)
	require.NoError(p.t, err, "%s: %s", strings.Join(args, " "), out)
	return out
}

func (p people) try(dir string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(p.t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	for _, e := range p.env {
		if path, ok := strings.CutPrefix(e, "PATH="); ok && !strings.Contains(args[0], "/") {
			cmd.Path, cmd.Err = lookPath(path, args[0])
		}
	}
	cmd.Dir, cmd.Env = dir, p.env
	out, err := cmd.CombinedOutput()
	return strings.TrimSpace(string(out)), err
}

func lookPath(path, name string) (string, error) {
	for _, dir := range filepath.SplitList(path) {
		if found, err := exec.LookPath(filepath.Join(dir, name)); err == nil {
			return found, nil
		}
	}
	return "", errors.New("no " + name)
}

// write writes a file and commits it.
func (p people) write(dir, name, text string) {
	p.t.Helper()
	require.NoError(p.t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	p.do(dir, "git", "add", ".")
	p.do(dir, "git", "commit", "-qm", text)
}

func (p people) head(dir string) string { return p.do(dir, "git", "rev-parse", "HEAD") }

// publish publishes a new repository of the owner to servers and returns its folder and URL.
func (p people) publish(name string, servers ...string) (dir, url string) {
	p.t.Helper()
	dir = filepath.Join(p.t.TempDir(), name)
	require.NoError(p.t, os.Mkdir(dir, 0o700))
	p.do(dir, "git", "init", "-q")
	p.do(dir, "git", "config", "nostr.nsec", owner)
	for i := range 3 {
		p.write(dir, fmt.Sprint("f", i), fmt.Sprint("commit ", i))
	}
	args := []string{"ngit", "--nsec", owner, "-d", "init", "--name", name, "--identifier", name, "--description", "x", "--grasp-server"}
	for _, s := range servers {
		args = append(args, "ws://"+s)
	}
	p.do(dir, args...)
	p.do(dir, "git", "push", "-u", "origin", "main")
	return dir, p.do(dir, "git", "config", "remote.origin.url")
}

// clone clones a repository as the user with a key.
func (p people) clone(url, key string) (dir string) {
	p.t.Helper()
	dir = filepath.Join(p.t.TempDir(), "clone")
	p.do(filepath.Dir(dir), "git", "clone", url, dir)
	p.do(dir, "git", "config", "nostr.nsec", key)
	return dir
}

// propose opens a pull request and an issue of the contributor.
func (p people) propose(url string) {
	p.t.Helper()
	dir := p.clone(url, contributor)
	p.do(dir, "git", "checkout", "-qb", "pr/fix")
	p.write(dir, "fix", "a fix")
	p.do(dir, "git", "push", "-o", "title=Fix", "-o", "description=d", "-u", "origin", "pr/fix")
	p.do(dir, "ngit", "--nsec", contributor, "issue", "create", "--subject", "s", "--body", "b")
}
