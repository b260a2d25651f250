package gitserve_test

import (
	"bytes"
	"compress/zlib"
	"context"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/purgatory/gitserve"
)

// packEntry is a pack entry; before is between its header and its data.
func packEntry(typ byte, before, content []byte) []byte {
	n := len(content)
	b := []byte{typ<<4 | byte(n&15)}
	for n >>= 4; n > 0; n >>= 7 {
		b[len(b)-1] |= 0x80
		b = append(b, byte(n&0x7f))
	}
	b = append(b, before...)
	var z bytes.Buffer
	w := zlib.NewWriter(&z)
	_, _ = w.Write(content)
	_ = w.Close()
	return append(b, z.Bytes()...)
}

func packOf(entries ...[]byte) []byte {
	b := binary.BigEndian.AppendUint32([]byte("PACK\x00\x00\x00\x02"), uint32(len(entries)))
	b = append(b, bytes.Join(entries, nil)...)
	sum := sha1.Sum(b)
	return append(b, sum[:]...)
}

func idOf(kind string, content []byte) string {
	sum := sha1.Sum(append(fmt.Appendf(nil, "%s %d\x00", kind, len(content)), content...))
	return hex.EncodeToString(sum[:])
}

// bomb returns a pack of some KiB with a valid commit and a delta that makes an object of size
// bytes by repeated copies of its base.
func bomb(size int) (pack []byte, tip string) {
	base := bytes.Repeat([]byte{'x'}, 0xffff)
	delta := binary.AppendUvarint(binary.AppendUvarint(nil, uint64(len(base))), uint64(size/len(base)*len(base)))
	for range size / len(base) {
		delta = append(delta, 0x80|0x10|0x20, 0xff, 0xff)
	}
	blob, _ := hex.DecodeString(idOf("blob", base))
	tree := append([]byte("100644 f\x00"), blob...)
	commit := []byte("tree " + idOf("tree", tree) + "\nauthor a <a@x> 1700000000 +0000\ncommitter a <a@x> 1700000000 +0000\n\nx\n")
	from, _ := hex.DecodeString(idOf("blob", base))
	return packOf(packEntry(3, nil, base), packEntry(2, nil, tree), packEntry(1, nil, commit), packEntry(7, from, delta)), idOf("commit", commit)
}

// memoryOf measures the address space of the git children, in KiB.
func memoryOf(t *testing.T, dir string) (most func() int64) {
	ctx, cancel := context.WithCancel(t.Context())
	var peak atomic.Int64
	var wg sync.WaitGroup
	wg.Go(func() {
		for ctx.Err() == nil {
			files, _ := filepath.Glob("/proc/[0-9]*/status")
			for _, file := range files {
				status, _ := os.ReadFile(file)
				if !bytes.HasPrefix(status, []byte("Name:\tgit")) {
					continue
				}
				// Other packages have children with our limit too.
				if at, _ := os.Readlink(filepath.Join(filepath.Dir(file), "cwd")); !strings.HasPrefix(at, dir) {
					continue
				}
				for line := range strings.Lines(string(status)) {
					var n int64
					if _, err := fmt.Sscanf(line, "VmData: %d", &n); err == nil {
						peak.Store(max(peak.Load(), n))
					}
				}
			}
			time.Sleep(2 * time.Millisecond)
		}
	})
	return func() int64 {
		cancel()
		wg.Wait()
		return peak.Load()
	}
}

// files returns the files of a folder.
func files(t *testing.T, dir string) (out []string) {
	t.Helper()
	require.NoError(t, filepath.WalkDir(dir, func(path string, d os.DirEntry, err error) error {
		out = append(out, path)
		return err
	}))
	return out
}

func (r *rig) dir() string {
	return filepath.Join(r.repos.Dir(), filepath.FromSlash(hashed(owner.Ref("x"))))
}

// A small pack with a very large object is refused when git reaches its memory limit, before the
// machine's memory is used. The client gets the reason.
func TestPromiseP30b_PackBombIsPushed(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("no such limit")
	}
	r := rigWith(t, gitserve.RepositoriesConfig{MaxMemory: 512 << 20}, gitserve.Config{})
	before := files(t, r.repos.Dir())
	pack, tip := bomb(200 << 20)
	r.tips[event] = tip
	require.Less(t, len(pack), 32<<10)
	most := memoryOf(t, r.repos.Dir())
	resp, text := r.do(t, "POST", "/"+owner.Npub()+"/x.git/git-receive-pack",
		packet(null+" "+tip+" refs/nostr/"+event+"\x00report-status side-band-64k")+string(pack))
	peak := most()
	require.Equal(t, 200, resp.StatusCode)
	require.Regexp(t, `(?i)of memory that it may have|out of memory|unable to mmap|cannot allocate memory|attempting to allocate`, text)
	require.Contains(t, text, "ng refs/nostr/"+event+" ")
	require.Empty(t, r.has(t))
	require.Equal(t, before, files(t, r.repos.Dir()), "something is left")
	t.Logf("at most %d KiB of address space", peak) // 0: too fast to be measured
	require.LessOrEqual(t, peak, int64(128<<10))

	pack, tip = bomb(20 << 20) // a pack within the limit is accepted
	r.tips[event] = tip
	_, text = r.do(t, "POST", "/"+owner.Npub()+"/x.git/git-receive-pack",
		packet(null+" "+tip+" refs/nostr/"+event+"\x00report-status side-band-64k")+string(pack))
	require.Contains(t, text, "ok refs/nostr/"+event)
}

