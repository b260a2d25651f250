package gitserve_test

import (
	"bufio"
	"bytes"
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/gittest"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/gitserve"
)

// stranger returns the id of an event that is not stored.
func stranger(n int) string { return fmt.Sprintf("%064x", n+1) }

func eventID(t testing.TB, s string) graspsync.EventID {
	t.Helper()
	id, err := graspsync.ParseEventID(s)
	require.NoError(t, err)
	return id
}

// byHeader reads the client's name from a header.
func byHeader(r *http.Request) string { return r.Header.Get("X-Client") }

// file commits a file and returns the ids of the commit and the blob.
func (r *rig) file(t *testing.T, name, text string) (commit, blob string) {
	require.NoError(t, os.WriteFile(filepath.Join(r.work, name), []byte(text), 0o600))
	git(t, r.work, "add", name)
	git(t, r.work, "commit", "-q", "-m", name)
	return git(t, r.work, "rev-parse", "HEAD"), git(t, r.work, "rev-parse", "HEAD:"+name)
}

// pushAs pushes the checked out commit for events, as a client.
func (r *rig) pushAs(t *testing.T, client string, args ...string) (string, error) {
	t.Helper()
	return try(t, r.work, append([]string{"-c", "http.extraHeader=X-Client: " + client, "push", r.repo()}, args...)...)
}

// downloads reports whether a client can fetch an object by id.
func (r *rig) downloads(t *testing.T, id string) bool {
	dir := t.TempDir()
	git(t, dir, "init", "-q")
	_, err := try(t, dir, "fetch", "-q", r.repo(), id)
	return err == nil
}

// lies returns the staged and temporary folders.
func lies(t testing.TB, dir string) (out []string) {
	t.Helper()
	for _, d := range []string{area, incoming} {
		entries, err := os.ReadDir(filepath.Join(dir, d))
		require.NoError(t, err)
		for _, e := range entries {
			out = append(out, d+"/"+e.Name())
		}
	}
	return out
}

// Data pushed for an unknown event was part of the repository, was served by id, and stayed
// forever.
func TestUploadWithoutEventIsNotServedAndGoes(t *testing.T) {
	r := rigWith(t, gitserve.RepositoriesConfig{StageHold: 8 * time.Second}, gitserve.Config{})
	r.says(map[string]string{"refs/heads/main": r.tip})
	git(t, r.work, "push", "-q", r.repo(), "main")
	before := files(t, r.dir())
	commit, blob := r.file(t, "secret", strings.Repeat("a leaked secret", 1000))
	out, err := r.pushAs(t, "", "main:refs/nostr/"+stranger(1))
	require.NoError(t, err, out)
	require.Contains(t, out, "until the event arrives")
	uploads := r.repos.Staged(owner.Ref("x"), eventID(t, stranger(1)))
	require.Len(t, uploads, 1)
	require.Equal(t, commit, uploads[0].Tip.String())
	require.Equal(t, before, files(t, r.dir()), "nothing of it is in the repository")
	require.NotContains(t, r.has(t), "nostr")
	for _, id := range []string{commit, blob} {
		require.False(t, r.downloads(t, id), "while it is staged")
	}
	require.Eventually(t, func() bool { return len(lies(t, r.repos.Dir())) == 0 }, time.Minute, 20*time.Millisecond)
	require.Empty(t, r.repos.Staged(owner.Ref("x"), eventID(t, stranger(1))))
	require.False(t, r.downloads(t, blob), "afterwards")
	require.Equal(t, before, files(t, r.dir()))
	require.Zero(t, stagedBytes(t, r.repos))
	require.NoError(t, testutil.CollectAndCompare(r.repos.Staging().Collector("x"), strings.NewReader(`
# HELP x_staging_bytes Bytes of pushes whose events are not stored.
# TYPE x_staging_bytes gauge
x_staging_bytes 0
# HELP x_staging_ended_total Total pushes without stored events that ended, by reason.
# TYPE x_staging_ended_total counter
x_staging_ended_total{reason="displaced"} 0
x_staging_ended_total{reason="event"} 0
x_staging_ended_total{reason="expired"} 1
x_staging_ended_total{reason="replaced"} 0
x_staging_ended_total{reason="repository"} 0
x_staging_ended_total{reason="unreadable"} 0
# HELP x_staging_refused_total Total pushes without stored events that were refused, by the exhausted limit.
# TYPE x_staging_refused_total counter
x_staging_refused_total{reason="all"} 0
x_staging_refused_total{reason="client"} 0
x_staging_refused_total{reason="event"} 0
# HELP x_staging_uploads Number of pushes whose events are not stored.
# TYPE x_staging_uploads gauge
x_staging_uploads 0
`)))
}

