package gitfetch_test

import (
	"context"
	"crypto/x509"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/cgi"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
	"github.com/graspsync/graspsync/purgatory/internal/gitops"
)

// TestMain creates the folders of tests in memory if possible, because there are many small files.
func TestMain(m *testing.M) {
	flag.Parse()
	if _, err := os.Stat("/dev/shm"); err == nil && flag.Lookup("test.bench").Value.String() == "" {
		_ = os.Setenv("TMPDIR", "/dev/shm") // otherwise they are on disk
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(sampleDir)
		os.Exit(code)
	}))
}

// Numbers and names of gitfetch that users can observe.
const (
	quarantinePrefix = "graspsync-quarantine-"
	recordName       = "graspsync-maintenance"
	keepNote         = "graspsync\n"
	staleAfter       = time.Minute     // age of abandoned locks
	leftAfter        = time.Hour       // age of abandoned files in objects
	packingMost      = 2 * time.Second // age of an abandoned lock of packed-refs
	fewPacks         = 8
	fewRefs          = 64
)

func list(t testing.TB, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// git runs git like a user, in the environment of the test.
func git(t testing.TB, dir string, args ...string) string {
	t.Helper()
	return gitIn(t, dir, "", args...)
}

func gitIn(t testing.TB, dir, stdin string, args ...string) string {
	t.Helper()
	cmd := exec.Command("git", args...)
	cmd.Dir = dir
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Env = append(os.Environ(), "GIT_CONFIG_NOSYSTEM=1", "GIT_CONFIG_GLOBAL=/dev/null", "HOME=/nonexistent",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_AUTHOR_DATE=1700000000 +0000",
		"GIT_COMMITTER_NAME=c", "GIT_COMMITTER_EMAIL=c@example.com", "GIT_COMMITTER_DATE=1700000000 +0000")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "git %v: %s", args, out)
	return strings.TrimSpace(string(out))
}

// bare creates an empty bare repository as a copy, because hundreds of tests need one.
func bare(t testing.TB, format nip34.ObjectFormat) string {
	t.Helper()
	initialized.Lock()
	defer initialized.Unlock()
	if initialized.by[format] == nil {
		made := filepath.Join(t.TempDir(), "made.git")
		git(t, t.TempDir(), "init", "-q", "--bare", "--object-format="+format.String(), "-b", "main", made)
		initialized.by[format] = inMemory(t, made)
	}
	dir := filepath.Join(t.TempDir(), "repo.git")
	require.NoError(t, os.CopyFS(dir, initialized.by[format]))
	return dir
}

// initialized contains empty repositories by format.
var initialized = struct {
	sync.Mutex
	by map[nip34.ObjectFormat]fstest.MapFS // guarded by Mutex
}{by: make(map[nip34.ObjectFormat]fstest.MapFS)}

// inMemory reads a folder without hook examples.
func inMemory(t testing.TB, dir string) fstest.MapFS {
	t.Helper()
	all := make(fstest.MapFS)
	require.NoError(t, fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil || strings.HasSuffix(path, ".sample"):
			return err
		case d.IsDir():
			all[path] = &fstest.MapFile{Mode: fs.ModeDir | 0o755}
			return nil
		}
		data, err := os.ReadFile(filepath.Join(dir, path))
		all[path] = &fstest.MapFile{Data: data, Mode: 0o644}
		return err
	}))
	return all
}

// configured changes the config of a repository, so that only git can read it.
func configured(t testing.TB, dir string) string {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(dir, "config"), os.O_WRONLY|os.O_APPEND, 0)
	require.NoError(t, err)
	_, err = file.WriteString("# by hand\n")
	require.NoError(t, errors.Join(err, file.Close()))
	return dir
}

// history adds n commits with a file each to a branch and returns their ids, oldest first.
func history(t testing.TB, dir, branch string, n int) (ids []nip34.ObjectID) {
	t.Helper()
	var b strings.Builder
	for i := range n {
		text := fmt.Sprintf("%s %d\n", branch, i)
		fmt.Fprintf(&b, "commit refs/heads/%s\nmark :%d\ncommitter c <c@example.com> %d +0000\ndata %d\n%s", branch, i+1, 1700000000+i, len(text), text)
		if _, err := os.Stat(filepath.Join(dir, "refs", "heads", branch)); i == 0 && err == nil {
			fmt.Fprintf(&b, "from refs/heads/%s^0\n", branch)
		}
		fmt.Fprintf(&b, "M 100644 inline dir/%s-%d.txt\ndata %d\n%s\n", branch, i, len(text), text)
	}
	gitIn(t, dir, b.String(), "fast-import", "--quiet")
	out := git(t, dir, "rev-list", "--reverse", "--max-count="+fmt.Sprint(n), branch)
	for line := range strings.Lines(out) {
		ids = append(ids, oid(t, strings.TrimSpace(line)))
	}
	return ids
}

