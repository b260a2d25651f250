package gitfetch_test

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
	"github.com/graspsync/graspsync/purgatory/internal/gitrun"
)

// For each limit: a server at the limit passes, a server above it does not, and the error names the
// limit.
func TestPromiseP30_EachLimit(t *testing.T) {
	there := bare(t, nip34.SHA1)
	ids := history(t, there, "main", 30)
	o := serve(t, there, nil)
	for _, c := range []struct {
		limit string
		cfg   gitfetch.Config
	}{
		{"pack bytes", gitfetch.Config{MaxPackBytes: 1000}},
		{"pack objects", gitfetch.Config{MaxPackObjects: 119}},
		{"advertisement bytes", gitfetch.Config{}.With(gitfetch.Fixed{MaxAdvertBytes: 50})},
		{"memory of git", gitfetch.Config{Memory: gitrun.NewMemory(1 << 20)}},
	} {
		t.Run(c.limit, func(t *testing.T) {
			here := bare(t, nip34.SHA1)
			before := digest(t, here)
			f := fetcher(t, c.cfg)
			if c.limit == "memory of git" {
				// With so little memory git cannot start, and the error differs.
				require.Error(t, attempt(t.Context(), f, here, o.clone(t), ids[29]))
				return
			}
			err := attempt(t.Context(), f, here, o.clone(t), ids[29])
			require.True(t, limited(c.limit)(err), "%v", err)
			require.ErrorIs(t, err, purgatory.ErrLimit)
			require.Equal(t, before, digest(t, here))
			require.Empty(t, children(t))
		})
	}
	f := fetcher(t, gitfetch.Config{MaxPackObjects: 120})
	require.NoError(t, attempt(t.Context(), f, bare(t, nip34.SHA1), o.clone(t), ids[29]), "exactly the limit")
}

// Free disk space is checked before the first request and during a pack.
func TestPromiseP30_FreeDisk(t *testing.T) {
	here := sample(t)
	before := digest(t, here)
	var left atomic.Uint64
	o := serve(t, here, func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		v2(func(w io.Writer) {
			fmt.Fprint(w, pkt("packfile\n"))
			_ = band(w, packHeader(1))
			_ = band(w, entryHead(3, 1<<20))
			fmt.Fprint(w, "fff0\x01")
		})(w, r)
		if r.Method == http.MethodPost {
			_ = http.NewResponseController(w).Flush()
			left.Store(5)
			<-r.Context().Done()
		}
	})
	f := fetcher(t, gitfetch.Config{MinFreeDisk: 10})
	*f.Free() = func(string) (uint64, error) { return left.Load(), nil }
	left.Store(9)
	require.ErrorIs(t, attempt(t.Context(), f, here, o.clone(t), oid(t, strings.Repeat("a", 40))), gitfetch.ErrDisk)
	require.Empty(t, o.seen(), "no request without room for the answer")
	left.Store(10)
	require.ErrorIs(t, attempt(t.Context(), f, here, o.clone(t), oid(t, strings.Repeat("a", 40))), gitfetch.ErrDisk)
	require.Len(t, o.seen(), 2)
	require.Equal(t, before, digest(t, here))
	require.Empty(t, children(t))
	*f.Free() = func(string) (uint64, error) { return 0, syscall.EIO }
	require.ErrorIs(t, attempt(t.Context(), f, here, o.clone(t), oid(t, strings.Repeat("a", 40))), syscall.EIO)
}

// A git that would run forever with a child is killed as a group at the time limit.
func TestPromiseP30_TimeEndsTheGroup(t *testing.T) {
	dir := t.TempDir()
	pids := filepath.Join(dir, "pids")
	path := filepath.Join(dir, "git")
	require.NoError(t, os.WriteFile(path, []byte(fmt.Sprintf(`#!/bin/sh
case "$*" in
*build-options*) exec git "$@";;
*index-pack*) sleep 1000 & echo $! >> %s; echo $$ >> %s; wait;;
*) exec git "$@";;
esac
`, pids, pids)), 0o700))
	here := sample(t)
	before := digest(t, here)
	o := serve(t, here, func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		sendPack(packOf(object(3, []byte("x"))))(w, r)
	})
	f := fetcher(t, gitfetch.Config{Git: path}.With(gitfetch.Fixed{Timeout: 5 * time.Second}))
	err := attempt(t.Context(), f, here, o.clone(t), oid(t, strings.Repeat("a", 40)))
	require.True(t, limited("seconds")(err), "%v", err)
	require.Equal(t, before, digest(t, here))
	list, err := os.ReadFile(pids)
	require.NoError(t, err)
	require.Len(t, strings.Fields(string(list)), 2)
	for pid := range strings.FieldsSeq(string(list)) {
		require.Eventually(t, func() bool { return gone(pid) }, time.Minute, 5*time.Millisecond, pid)
	}
}