// One push may contain an allowed branch and unknown events. Both succeed, and the repository
// contains nothing of the events.
func TestMixedPush(t *testing.T) {
	for _, atomic := range []string{"--no-atomic", "--atomic"} {
		t.Run(atomic, func(t *testing.T) {
			r := newRig(t, gitserve.Config{})
			mine, _ := r.file(t, "mine", "mine")
			git(t, r.work, "switch", "-qc", "theirs")
			theirs, blob := r.file(t, "theirs", "theirs")
			r.says(map[string]string{"refs/heads/main": mine})
			out, err := r.pushAs(t, "", atomic, "main", "theirs:refs/nostr/"+stranger(1))
			require.NoError(t, err, out)
			require.Equal(t, mine+"\tHEAD\n"+mine+"\trefs/heads/main", r.has(t))
			require.Equal(t, []string{"x refs/heads/main"}, r.pushed)
			require.Equal(t, r.pushed, r.before)
			require.Len(t, r.repos.Staged(owner.Ref("x"), eventID(t, stranger(1))), 1)
			for _, id := range []string{theirs, blob} {
				_, err := try(t, r.dir(), "cat-file", "-e", id)
				require.Error(t, err)
			}
			git(t, r.dir(), "fsck", "--strict")

			// The push deletes a branch and stages data, so there is nothing to pack.
			r.says(map[string]string{})
			out, err = r.pushAs(t, "", atomic, ":main", "theirs:refs/nostr/"+stranger(2))
			require.NoError(t, err, out)
			require.Empty(t, r.has(t))
			require.Len(t, r.repos.Staged(owner.Ref("x"), eventID(t, stranger(2))), 1)
		})
	}
}

// rawPush sends a push with commands that git would not send.
func (r *rig) rawPush(t *testing.T, revisions []string, commands ...string) string {
	t.Helper()
	resp, text := r.do(t, http.MethodPost, "/"+owner.Npub()+"/x.git/git-receive-pack", packet(commands...)+gittest.Pack(t, r.work, revisions...))
	require.Equal(t, http.StatusOK, resp.StatusCode, text)
	reported(t, resp.Header)
	return text
}

// A ref whose objects are missing does not affect the other refs of a push.
func TestMissingObjectsOfOneRef(t *testing.T) {
	r := newRig(t, gitserve.Config{})
	absent := strings.Repeat("1", 40)
	r.says(map[string]string{"refs/heads/main": r.tip, "refs/heads/absent": absent})
	said := r.rawPush(t, []string{r.tip}, null+" "+r.tip+" refs/heads/main\x00report-status", null+" "+absent+" refs/heads/absent")
	require.Contains(t, said, "ok refs/heads/main\n")
	require.Contains(t, said, "ng refs/heads/absent missing necessary objects\n")
	require.Contains(t, r.has(t), r.tip+"\trefs/heads/main")
}

// A refused or incomplete push leaves nothing.
func TestUploadThatIsRefused(t *testing.T) {
	r := newRig(t, gitserve.Config{})
	first := r.tip
	second, _ := r.file(t, "f", "text")
	text := r.rawPush(t, []string{second, "^" + first}, null+" "+second+" refs/nostr/"+stranger(1)+"\x00report-status")
	require.Contains(t, text, "ng refs/nostr/"+stranger(1), "half of the objects")
	out, err := r.pushAs(t, "", "--atomic", "main", "main:refs/nostr/"+stranger(1))
	require.Error(t, err)
	require.Contains(t, out, refusedNoState)
	require.Contains(t, out, refusedOther)
	require.Empty(t, lies(t, r.repos.Dir()))
	require.Zero(t, stagedBytes(t, r.repos))
}

