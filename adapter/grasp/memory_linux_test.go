package grasp_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/adapter/grasp"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// residentOfGit measures the memory of all git children in dir until most is called, which returns the
// maximum.
func residentOfGit(ctx context.Context, dir string) (most func() int64) {
	ctx, cancel := context.WithCancel(ctx)
	var peak atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			sum := int64(0)
			files, _ := filepath.Glob("/proc/[0-9]*/environ")
			for _, file := range files {
				environ, _ := os.ReadFile(file)
				at, _ := os.Readlink(filepath.Join(filepath.Dir(file), "cwd"))
				if !strings.HasPrefix(at, dir) || !bytes.Contains(environ, []byte("GIT_ALLOC_LIMIT=")) { // not set for git clients
					continue
				}
				status, _ := os.ReadFile(filepath.Join(filepath.Dir(file), "status"))
				for line := range strings.Lines(string(status)) {
					var kib int64
					if _, err := fmt.Sscanf(line, "VmRSS: %d", &kib); err == nil {
						sum += kib << 10
					}
				}
			}
			peak.Store(max(peak.Load(), sum))
			time.Sleep(5 * time.Millisecond)
		}
	})
	return func() int64 {
		cancel()
		wg.Wait()
		return peak.Load()
	}
}

// commitTree commits a folder with many files, which is small when it is packed.
func (r *rig) commitTree(work, blob string, from, files int, parent string) string {
	r.t.Helper()
	id, err := hex.DecodeString(blob)
	require.NoError(r.t, err)
	var tree []byte
	for i := range files {
		tree = append(fmt.Appendf(tree, "100644 f%08d\x00", from+i), id...)
	}
	require.NoError(r.t, os.WriteFile(filepath.Join(work, "tree"), tree, 0o600))
	return r.git(work, "commit-tree", "-m", "many", r.git(work, "hash-object", "-t", "tree", "-w", "tree"), "-p", parent)
}

// readClone reads the answer to a clone. If it is complete, its last packet is empty.
func readClone(t *testing.T, url, tip, client string) (status int, last string) {
	want := "want " + tip + " side-band-64k\n"
	body := fmt.Sprintf("%04x%s00000009done\n", len(want)+4, want)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url+"/git-upload-pack", strings.NewReader(body))
	if !assert.NoError(t, err) {
		return 0, ""
	}
	req.Header.Set("X-Client", client)
	resp, err := http.DefaultClient.Do(req)
	if !assert.NoError(t, err) {
		return 0, ""
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	assert.NoError(t, err)
	return resp.StatusCode, string(text[max(0, len(text)-4):])
}

// Memory was limited only for each git child, so that 24 clones of a repository of 7 MB took more
// than 7 GB. All git children together now have a limit, and one address gets a quarter of it.
func TestCaseH1_MemoryOfAllGitChildren(t *testing.T) {
	racetest.Amounts(t)
	const mib, total, clones = 1 << 20, 256 << 20, 16
	r := unstarted(t)
	r.configure = func(_ *khatru.Relay, cfg *grasp.Config) {
		cfg.Repositories.MaxMemory = total
		cfg.Serve.Client = func(req *http.Request) string { return req.Header.Get("X-Client") }
	}
	r.start()
	defer r.stop()
	work := t.TempDir()
	r.git(work, "init", "-q", "-b", "main")
	first, blob := r.write(work, "readme", "text")
	serve := func(name, tip string) (url string) {
		owner := relaytest.NewKey(name)
		r.git(work, "update-ref", "refs/heads/main", tip)
		require.Empty(t, r.publish(owner.Hosted(nostr.Now()-100, "repo", "ws://"+r.addr),
			owner.State(nostr.Now()-90, "repo", map[string]string{"refs/heads/main": tip}, "main")))
		url = owner.CloneURL("ws://"+r.addr, "repo")
		r.git(work, "-c", "pack.window=0", "push", "-q", url, "main")
		return url
	}
	small := serve("small", first)
	tip := first
	for i := range 5 { // 2.5 MB each when unpacked
		tip = r.commitTree(work, blob, i, 70_000, tip)
	}
	heavy := serve("heavy", tip)
	bomb := serve("bomb", r.commitTree(work, blob, 0, 500_000, first)) // exceeds the memory limit of a clone, but not of a push
	clone := func(url, client string) (string, error) {
		return r.try(t.TempDir(), "-c", "http.extraHeader=X-Client: "+client, "clone", "-q", "--bare", url, "c")
	}
	list := func(client string) {
		t.Helper()
		began := time.Now()
		require.NotEmpty(t, r.git(work, "-c", "http.extraHeader=X-Client: "+client, "ls-remote", small))
		t.Logf("ls-remote of another repository: %v", time.Since(began).Round(time.Millisecond))
	}
	for name, client := range map[string]func(int) string{
		"one address":       func(int) string { return "192.0.2.7" },
		"several addresses": func(i int) string { return fmt.Sprintf("198.51.%d.7", i%12) },
		"unknown addresses": func(int) string { return "" },
	} {
		t.Run(name, func(t *testing.T) {
			most := residentOfGit(t.Context(), r.dir)
			var wg sync.WaitGroup
			var whole, refused atomic.Int64
			for i := range clones {
				wg.Go(func() {
					switch status, end := readClone(t, heavy, tip, client(i)); {
					case status == http.StatusOK && end == "0000":
						whole.Add(1)
					case status == http.StatusServiceUnavailable:
						refused.Add(1)
					default:
						t.Errorf("a clone that was cut off: %d: %q", status, end)
					}
				})
			}
			list("203.0.113.9")
			if name == "one address" {
				_, err := clone(small, "203.0.113.9")
				require.NoError(t, err, "others have their part")
			}
			wg.Wait()
			peak := most()
			t.Logf("%d clones whole, %d refused; at most %d MiB in git children", whole.Load(), refused.Load(), peak/mib)
			require.Positive(t, whole.Load())
			require.Less(t, peak, int64(total)/2, "more without the limit, from several addresses")
		})
	}
	out, err := clone(bomb, "192.0.2.7")
	require.Error(t, err)
	require.Regexp(t, "remote: |50[03]", out, "a clone that needs too much memory says so")
	list("192.0.2.7")
}
