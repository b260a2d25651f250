package gitfetch_test

import (
	"bytes"
	"crypto/sha1"
	"encoding/binary"
	"encoding/hex"
	"flag"
	"fmt"
	"hash/crc32"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
)

// Object types in a pack.
const (
	packedCommit = 1
	packedTree   = 2
	packedBlob   = 3
)

// thing is an object of a pack.
type thing struct {
	typ  byte
	body []byte
}

func (o thing) id() (id [20]byte) {
	name := map[byte]string{packedCommit: "commit", packedTree: "tree", packedBlob: "blob"}[o.typ]
	return sha1.Sum(append(fmt.Appendf(nil, "%s %d\x00", name, len(o.body)), o.body...))
}

// place adds a pack with an index to a repository without git, for speed. It returns the name of
// the pack.
func place(t testing.TB, dir string, things ...thing) (name string) {
	t.Helper()
	type entry struct {
		id  [20]byte
		crc uint32
		at  uint32
	}
	var entries []entry
	var parts [][]byte
	at := uint32(len(packHeader(0)))
	for _, o := range things {
		raw := object(o.typ, o.body)
		entries = append(entries, entry{o.id(), crc32.ChecksumIEEE(raw), at})
		parts = append(parts, raw)
		at += uint32(len(raw))
	}
	pack := packOf(parts...)
	slices.SortFunc(entries, func(a, b entry) int { return bytes.Compare(a.id[:], b.id[:]) })
	var idx bytes.Buffer
	idx.WriteString("\xfftOc\x00\x00\x00\x02")
	for b := range 256 {
		n := 0
		for _, e := range entries {
			if int(e.id[0]) <= b {
				n++
			}
		}
		_ = binary.Write(&idx, binary.BigEndian, uint32(n))
	}
	for _, e := range entries {
		idx.Write(e.id[:])
	}
	for _, e := range entries {
		_ = binary.Write(&idx, binary.BigEndian, e.crc)
	}
	for _, e := range entries {
		_ = binary.Write(&idx, binary.BigEndian, e.at)
	}
	sum := pack[len(pack)-20:]
	idx.Write(sum)
	own := sha1.Sum(idx.Bytes())
	idx.Write(own[:])
	name = "pack-" + hex.EncodeToString(sum)
	base := filepath.Join(dir, "objects", "pack", name)
	require.NoError(t, os.WriteFile(base+".pack", pack, 0o600))
	require.NoError(t, os.WriteFile(base+".idx", idx.Bytes(), 0o600))
	return name
}

// pass makes all files of a repository older.
func (k *kept) pass(by time.Duration) {
	k.t.Helper()
	files, err := filepath.Glob(filepath.Join(k.dir, "objects", "pack", "*"))
	require.NoError(k.t, err)
	folder := filepath.Join(k.dir, "objects", "pack")
	info, err := os.Stat(folder)
	require.NoError(k.t, err)
	defer func() { require.NoError(k.t, os.Chtimes(folder, info.ModTime().Add(-by), info.ModTime().Add(-by))) }()
	for _, path := range files {
		info, err := os.Stat(path)
		require.NoError(k.t, err)
		at := info.ModTime().Add(-by)
		require.NoError(k.t, os.Chtimes(path, at, at))
		if !strings.HasSuffix(path, ".mtimes") {
			continue
		}
		data, err := os.ReadFile(path)
		require.NoError(k.t, err)
		for i := 12; i < len(data)-40; i += 4 { // after the header, before two checksums
			binary.BigEndian.PutUint32(data[i:], binary.BigEndian.Uint32(data[i:])-uint32(by/time.Second))
		}
		require.NoError(k.t, os.Chmod(path, 0o600))
		require.NoError(k.t, os.WriteFile(path, data, 0o600))
		require.NoError(k.t, os.Chtimes(path, at, at))
	}
	path := filepath.Join(k.dir, recordName)
	if info, err := os.Stat(path); err == nil {
		require.NoError(k.t, os.Chtimes(path, info.ModTime().Add(-by), info.ModTime().Add(-by)))
	}
}