// The event may arrive during the push, which then creates the ref.
func TestEventComesWhileItsDataDoes(t *testing.T) {
	r := newRig(t, gitserve.Config{})
	id := stranger(1)
	r.on("tip", 2, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.tips[id] = r.tip
	})
	out, err := r.pushAs(t, "", "main:refs/nostr/"+id)
	require.NoError(t, err, out)
	require.Contains(t, r.has(t), "refs/nostr/"+id)
	require.Empty(t, lies(t, r.repos.Dir()))
}

// A user who saw an event elsewhere could push another commit for it and thereby block the author's
// push. Now each push is stored separately, and the event selects the right one.
func TestUploadsForOneEventDoNotExcludeOneAnother(t *testing.T) {
	r := newRig(t, gitserve.Config{Client: byHeader})
	id := stranger(1)
	out, err := r.pushAs(t, "eve", "main:refs/nostr/"+id)
	require.NoError(t, err, out)
	r.file(t, "mine", "mine")
	git(t, r.work, "switch", "-q", "--orphan", "other")
	mine := r.commit(t, "nothing in common")
	out, err = r.pushAs(t, "alice", "other:refs/nostr/"+id)
	require.NoError(t, err, out)
	uploads := r.repos.Staged(owner.Ref("x"), eventID(t, id))
	require.Len(t, uploads, 2)
	require.Equal(t, mine, uploads[1].Tip.String())

	// Her second push replaces her first.
	mine = r.commit(t, "again")
	out, err = r.pushAs(t, "alice", "other:refs/nostr/"+id)
	require.NoError(t, err, out)
	uploads = r.repos.Staged(owner.Ref("x"), eventID(t, id))
	require.Len(t, uploads, 2)
	require.Equal(t, mine, uploads[1].Tip.String())

	// The number of pushes is limited, and a refusal contains the remedy.
	for i := range maxPerEvent - 2 {
		out, err = r.pushAs(t, fmt.Sprint("eve", i), "main:refs/nostr/"+id)
		require.NoError(t, err, out)
	}
	out, err = r.pushAs(t, "bob", "main:refs/nostr/"+id)
	require.Error(t, err)
	require.Contains(t, out, "publish the event first")
	out, err = r.pushAs(t, "alice", "-f", "main:refs/nostr/"+id)
	require.NoError(t, err, out)
	require.Len(t, lies(t, r.repos.Dir()), maxPerEvent)
	r.repos.Unstage(owner.Ref("x"), eventID(t, id))
	require.Empty(t, lies(t, r.repos.Dir()))
}

// A push beyond any quota is refused, with the remedy. Other staged data stays, and other clients
// can push.
func TestQuotasOfStagedData(t *testing.T) {
	const mib = 1 << 20
	for name, cfg := range map[string]gitserve.RepositoriesConfig{
		"client": gitserve.RepositoriesConfig{}.With(gitserve.FixedFolder{MaxStagedPerClient: mib}),
		"all":    gitserve.RepositoriesConfig{MaxStaged: mib}.With(gitserve.FixedFolder{MaxStagedPerClient: 4 * mib}),
	} {
		t.Run(name, func(t *testing.T) {
			r := rigWith(t, cfg, gitserve.Config{Client: byHeader})
			out, err := r.pushAs(t, "alice", "main:refs/nostr/"+stranger(1))
			require.NoError(t, err, out)
			commit, _ := r.file(t, "large", random(t, 2*mib))
			out, err = r.pushAs(t, "eve", "main:refs/nostr/"+stranger(3))
			require.Error(t, err)
			require.Contains(t, out, "publish the event first")
			require.Len(t, lies(t, r.repos.Dir()), 1)
			require.Equal(t, leastStaged, stagedBytes(t, r.repos), "what she took is free again")
			require.Equal(t, 1, stagingMetric(t, r.repos, "refused_total", name))
			r.tips[stranger(3)] = commit
			out, err = r.pushAs(t, "eve", "main:refs/nostr/"+stranger(3))
			require.NoError(t, err, "and it does help: %s", out)
			out, err = r.pushAs(t, "bob", "HEAD~:refs/nostr/"+stranger(4))
			require.NoError(t, err, out)
		})
	}
}

