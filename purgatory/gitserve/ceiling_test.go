package gitserve

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// One owner could fill the disk of the server, as could all of them together: nothing
// bounded what repositories take up.
func TestRepositoriesHaveACeiling(t *testing.T) {
	racetest.Amounts(t)
	const mib = 1 << 20
	for name, cfg := range map[string]RepositoriesConfig{"owner": {MaxOwnerBytes: 4 * mib}, "all": {MaxBytes: 4 * mib}} {
		t.Run(name, func(t *testing.T) {
			want := map[string]error{"owner": errOwnerFull, "all": errFull}[name].Error()
			r := rigWith(t, cfg, Config{})
			other := relaytest.NewKey("other")
			require.NoError(t, r.repos.Create(t.Context(), other.Ref("x"), nip34.SHA1))
			push := func(url, text string) (string, error) {
				tip, _ := r.file(t, "f", text)
				r.says(map[string]string{"refs/heads/main": tip})
				return try(t, r.work, "push", "-f", url, "main")
			}
			out, err := push(r.repo(), random(t, 3*mib))
			require.NoError(t, err, out)
			before := files(t, r.dir())
			out, err = push(r.repo(), random(t, 2*mib))
			require.Error(t, err)
			require.Contains(t, out, want)
			require.Equal(t, before, files(t, r.dir()))
			out, err = push(r.repo(), "what fits is taken")
			require.Error(t, err, "what it builds on was not: %s", out)

			git(t, r.work, "reset", "-q", "--hard", "HEAD~2")
			out, err = push(r.repo(), "what fits is taken")
			require.NoError(t, err, out)
			out, err = push(r.url+"/"+other.Npub()+"/x.git", "with 3 MiB of history")
			require.Equal(t, name == "owner", err == nil, out)

			// What has gone is free.
			require.NoError(t, os.RemoveAll(filepath.Join(r.dir(), "objects", "pack")))
			require.NoError(t, os.Mkdir(filepath.Join(r.dir(), "objects", "pack"), 0o700))
			l, err := r.repos.ceiling.begin(t.Context(), owner.Ref("x"), false, nothing)
			require.NoError(t, err)
			require.NoError(t, l.charge(mib))
			l.end()
		})
	}
}

// Pull requests of strangers used up what the owner may have: a stranger could have his
// pushes refused. They have as much room of their own, and what is merged is the owner's.
func TestPullRequestsLeaveTheOwnersRoom(t *testing.T) {
	const mib = 1 << 20
	r := rigWith(t, RepositoriesConfig{MaxOwnerBytes: 4 * mib}, Config{})
	pull := func(n int) (string, error) {
		git(t, r.work, "switch", "-q", "-C", "theirs", r.tip)
		tip, _ := r.file(t, fmt.Sprint("theirs", n), random(t, 1500<<10))
		r.tips[stranger(n)] = tip
		return try(t, r.work, "push", r.repo(), "theirs:refs/nostr/"+stranger(n))
	}
	for n := range 2 {
		out, err := pull(n)
		require.NoError(t, err, out)
	}
	out, err := pull(2)
	require.Error(t, err)
	require.Contains(t, out, errPullsFull.Error())
	out, err = try(t, r.work, "push", r.repo(), "theirs:refs/nostr/"+stranger(2), "main:refs/nostr/"+stranger(9))
	require.Error(t, err, "nor beside one whose event is not here")
	require.Contains(t, out, errPullsFull.Error())
	push := func(size int) (string, error) {
		git(t, r.work, "switch", "-q", "main")
		tip, _ := r.file(t, "f", random(t, size))
		r.says(map[string]string{"refs/heads/main": tip})
		return try(t, r.work, "push", "-f", r.repo(), "main")
	}
	out, err = push(3 * mib)
	require.NoError(t, err, out)
	out, err = push(3 * mib)
	require.Error(t, err, "but no more than that")
	require.Contains(t, out, errOwnerFull.Error())
}

// Pull requests that git could not weigh in time, or with the memory that it may have, had
// everything refused that was pushed to their owner, each time after all of that time.
func TestPullRequestsThatCanNotBeWeighedRefuseNothing(t *testing.T) {
	const mib = 1 << 20
	r := rigWith(t, RepositoriesConfig{MaxOwnerBytes: 4 * mib}, Config{})
	push := func(size int) {
		t.Helper()
		tip, _ := r.file(t, "f", random(t, size))
		r.says(map[string]string{"refs/heads/main": tip})
		out, err := try(t, r.work, "push", "-f", r.repo(), "main")
		require.NoError(t, err, out)
	}
	push(5 * mib / 2)
	n := 0
	weigh := r.repos.ceiling.weigh
	r.repos.ceiling.weigh = func(context.Context, string) (int64, error) {
		n++
		return 0, context.DeadlineExceeded
	}
	for range 3 {
		push(1000)
	}
	require.Equal(t, 1, n, "and not again at once")
	r.repos.ceiling.weigh = func(ctx context.Context, dir string) (int64, error) {
		n++
		return weigh(ctx, dir)
	}
	l, err := r.repos.ceiling.begin(t.Context(), owner.Ref("x"), false, nothing)
	require.NoError(t, err)
	l.end()
	require.Equal(t, 1, n)
	s := r.repos.ceiling.sizes[owner.PubKey().String()]
	s.tried = s.tried.Add(-sizeAge)
	r.repos.ceiling.sizes[owner.PubKey().String()] = s
	for range 3 {
		l, err := r.repos.ceiling.begin(t.Context(), owner.Ref("x"), false, nothing)
		require.NoError(t, err)
		l.end()
	}
	require.Equal(t, 2, n, "nor as long as nothing changes")
}