func oid(t testing.TB, s string) nip34.ObjectID {
	t.Helper()
	id, err := nip34.ParseObjectID(s)
	require.NoError(t, err)
	return id
}

// origin serves repositories with git http-backend.
type origin struct {
	*httptest.Server
	mu       sync.Mutex
	requests []string
}

func (o *origin) note(r *http.Request) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.requests = append(o.requests, r.Method+" "+r.URL.Path)
}

// seen returns all requests.
func (o *origin) seen() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Clone(o.requests)
}

// serve serves the repository in dir. change, if not nil, wraps the backend.
func serve(t testing.TB, dir string, change func(w http.ResponseWriter, r *http.Request, next http.Handler)) *origin {
	t.Helper()
	path := filepath.Join(git(t, dir, "--exec-path"), "git-http-backend")
	backend := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := &cgi.Handler{
			Path: path, Dir: dir,
			Env: []string{
				"GIT_PROJECT_ROOT=" + filepath.Dir(dir), "GIT_HTTP_EXPORT_ALL=1", "GIT_CONFIG_NOSYSTEM=1",
				"GIT_CONFIG_GLOBAL=/dev/null", "GIT_PROTOCOL=" + r.Header.Get("Git-Protocol"),
				"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
			},
		}
		h.ServeHTTP(w, r)
	})
	o := &origin{}
	o.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		o.note(r)
		if change != nil {
			change(w, r, backend)
			return
		}
		backend.ServeHTTP(w, r)
	}))
	t.Cleanup(o.Close)
	return o
}

func (o *origin) clone(t testing.TB) graspsync.CloneURL {
	t.Helper()
	u, err := graspsync.ParseCloneURL(o.URL + "/repo.git")
	require.NoError(t, err)
	return u
}

// fetcher returns a Fetcher that may connect to loopback addresses.
func fetcher(t testing.TB, with ...gitfetch.Config) *gitfetch.Fetcher {
	t.Helper()
	cfg := slices.Concat(with, []gitfetch.Config{{}})[0]
	dialer, err := egress.NewDialer(egress.Config{
		AllowPlaintext: true, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
	})
	require.NoError(t, err)
	cfg.Dialer = dialer
	if cfg.MinFreeDisk == 0 {
		cfg.MinFreeDisk = 1 << 20
	}
	f, err := gitfetch.New(t.Context(), cfg)
	require.NoError(t, err)
	watched(t, f)
	t.Cleanup(f.Close)
	return f
}

// watched checks at the end of a test that f is idle.
func watched(t testing.TB, f *gitfetch.Fetcher) {
	files := &openFiles{}
	*f.Files() = files
	t.Cleanup(func() {
		if !t.Failed() {
			f.Idle(t)
			files.closed(t, "the end")
		}
	})
}

// complete checks that a repository contains complete objects.
func complete(t testing.TB, f *gitfetch.Fetcher, dir string, ids []nip34.ObjectID) {
	t.Helper()
	missing, err := f.Missing(t.Context(), dir, ids)
	require.NoError(t, err)
	require.Empty(t, missing)
}

// wholly checks that a quarantine contains complete objects.
func wholly(t testing.TB, q gitops.Quarantine, ids []nip34.ObjectID) {
	t.Helper()
	missing, err := q.Missing(t.Context(), ids)
	require.NoError(t, err)
	require.Empty(t, missing)
}

// leftovers returns files in a repository that a fetch must not leave.
func leftovers(t testing.TB, dir string) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), quarantinePrefix) || strings.HasSuffix(e.Name(), ".lock") {
			out = append(out, e.Name())
		}
	}
	return out
}

func get(t testing.TB, f *gitfetch.Fetcher, dir string, from graspsync.CloneURL, ids ...nip34.ObjectID) {
	t.Helper()
	q, err := f.Open(dir)
	require.NoError(t, err)
	_, err = q.Fetch(t.Context(), from, ids)
	require.NoError(t, err)
	missing, err := q.Missing(context.Background(), ids)
	require.NoError(t, err)
	require.Empty(t, missing)
	require.NoError(t, q.Promote(t.Context()))
}

// fetcherTrusting returns a Fetcher that trusts the certificate of a server.
func fetcherTrusting(t testing.TB, cfg gitfetch.Config, srv *httptest.Server) *gitfetch.Fetcher {
	t.Helper()
	pool := x509.NewCertPool()
	pool.AddCert(srv.Certificate())
	dialer, err := egress.NewDialer(egress.Config{
		AllowPlaintext: true, RootCAs: pool, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")},
	})
	require.NoError(t, err)
	cfg.Dialer, cfg.MinFreeDisk = dialer, 1<<20
	f, err := gitfetch.New(t.Context(), cfg)
	require.NoError(t, err)
	watched(t, f)
	t.Cleanup(f.Close)
	return f
}