// gone reports whether a process has ended or is a zombie.
func gone(pid string) bool {
	stat, err := os.ReadFile("/proc/" + pid + "/stat")
	return err != nil || strings.Contains(string(stat), ") Z ")
}

// The number of children is limited, and slow servers have no children. They block neither git nor
// fetches within MaxFetches.
func TestPromiseP30_Children(t *testing.T) {
	slow, stop := context.WithCancel(t.Context())
	there := sample(t)
	var hanging, dripping atomic.Int64
	o := serve(t, there, func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		v2(func(w io.Writer) { fmt.Fprint(w, pkt("packfile\n")); _ = band(w, packHeader(1)) })(w, r)
		if r.Method == http.MethodPost {
			_ = http.NewResponseController(w).Flush()
			hanging.Add(1)
			dripping.Add(1)
			<-r.Context().Done()
			dripping.Add(-1)
		}
	})
	f := fetcher(t, gitfetch.Config{MaxChildren: 2, MaxFetches: 6})
	var mu sync.Mutex
	most := 0
	*f.Started() = func(*exec.Cmd) {
		mu.Lock()
		defer mu.Unlock()
		most = max(most, f.Children())
	}
	var wg sync.WaitGroup
	for range 8 {
		here := sample(t)
		wg.Go(func() {
			_ = attempt(slow, f, here, o.clone(t), oid(t, strings.Repeat("a", 40)))
		})
	}
	require.Eventually(t, func() bool { return hanging.Load() == 6 }, time.Minute, time.Millisecond)
	require.Eventually(t, func() bool { return f.Children() == 0 }, time.Minute, time.Millisecond, "none while they drip")
	here := sample(t)
	ours := sample(t)
	at, enough := context.WithTimeout(t.Context(), 20*time.Second) // before the hanging servers are too slow
	defer enough()
	missing, err := f.Missing(at, here, []nip34.ObjectID{oid(t, strings.Repeat("a", 40))}) // runs git
	require.NoError(t, err)
	require.Len(t, missing, 1)
	require.EqualValues(t, 6, dripping.Load(), "six hang and two wait, and this is none")
	require.EqualValues(t, 6, hanging.Load(), "no more than MaxFetches")
	stop()
	wg.Wait()
	require.LessOrEqual(t, most, 2)
	require.Empty(t, children(t))
	full, cancel := context.WithCancel(t.Context())
	cancel()
	for _, dir := range []string{here, "/another owner/r.git"} {
		release, err := f.HoldChild(t.Context(), dir)
		require.NoError(t, err)
		defer release()
	}
	_, err = f.Refs(full, ours)
	require.ErrorIs(t, err, context.Canceled)
	refs, err := f.Refs(t.Context(), ours)
	require.NoError(t, err, "git is not needed for that, however many run")
	require.Len(t, refs.At, 1)
}

// While slow packs arrive, an honest fetch succeeds, even with one git slot.
func TestPromiseP37_SlowServersKeepNobodyFromFetching(t *testing.T) {
	racetest.Amounts(t)
	there := bare(t, nip34.SHA1)
	tip := history(t, there, "main", 5)[4]
	var hanging atomic.Int64
	slow := serve(t, there, func(w http.ResponseWriter, r *http.Request, _ http.Handler) {
		v2(func(w io.Writer) { fmt.Fprint(w, pkt("packfile\n")); _ = band(w, packHeader(1)) })(w, r)
		if r.Method == http.MethodPost {
			_ = http.NewResponseController(w).Flush()
			hanging.Add(1)
			<-r.Context().Done()
		}
	})
	honest := serve(t, there, nil)
	f := fetcher(t, gitfetch.Config{MaxChildren: 1})
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 10 { // purgatory.Config.MaxFetchJobs
		here := sample(t)
		wg.Go(func() { _ = attempt(ctx, f, here, slow.clone(t), tip) })
	}
	require.Eventually(t, func() bool { return hanging.Load() == 10 }, time.Minute, time.Millisecond)
	get(t, f, bare(t, nip34.SHA1), honest.clone(t), tip)
	stop()
	wg.Wait()
}

