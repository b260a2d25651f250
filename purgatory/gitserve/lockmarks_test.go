package gitserve

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
)

// Each lock made a file and removed it, which took longer than most locks last. Marks stay for a
// while; what is locked is always marked, and not many are that are not.
func TestLockMarks(t *testing.T) {
	r, err := Open(t.TempDir(), RepositoriesConfig{})
	require.NoError(t, err)
	marks := func() (names []string) {
		entries, err := os.ReadDir(filepath.Join(r.dir, incoming))
		require.NoError(t, err)
		for _, e := range entries {
			if strings.HasPrefix(e.Name(), lockMark) {
				names = append(names, e.Name())
			}
		}
		return names
	}
	const many = keptMarks + 10
	var all []string
	for i := range many {
		all = append(all, fmt.Sprint("x", i))
		require.NoError(t, r.Create(t.Context(), owner.Ref(all[i]), nip34.SHA1))
	}
	lock := func(name string) (unlock func()) {
		_, unlock, err := r.Lock(t.Context(), owner.Ref(name))
		require.NoError(t, err)
		require.FileExists(t, filepath.Join(r.dir, marked(lockMark, owner.Ref(name))))
		return unlock
	}
	held := lock(all[0])
	made, err := os.Stat(filepath.Join(r.dir, marked(lockMark, owner.Ref(all[0]))))
	require.NoError(t, err)
	for _, name := range all[1:] {
		lock(name)()
	}
	require.Len(t, marks(), keptMarks+1)
	require.FileExists(t, filepath.Join(r.dir, marked(lockMark, owner.Ref(all[0]))), "it is locked")
	held()
	lock(all[0])()
	again, err := os.Stat(filepath.Join(r.dir, marked(lockMark, owner.Ref(all[0]))))
	require.NoError(t, err)
	require.True(t, os.SameFile(made, again), "it is not made anew")
	require.Len(t, marks(), keptMarks)

	// One that is to be cleared is used without a mark, as maintenance does.
	oldest := r.marks.left[0]
	unlock, ok, err := r.tryLock(oldest)
	require.NoError(t, err)
	require.True(t, ok)
	lock(all[1])()
	require.Contains(t, r.marks.left, oldest)
	unlock()

	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for k := range 300 {
				lock(all[(7*i+k)%many])()
			}
		})
	}
	wg.Wait()
	require.LessOrEqual(t, len(marks()), keptMarks+1)
	lock(all[0])()
	lock(all[1])()
	require.NoError(t, r.Remove(t.Context(), owner.Ref(all[0])))
	require.NoError(t, r.Depart(t.Context(), owner.Ref(all[1])))
	for _, name := range all[:2] {
		require.NoFileExists(t, filepath.Join(r.dir, marked(lockMark, owner.Ref(name))), "it is gone")
	}
	require.NoError(t, r.Close())
	require.Empty(t, marks())
}