// A user with many addresses in one network filled the staging area permanently, so other clients
// could not push.
func TestManyAddressesOfANetworkKeepNobodyOut(t *testing.T) {
	const places = 10
	cfg := gitserve.RepositoriesConfig{MaxStaged: places * leastStaged}.With(gitserve.FixedFolder{MaxStagedPerClient: 1 << 30})
	r := rigWith(t, cfg, gitserve.Config{Client: byHeader})
	attack := func(from, n int) (refused int) {
		for i := range n {
			if _, err := r.pushAs(t, fmt.Sprint("203.0.113.", from+i), "main:refs/nostr/"+stranger(from+i)); err != nil {
				refused++
			}
		}
		return refused
	}
	require.Zero(t, attack(0, places+4), "its oldest uploads yield to its newer ones")
	r.file(t, "change", random(t, 100<<10))
	for i := range 2 { // more than one upload of each address
		out, err := r.pushAs(t, fmt.Sprint("198.51.100.", i), "main:refs/nostr/"+stranger(100+i))
		require.NoError(t, err, out)
		require.LessOrEqual(t, stagedBytes(t, r.repos), places*leastStaged)
	}
	require.Zero(t, attack(20, 5))
	for i := range 2 {
		require.Len(t, r.repos.Staged(owner.Ref("x"), eventID(t, stranger(100+i))), 1)
	}
	require.Len(t, lies(t, r.repos.Dir()), stagingMetric(t, r.repos, "uploads"), "what was displaced is gone")
	require.Positive(t, stagingMetric(t, r.repos, "ended_total", "displaced"))
}

// random returns an incompressible text.
func random(t *testing.T, n int) string {
	f, err := os.Open("/dev/urandom")
	require.NoError(t, err)
	defer f.Close()
	var b bytes.Buffer
	_, err = io.CopyN(&b, f, int64(n))
	require.NoError(t, err)
	return b.String()
}

// copyTree copies a folder as a crash would leave it.
func copyTree(t *testing.T, from string) string {
	to := filepath.Join(t.TempDir(), "git")
	out, err := exec.CommandContext(t.Context(), "cp", "-a", from, to).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return to
}

// After kill -9 at any point, a push is either completely stored until it expires, or leaves
// nothing.
func TestKilledWhileSomethingIsStaged(t *testing.T) {
	r := newRig(t, gitserve.Config{Client: byHeader})
	var snapshots []string
	began := time.Now()
	snap := func() { snapshots = append(snapshots, copyTree(t, r.repos.Dir())) }
	r.repos.SetFolder(func(root gitserve.Folder) gitserve.Folder { return snapped{root, snap} })
	r.repos.SetFlush(func(f *os.File) error {
		snap()
		return f.Sync()
	})
	id := eventID(t, stranger(1))
	for range 2 { // the second replaces the first
		r.file(t, "f", random(t, 100))
		out, err := r.pushAs(t, "alice", "main:refs/nostr/"+stranger(1))
		require.NoError(t, err, out)
	}
	r.repos.Unstage(owner.Ref("x"), id)
	seen := make(map[int]bool)
	for i, dir := range snapshots {
		repos, err := gitserve.Open(dir, gitserve.RepositoriesConfig{})
		require.NoError(t, err)
		uploads := repos.Staged(owner.Ref("x"), id)
		seen[len(uploads)] = true
		require.Len(t, lies(t, dir), len(uploads), "step %d", i)
		for _, u := range uploads {
			packs, err := filepath.Glob(filepath.Join(u.Dir, "pack", "*.idx"))
			require.NoError(t, err)
			require.Len(t, packs, 1)
			git(t, r.work, "verify-pack", packs[0])
		}
		require.NoError(t, repos.Close())
		repos, err = gitserve.Open(dir, gitserve.RepositoriesConfig{StageHold: time.Since(began) + 200*time.Millisecond})
		require.NoError(t, err)
		require.Eventually(t, func() bool { return len(lies(t, dir)) == 0 }, time.Minute, 10*time.Millisecond, "step %d", i)
		require.NoError(t, repos.Close())
	}
	require.True(t, seen[0] && seen[1], "%v", seen)
}