// Old git versions, other programs and missing programs cause specific errors. A SHA-1 without
// collision detection causes a warning.
func TestPromiseP36_Versions(t *testing.T) {
	dialer, err := egress.NewDialer(egress.Config{})
	require.NoError(t, err)
	fake := func(text string, code int) string {
		path := filepath.Join(t.TempDir(), "git")
		require.NoError(t, os.WriteFile(path, []byte(fmt.Sprintf("#!/bin/sh\nprintf '%s'\nexit %d\n", text, code)), 0o700))
		return path
	}
	for text, want := range map[string]string{
		"git version 2.38.5\\n":       "git version 2.38.5, want 2.39 or later",
		"git version 1.99.0\\n":       "want 2.39 or later",
		"\\033[2Jno git\\n":           `\x1b[2Jno git is no version of git`,
		"":                            "is no version of git",
		"git version two\\n":          "is no version of git",
		"git version 2.9.9 (x y)\\nz": "want 2.39",
	} {
		_, err := gitfetch.New(t.Context(), gitfetch.Config{Dialer: dialer, Git: fake(text, 0)})
		require.ErrorIs(t, err, gitfetch.ErrGit, text)
		require.ErrorContains(t, err, want)
	}
	_, err = gitfetch.New(t.Context(), gitfetch.Config{Dialer: dialer, Git: fake("git version 2.50.0", 1)})
	require.ErrorIs(t, err, gitfetch.ErrGit)
	_, err = gitfetch.New(t.Context(), gitfetch.Config{Dialer: dialer, Git: "/nonexistent/git"})
	require.ErrorIs(t, err, gitfetch.ErrGit)
	// A hanging git blocked the start of a server without an error.
	hangs := filepath.Join(t.TempDir(), "git")
	require.NoError(t, os.WriteFile(hangs, []byte("#!/bin/sh\nexec sleep 100\n"), 0o700))
	_, _, err = gitfetch.CheckVersion(t.Context(), hangs, 50*time.Millisecond)
	require.ErrorIs(t, err, gitfetch.ErrGit)
	require.ErrorContains(t, err, "no answer within 50ms")
	for build, warned := range map[string]bool{"": false, "SHA-1: SHA1_DC\\n": false, "SHA-1: SHA1_APPLE\\n": true, "cpu: x\\nSHA-1: SHA1_OPENSSL\\n": true} {
		var log strings.Builder
		f, err := gitfetch.New(t.Context(), gitfetch.Config{
			Dialer: dialer, Git: fake("git version 3.0.1\\n"+build, 0), Logger: slog.New(slog.NewTextHandler(&log, nil)),
		})
		require.NoError(t, err)
		require.Equal(t, "git version 3.0.1", f.GitVersion())
		require.NoError(t, testutil.CollectAndCompare(f.Collector("x"), strings.NewReader(
			"# HELP x_git_info Always 1. The label is the version of git.\n# TYPE x_git_info gauge\nx_git_info{version=\"3.0.1\"} 1\n")))
		require.Equal(t, warned, strings.Contains(log.String(), "collisions"), build)
		f.Close()
	}
	_, err = gitfetch.New(t.Context(), gitfetch.Config{MaxPackBytes: -1, MaxChildren: -1, MaxFetches: -1})
	require.ErrorIs(t, err, gitfetch.ErrConfig)
	for _, field := range []string{"Dialer", "MaxPackBytes", "MaxChildren", "MaxFetches"} {
		require.ErrorContains(t, err, field)
	}
}

// Repositories with different object formats cannot share objects.
func TestPromiseP35_OtherFormatRefused(t *testing.T) {
	there, here := bare(t, nip34.SHA256), bare(t, nip34.SHA1)
	ids := history(t, there, "main", 1)
	o := serve(t, there, nil)
	f := fetcher(t)
	require.ErrorIs(t, attempt(t.Context(), f, here, o.clone(t), ids[0]), gitfetch.ErrFormat)
}