// A push without room on the disk is refused: before reading, while reading, before git runs, and
// while git runs. It leaves nothing.
func TestPromiseP30_NoRoomForAPush(t *testing.T) {
	const floor = 1000 << 20
	r := newRig(t, gitserve.Config{MinFreeDisk: floor})
	big := make([]byte, 10<<20)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(big) // never fails
	require.NoError(t, os.WriteFile(filepath.Join(r.work, "big"), big, 0o600))
	git(t, r.work, "config", "core.compression", "0")
	git(t, r.work, "add", "big")
	r.tip = r.commit(t, "big")
	r.says(map[string]string{"refs/heads/main": r.tip})
	before := files(t, r.repos.Dir())
	var asked atomic.Int64
	refuse := func(when string, free func(n int64) uint64) {
		t.Helper()
		asked.Store(0)
		r.git.SetDisk(func(dir string) (uint64, error) {
			require.Equal(t, r.repos.Dir(), dir)
			return free(asked.Add(1)), nil
		})
		out, err := try(t, r.work, "push", r.repo(), "main")
		require.Error(t, err, when)
		require.Contains(t, out, refusedDisk, when)
		require.Empty(t, r.has(t), when)
		require.Empty(t, r.pushed, when)
		require.Equal(t, before, files(t, r.repos.Dir()), when)
	}
	refuse("before", func(int64) uint64 { return floor - 1 })
	require.EqualValues(t, 1, asked.Load(), "nothing was read")
	refuse("while it comes", func(n int64) uint64 { return floor - uint64(n)/2 })
	require.EqualValues(t, 2, asked.Load())
	refuse("before git sees it", func(n int64) uint64 { return floor + 9<<20 })
	require.EqualValues(t, 3, asked.Load())

	// A client without reports gets the reason as a status.
	r.git.SetDisk(func(string) (uint64, error) { return 0, nil })
	receive := "/" + owner.Npub() + "/x.git/git-receive-pack"
	resp, text := r.do(t, "POST", receive, packet(null+" "+r.tip+" refs/heads/main"))
	require.Equal(t, 507, resp.StatusCode)
	require.Contains(t, text, "not enough free disk")
	resp, _ = r.do(t, "POST", receive, "0000") // git's check for permission
	require.Equal(t, 200, resp.StatusCode)
	r.git.SetDisk(func(string) (uint64, error) { return 0, errors.New("no disk") })
	_, text = r.do(t, "POST", receive, packet(null+" "+r.tip+" refs/heads/main\x00report-status"))
	require.Contains(t, text, "ng refs/heads/main internal error")

	r.git.SetDisk(func(string) (uint64, error) { return floor + 11<<20, nil })
	git(t, r.work, "push", "-q", r.repo(), "main")
	require.Contains(t, r.has(t), r.tip)
}

// If the disk fills up while git runs, git is killed and its files are removed.
func TestPromiseP30_NoRoomWhileGitWorks(t *testing.T) {
	real, err := exec.LookPath("git")
	require.NoError(t, err)
	shim := filepath.Join(t.TempDir(), "git")
	// A git that has begun to receive a push and runs long.
	require.NoError(t, os.WriteFile(shim, fmt.Appendf(nil, `#!/bin/sh
case "$*" in
*" index-pack "*) echo x > $GIT_OBJECT_DIRECTORY/pack/tmp_pack_1; sleep 1000;;
*) exec %s "$@";;
esac
`, real), 0o700))
	r := rigWith(t, gitserve.RepositoriesConfig{Git: shim}, gitserve.Config{MinFreeDisk: 10})
	r.says(map[string]string{"refs/heads/main": r.tip})
	before := files(t, r.repos.Dir())
	var asked atomic.Int64
	r.git.SetDisk(func(string) (uint64, error) {
		if asked.Add(1) <= 3 { // before and after reading
			return 1 << 30, nil
		}
		return 9, nil
	})
	began := time.Now()
	out, err := try(t, r.work, "push", r.repo(), "main")
	require.Error(t, err)
	require.Contains(t, out, refusedDisk)
	require.Less(t, time.Since(began), time.Minute)
	require.Equal(t, before, files(t, r.repos.Dir()))
}