// snapped is a folder that is copied before each rename.
type snapped struct {
	gitserve.Folder
	snap func()
}

func (s snapped) Rename(from, to string) error {
	err := s.Folder.Rename(from, to)
	s.snap()
	return err
}

// The server is killed while git indexes a push, which leaves nothing, and after a push was
// confirmed, which is then stored until it expires.
func TestServerKilledWhileSomethingIsStaged(t *testing.T) {
	real, err := exec.LookPath("git")
	require.NoError(t, err)
	for name, slow := range map[string]bool{"in the midst of it": true, "after it": false} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			shim, began := filepath.Join(dir, "git"), filepath.Join(dir, "began")
			script := fmt.Sprintf("#!/bin/sh\nexec %s \"$@\"\n", real)
			if slow {
				script = fmt.Sprintf(`#!/bin/sh
case "$*" in
*index-pack*) echo x > $GIT_OBJECT_DIRECTORY/pack/tmp_pack_1; echo x > %s; sleep 3; %s "$@"; exit;;
esac
exec %s "$@"
`, began, real, real)
			}
			require.NoError(t, os.WriteFile(shim, []byte(script), 0o700))
			folder, work := filepath.Join(dir, "git-data"), t.TempDir()
			repos, err := gitserve.Open(folder, gitserve.RepositoriesConfig{})
			require.NoError(t, err)
			require.NoError(t, repos.Create(t.Context(), owner.Ref("x"), nip34.SHA1))
			require.NoError(t, repos.Close())
			git(t, work, "init", "-q", "-b", "main")
			git(t, work, "commit", "-q", "--allow-empty", "-m", "x")
			before := files(t, filepath.Join(folder, hashed(owner.Ref("x"))))

			server := exec.Command(os.Args[0])
			server.Env = append(os.Environ(), envServe+"="+folder, envGit+"="+shim)
			out, err := server.StdoutPipe()
			require.NoError(t, err)
			require.NoError(t, server.Start())
			url, err := bufio.NewReader(out).ReadString('\n')
			require.NoError(t, err)
			pushed := make(chan error)
			go func() {
				_, err := try(t, work, "push", strings.TrimSpace(url)+"/"+owner.Npub()+"/x.git", "main:refs/nostr/"+stranger(1))
				pushed <- err
			}()
			if slow {
				require.Eventually(t, func() bool {
					_, err := os.Stat(began)
					return err == nil
				}, time.Minute, time.Millisecond)
			} else {
				require.NoError(t, <-pushed)
			}
			require.NoError(t, server.Process.Kill())
			_ = server.Wait() // it was killed
			if slow {
				require.Error(t, <-pushed)
			}
			repos, err = gitserve.Open(folder, gitserve.RepositoriesConfig{})
			require.NoError(t, err)
			defer func() { require.NoError(t, repos.Close()) }()
			require.Equal(t, before, files(t, filepath.Join(folder, hashed(owner.Ref("x")))))
			if slow {
				require.Empty(t, lies(t, folder))
				return
			}
			require.Len(t, repos.Staged(owner.Ref("x"), eventID(t, stranger(1))), 1)
			require.NoError(t, repos.Close())
			repos, err = gitserve.Open(folder, gitserve.RepositoriesConfig{StageHold: time.Millisecond})
			require.NoError(t, err)
			require.Empty(t, lies(t, folder))
		})
	}
}