// cloneTime returns the time of the fastest of several clones.
func cloneTime(t testing.TB, dir string) (best time.Duration) {
	t.Helper()
	for i := range 3 {
		to := filepath.Join(t.TempDir(), "clone")
		began := time.Now()
		git(t, dir, "-c", "safe.directory=*", "clone", "-q", "--bare", "file://"+dir, to)
		if took := time.Since(began); i == 0 || took < best {
			best = took
		}
		require.NoError(t, os.RemoveAll(to))
	}
	return best
}

// 10,000 pushes in a year to one repository, of which every tenth creates a branch that is deleted
// a month later, left 10,000 packs, as many unreferenced objects, and 1,000 loose refs. Each clone
// read all of them. Now their number stays small, and a clone is as fast as after a full repack.
//
// Without -full the year has 1,000 pushes, because more would take a minute.
func TestAYearOfPushes(t *testing.T) {
	racetest.Amounts(t)
	pushes := 1_000
	if *full {
		pushes = 10_000
	}
	year(t, pushes)
}

var full = flag.Bool("full", false, "a year has 10,000 pushes; takes minutes")

func year(t *testing.T, pushes int) {
	f := fetcher(t)
	dir := bare(t, nip34.SHA1)
	k := keeping(t, f, dir)
	files := make([][20]byte, 20)
	var parent string
	var topics, gone []string
	mostPacks, runs := 0, 0
	for i := range pushes {
		blob := thing{packedBlob, fmt.Appendf(nil, "file %d at %d\n%s", i%len(files), i, strings.Repeat("line\n", i%50))}
		files[i%len(files)] = blob.id()
		var tree []byte
		for n, id := range files {
			if id != [20]byte{} {
				tree = append(fmt.Appendf(tree, "100644 f%02d\x00", n), id[:]...)
			}
		}
		root := thing{packedTree, tree}
		body := fmt.Appendf(nil, "tree %x\n", root.id())
		if parent != "" {
			body = fmt.Appendf(body, "parent %s\n", parent)
		}
		commit := thing{packedCommit, fmt.Appendf(body, "author a <a> %d +0000\ncommitter a <a> %d +0000\n\n%d\n", i, i, i)}
		place(t, dir, blob, root, commit)
		id := fmt.Sprintf("%x", commit.id())
		name := "refs/heads/main"
		if i%10 == 9 {
			name = fmt.Sprintf("refs/heads/topic%d", i)
			topics = append(topics, name)
			gone = append(gone, id)
		} else {
			parent = id
		}
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(id+"\n"), 0o600))
		if i%upkeepPushes == upkeepPushes-1 {
			for len(topics) > pushes/120 {
				git(t, dir, "update-ref", "-d", topics[0])
				topics = topics[1:]
			}
			done := k.maintain()
			runs++
			mostPacks = max(mostPacks, done.Packs)
			k.pass(365 * 24 * time.Hour * upkeepPushes / time.Duration(pushes))
		}
	}
	packs := len(k.packs())
	whole := filepath.Join(t.TempDir(), "whole.git")
	git(t, dir, "-c", "safe.directory=*", "clone", "-q", "--mirror", "file://"+dir, whole)
	ours, ideal := cloneTime(t, dir), cloneTime(t, whole)
	for tries := 0; tries < 5 && ours >= 3*ideal+200*time.Millisecond; tries++ { // other programs use the machine too
		ours = min(ours, cloneTime(t, dir))
	}
	t.Logf("%d pushes, %d times maintained: %d packs at most, %d at the end; clone %v, of one pack %v",
		pushes, runs, mostPacks, packs, ours.Round(time.Millisecond), ideal.Round(time.Millisecond))
	require.LessOrEqual(t, mostPacks, 20)
	require.Less(t, ours, 3*ideal+200*time.Millisecond)
	require.False(t, k.has(oid(t, gone[0])), "deleted long ago")
	require.True(t, k.has(oid(t, gone[len(gone)-1])))
	git(t, dir, "fsck", "--connectivity-only")
}

// upkeepPushes is the number of pushes after which package purgatory maintains a repository.
const upkeepPushes = 50