// To weigh pull requests took as long as it took, for who had hung up and for who holds the
// lock of a repository, even while the server was about to end.
func TestWhoWaitsForTheWeighingMayLeave(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		repos := newRepositories(t)
		x := owner.Ref("x")
		require.NoError(t, repos.Create(t.Context(), x, nip34.SHA1))
		folder := x.Owner.String()
		c := measuring(repos, RepositoriesConfig{MaxOwnerBytes: 1000})
		long := func(d time.Duration) func(context.Context, string) (int64, error) {
			return func(ctx context.Context, _ string) (int64, error) {
				select {
				case <-time.After(d):
					return 300, nil
				case <-ctx.Done():
					return 0, ctx.Err()
				}
			}
		}
		known := func() size {
			c.mu.Lock()
			defer c.mu.Unlock()
			return c.sizes[folder]
		}
		ask := func(patience time.Duration) (took time.Duration) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			began := time.Now()
			c.mu.Lock()
			c.sizes[folder] = size{bytes: 600, measured: 600, theirs: 7, at: began.Add(time.Hour)}
			c.mu.Unlock()
			l, err := c.begin(ctx, x, false, nothing)
			require.NoError(t, err)
			l.end()
			return time.Since(began)
		}
		c.weigh = long(10 * time.Second)
		require.Equal(t, 10*time.Second, ask(time.Minute))
		require.EqualValues(t, 300, known().theirs)
		require.Equal(t, time.Second, ask(time.Second))
		require.EqualValues(t, 7, known().theirs)
		time.Sleep(9 * time.Second)
		synctest.Wait()
		require.EqualValues(t, 300, known().theirs, "it is for others as well")

		c.weigh = long(time.Hour)
		require.Equal(t, partMost, ask(time.Minute))
		require.EqualValues(t, 7, known().theirs)
		require.True(t, known().failed)

		began := time.Now()
		require.Zero(t, ask(0))
		c.tasks.close()
		require.Zero(t, time.Since(began), "the end of all is its end")
		require.Zero(t, ask(time.Minute), "nothing begins after that")
	})
}

// What is measured is what lies there, with what is about to come.
func TestCeilingMeasures(t *testing.T) {
	repos := newRepositories(t)
	a, b := relaytest.NewKey("a").Ref("x"), relaytest.NewKey("b").Ref("x")
	require.NoError(t, repos.Create(t.Context(), a, nip34.SHA1))
	require.NoError(t, repos.Create(t.Context(), b, nip34.SHA1))
	c := measuring(repos, RepositoriesConfig{MaxOwnerBytes: 10_000, MaxBytes: 15_000})
	begin := func(ref graspsync.RepoRef) (*levy, error) {
		l, err := c.begin(t.Context(), ref, false, nothing)
		c.tasks.wg.Wait() // until all is measured, if it is
		return l, err
	}
	first, err := begin(a)
	require.NoError(t, err)
	empty := c.sizes[a.Owner.String()].bytes
	require.Positive(t, empty)
	require.Less(t, empty, int64(1000))
	require.NoError(t, first.charge(9000))
	second, err := begin(a)
	require.NoError(t, err)
	require.ErrorIs(t, second.charge(1000), errOwnerFull)
	second.end()
	other, err := begin(b)
	require.NoError(t, err)
	require.ErrorIs(t, other.charge(6000), errFull)
	other.end()
	require.NoError(t, os.WriteFile(filepath.Join(repos.dir, filepath.FromSlash(hashed(a)), "objects", "pack", "p"), make([]byte, 9000), 0o600))
	first.end()
	first.end()
	_, err = begin(a)
	require.NoError(t, err)
	require.Equal(t, empty+9000, c.sizes[a.Owner.String()].bytes)
	_, err = begin(a)
	require.NoError(t, err)
	require.NoError(t, repos.Remove(t.Context(), b))
	c.walked = time.Time{}
	_, err = begin(a)
	require.NoError(t, err)
	require.Equal(t, empty+9000, c.sum)
	require.Len(t, c.sizes, 1)

	none, err := measuring(repos, RepositoriesConfig{}).begin(t.Context(), a, false, nothing)
	require.NoError(t, err)
	require.NoError(t, none.charge(1<<60))
	none.end()
}