// Staged data survives a restart with its remaining time and its charges.
func TestStagedSurvivesARestart(t *testing.T) {
	r := newRig(t, gitserve.Config{Client: byHeader})
	out, err := r.pushAs(t, "eve", "main:refs/nostr/"+stranger(1), "main:refs/nostr/"+stranger(2))
	require.NoError(t, err, out)
	dir := copyTree(t, r.repos.Dir())
	repos, err := gitserve.Open(dir, gitserve.RepositoriesConfig{})
	require.NoError(t, err)
	require.Equal(t, 2*leastStaged, stagedBytes(t, repos))
	require.NoError(t, repos.Close())
	repos, err = gitserve.Open(dir, gitserve.RepositoriesConfig{}.With(gitserve.FixedFolder{MaxStagedPerClient: 1}))
	require.NoError(t, err, "the limits are those of the operator now")
	require.Empty(t, lies(t, dir))
	require.Equal(t, 1, stagingMetric(t, repos, "ended_total", "displaced"))
	require.NoError(t, repos.Close())

	// Unreadable uploads, and uploads to missing repositories, are removed.
	for _, broken := range []func(dir string) error{
		func(dir string) error { return os.Truncate(filepath.Join(dir, noteName), 10) },
		func(dir string) error { return os.Remove(filepath.Join(dir, noteName)) },
		func(dir string) error {
			return os.RemoveAll(filepath.Join(filepath.Dir(filepath.Dir(dir)), filepath.FromSlash(hashed(owner.Ref("x")))))
		},
	} {
		dir := copyTree(t, r.repos.Dir())
		require.NoError(t, broken(filepath.Join(dir, lies(t, dir)[0])))
		repos, err := gitserve.Open(dir, gitserve.RepositoriesConfig{})
		require.NoError(t, err)
		require.Empty(t, lies(t, dir))
		require.Zero(t, stagedBytes(t, repos))
		require.NoError(t, repos.Close())
	}
}

// strangers returns different packs of 30 clients.
func (r *rig) strangers(t *testing.T) (bodies []string) {
	t.Helper()
	for range 30 {
		commit, _ := r.file(t, "f", random(t, 2000))
		bodies = append(bodies, commit+gittest.Pack(t, r.work, commit))
	}
	return bodies
}

// upload pushes a pack for an event as its client and returns the answer.
func (r *rig) upload(ctx context.Context, body string, client, event int) string {
	text := packet(null+" "+body[:40]+" refs/nostr/"+stranger(event)+"\x00report-status") + body[40:]
	req := httptest.NewRequestWithContext(ctx, http.MethodPost, "/"+owner.Npub()+"/x.git/git-receive-pack", strings.NewReader(text))
	req.Header.Set("X-Client", fmt.Sprint(client))
	answer := httptest.NewRecorder()
	r.git.ServeHTTP(answer, req)
	return answer.Body.String()
}

var full = flag.Bool("full", false, "as many uploads as there may be in an hour; takes minutes")

// 300 pushes for unknown events, or 10,000 with -full, by 30 concurrent clients. After their time
// no byte, ref or folder is left.
func TestUploadsLeaveNothing(t *testing.T) {
	racetest.Amounts(t)
	each := 10
	if *full {
		each = 334
	}
	r := rigWith(t, gitserve.RepositoriesConfig{StageHold: time.Hour}, gitserve.Config{Client: byHeader}.With(gitserve.Fixed{Wait: time.Minute}))
	before := files(t, r.dir())
	var wg sync.WaitGroup
	for i, body := range r.strangers(t) {
		wg.Go(func() {
			for n := range each {
				if said := r.upload(t.Context(), body, i, each*i+n); !strings.Contains(said, "ok refs/nostr/") {
					t.Error(said)
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d uploads, %d folders, %d bytes", 30*each, len(lies(t, r.repos.Dir())), stagedBytes(t, r.repos))
	require.Len(t, lies(t, r.repos.Dir()), 30*each)
	require.Equal(t, before, files(t, r.dir()))
	dir := copyTree(t, r.repos.Dir())
	later, err := gitserve.Open(dir, gitserve.RepositoriesConfig{StageHold: 1})
	require.NoError(t, err)
	require.Empty(t, lies(t, dir))
	require.Zero(t, stagedBytes(t, later))
	require.NoError(t, later.Close())
	require.Empty(t, r.has(t))
	require.Equal(t, before, files(t, r.dir()))
}
