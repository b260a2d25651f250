package gitserve

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// heavy is an owner's repository with so many bytes more, measured under a bound of 10,000.
func heavy(t *testing.T, bytes int) *ceiling {
	t.Helper()
	repos := newRepositories(t)
	x := owner.Ref("x")
	require.NoError(t, repos.Create(t.Context(), x, nip34.SHA1))
	pack := filepath.Join(repos.dir, filepath.FromSlash(hashed(x)), "objects", "pack", "p")
	require.NoError(t, os.WriteFile(pack, make([]byte, bytes), 0o600))
	return measuring(repos, RepositoriesConfig{MaxOwnerBytes: 10_000})
}

// push has somebody push nothing yet, and returns how long that took.
func (c *ceiling) push(t *testing.T, pulls bool) (took time.Duration, err error) {
	t.Helper()
	began := time.Now()
	l, err := c.begin(t.Context(), owner.Ref("x"), pulls, nothing)
	l.end()
	return time.Since(began), err
}

// Who pushed while pull requests were being weighed was judged as if there were none: after a
// restart an owner was refused for what strangers had pushed.
func TestWhoPushesWhileItIsWeighedWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := heavy(t, 12_000)
		weighed := 0
		c.weigh = func(context.Context, string) (int64, error) {
			weighed++
			time.Sleep(5 * time.Second)
			return 9_000, nil
		}
		go func() { _, _ = c.push(t, false) }()
		time.Sleep(time.Second)
		took, err := c.push(t, false)
		require.NoError(t, err)
		require.Equal(t, 4*time.Second, took)
		require.Equal(t, 1, weighed)
	})
}

// Where they could never be weighed the owner was refused each time.
func TestNobodyIsRefusedForWhatCouldNeverBeWeighed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for bytes, full := range map[int]error{12_000: nil, 19_000: nil, 25_000: errOwnerFull} {
			c := heavy(t, bytes)
			c.weigh = func(ctx context.Context, _ string) (int64, error) {
				<-ctx.Done()
				return 0, ctx.Err()
			}
			for range 3 {
				_, err := c.push(t, false)
				require.ErrorIs(t, err, full, "%d: there is room for what both may have", bytes)
				time.Sleep(2 * time.Minute)
			}
		}
	})
}

// An older weighing that ended later took the place of a newer one.
func TestOneWeighingAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := heavy(t, 6_000)
		var under, tooMany atomic.Int32
		c.weigh = func(context.Context, string) (int64, error) {
			if under.Add(1) > 1 {
				tooMany.Add(1)
			}
			time.Sleep(15 * time.Second)
			under.Add(-1)
			return 0, nil
		}
		for range 5 {
			go func() { _, _ = c.push(t, true) }()
			time.Sleep(2 * time.Second)
		}
		time.Sleep(time.Minute)
		require.Zero(t, tooMany.Load())
	})
}

// unreadable is a folder of which a part can't be read.
type unreadable struct {
	folder
	part string
}

func (u unreadable) FS() fs.FS { return unreadableFS{u.folder.FS(), u.part} }

type unreadableFS struct {
	fs.FS
	part string
}

func (u unreadableFS) Open(name string) (fs.File, error) {
	if strings.HasPrefix(name, u.part) {
		return nil, &fs.PathError{Op: "open", Path: name, Err: syscall.EIO}
	}
	return u.FS.Open(name)
}

// One folder that could not be read kept those behind it from being counted, for good.
func TestOneOwnerThatCanNotBeMeasured(t *testing.T) {
	r, err := Open(t.TempDir(), RepositoriesConfig{MaxBytes: 1 << 20})
	require.NoError(t, err)
	defer func() { require.NoError(t, r.Close()) }()
	first, last := relaytest.NewKey("a").Ref("x"), relaytest.NewKey("a").Ref("x")
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		ref := relaytest.NewKey(name).Ref("x")
		require.NoError(t, r.Create(t.Context(), ref, nip34.SHA1))
		pack := filepath.Join(r.dir, filepath.FromSlash(hashed(ref)), "objects", "pack", "p")
		require.NoError(t, os.WriteFile(pack, make([]byte, 400<<10), 0o600))
		if ref.Owner.String() < first.Owner.String() {
			first = ref
		}
		if ref.Owner.String() > last.Owner.String() {
			last = ref
		}
	}
	r.ceiling.layout.root = unreadable{r.ceiling.layout.root, first.Owner.String()}
	l, err := r.ceiling.begin(t.Context(), last, false, nothing)
	require.NoError(t, err, "they are measured aside")
	l.end()
	r.tasks.wg.Wait()
	l, err = r.ceiling.begin(t.Context(), last, false, nothing)
	require.ErrorIs(t, err, errFull)
	l.end()
	require.False(t, r.ceiling.stale(time.Now()), "it is not done again at once")
}