// What an owner has was measured while a push ended, and what that had brought did not count
// for a minute.
func TestMeasuredWhileAPushEnds(t *testing.T) {
	r := rigWith(t, RepositoriesConfig{MaxOwnerBytes: 1000}, Config{})
	c, folder := measuring(r.repos, RepositoriesConfig{MaxOwnerBytes: 1000}), owner.Ref("x").Owner.String()
	was := c.sizes[folder].ends
	l := &levy{c: c, ref: owner.Ref("x")}
	require.NoError(t, l.charge(100))
	l.end()
	c.found(folder, was, 10, 10, time.Now())
	require.NoError(t, c.measure(t.Context(), folder, time.Now()))
	measured := c.sizes[folder].bytes
	require.Greater(t, measured, int64(10), "it is measured again")
	c.found(folder, was, 10, 10, time.Now())
	require.Equal(t, measured, c.sizes[folder].bytes, "what was measured before that comes too late")
	require.Equal(t, c.sizes[folder].disk, c.sum)
}

// What is fetched has no more room than what is pushed, and says so.
func TestWhatIsFetchedIsBoundedAsWell(t *testing.T) {
	const mib = 1 << 20
	for name, cfg := range map[string]RepositoriesConfig{"owner": {MaxOwnerBytes: 4 * mib}, "all": {MaxBytes: 4 * mib}, "none": {}} {
		t.Run(name, func(t *testing.T) {
			r := rigWith(t, cfg, Config{})
			ref := owner.Ref("x")
			reserve := func(pulls bool, bytes int64) error {
				done, err := r.repos.Reserve(t.Context(), ref, pulls, bytes, nothing)
				if err == nil {
					done()
				}
				return err
			}
			require.NoError(t, reserve(false, 0))
			require.NoError(t, reserve(false, 3*mib))
			require.NoError(t, reserve(false, 3*mib), "the first has not come")
			if name == "none" {
				require.NoError(t, reserve(false, 1<<50))
				return
			}
			require.ErrorIs(t, reserve(false, 5*mib), purgatory.ErrFull)
			done, err := r.repos.Reserve(t.Context(), ref, false, 3*mib, nothing)
			require.NoError(t, err)
			require.ErrorIs(t, reserve(false, 2*mib), purgatory.ErrFull, "while that comes")
			pack := filepath.Join(r.dir(), "objects", "pack", "pack-came.pack")
			require.NoError(t, os.WriteFile(pack, make([]byte, 4*mib), 0o600))
			done()
			require.ErrorIs(t, reserve(false, 0), purgatory.ErrFull)
			require.Equal(t, name == "owner", reserve(true, mib) == nil, "pull requests have a room of their own")
		})
	}
}

// What was being fetched, and what git was about to write anew, counted for the owner: his
// pushes were refused for it. And a pack that many repositories share counted for each of
// them: anybody who has more of them made filled the server without a byte.
func TestWhatTakesNoRoomDoesNotCount(t *testing.T) {
	const mib = 1 << 20
	r := rigWith(t, RepositoriesConfig{MaxOwnerBytes: 4 * mib, MaxBytes: 20 * mib}, Config{})
	for _, name := range []string{"graspsync-quarantine-1-1/pack/pack-1.pack", "objects/pack/tmp_pack_AbCdEf"} {
		path := filepath.Join(r.dir(), filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, make([]byte, 3*mib), 0o600))
	}
	pack := filepath.Join(r.dir(), "objects", "pack", "pack-own.pack")
	require.NoError(t, os.WriteFile(pack, make([]byte, 3*mib), 0o600))
	for i := range 20 {
		fork := relaytest.NewKey(fmt.Sprint("fork", i)).Ref("x")
		require.NoError(t, r.repos.Create(t.Context(), fork, nip34.SHA1))
		require.NoError(t, os.Link(pack, filepath.Join(r.repos.dir, filepath.FromSlash(hashed(fork)), "objects", "pack", "pack-own.pack")))
	}
	c := r.repos.ceiling
	select {
	case c.walking <- struct{}{}:
		c.walk(t.Context())
	default:
		require.Fail(t, "nobody else measures")
	}
	c.mu.Lock()
	sum, own := c.sum, c.sizes[owner.PubKey().String()].own(c.owner)
	c.mu.Unlock()
	t.Logf("all: %.1f MiB, the owner: %.1f MiB", float64(sum)/mib, float64(own)/mib)
	require.Less(t, sum, int64(10*mib), "all that lies on the disk")
	require.Less(t, own, int64(4*mib))
	done, err := r.repos.Reserve(t.Context(), owner.Ref("x"), false, mib/2, nothing)
	require.NoError(t, err)
	done()
}
