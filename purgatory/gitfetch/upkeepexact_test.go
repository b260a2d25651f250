package gitfetch

import (
	"bytes"
	"compress/zlib"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
)

// blobs are so many objects, of which no two are alike.
func blobs(name string, n int) (out []thing) {
	for i := range n {
		out = append(out, thing{packedBlob, fmt.Append(nil, name, " ", i)})
	}
	return out
}

// loosen puts objects into a repository as an operator may, a file for each.
func loosen(t *testing.T, dir string, things ...thing) (paths []string) {
	t.Helper()
	for _, o := range things {
		id := fmt.Sprintf("%x", o.id())
		path := filepath.Join(dir, "objects", id[:2], id[2:])
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		var b bytes.Buffer
		z := zlib.NewWriter(&b)
		_, err := fmt.Fprintf(z, "blob %d\x00%s", len(o.body), o.body)
		require.NoError(t, errors.Join(err, z.Close()))
		require.NoError(t, os.WriteFile(path, b.Bytes(), 0o600))
		paths = append(paths, path)
	}
	return paths
}

// lately has a repository be one of which all objects were just looked at.
func lately(t *testing.T, dir string) {
	t.Helper()
	writeDiary(t, dir, diary{Began: time.Now()})
}

func writeDiary(t *testing.T, dir string, book diary) {
	t.Helper()
	data, err := json.Marshal(book)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, diaryName), data, 0o600))
}

func readDiary(t *testing.T, dir string) (book diary) {
	t.Helper()
	require.NoError(t, json.Unmarshal([]byte(readFile(t, filepath.Join(dir, diaryName))), &book))
	return book
}

// bytesOf is how large packs are, with their indexes.
func bytesOf(t *testing.T, dir string, bases ...string) (sum int64) {
	t.Helper()
	for _, base := range bases {
		for _, ext := range []string{".idx", ".pack"} {
			info, err := os.Stat(filepath.Join(dir, "objects", "pack", base+ext))
			require.NoError(t, err)
			sum += info.Size()
		}
	}
	return sum
}

func bases(t *testing.T, dir string) (out []string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "objects", "pack", "*.pack"))
	require.NoError(t, err)
	for _, path := range found {
		out = append(out, strings.TrimSuffix(filepath.Base(path), ".pack"))
	}
	return out
}

// How many may do what at once.
func TestHowManyAtOnce(t *testing.T) {
	for fetches, long := range map[int]int{1: 1, 7: 1, 8: 2, 20: 5} {
		f := fetcher(t, Config{MaxFetches: fetches, MaxChildren: 3})
		require.Equal(t, []int{fetches, long, 2, 3}, []int{cap(f.receiver.fetching), cap(f.receiver.long), cap(f.upkeeps.slots), f.git.children.most})
		require.Equal(t, []int64{4 << 30, 4 << 30}, []int64{f.sharer.copies.most, f.upkeeps.unshared.most})
	}
}

// Eight packs are too many, and eight objects with a file each are as bad as a pack. What was
// done is said to the byte.
func TestWhenPacksBecomeOne(t *testing.T) {
	for _, c := range []struct {
		packs, loose int
		rolled       bool
	}{{7, 0, false}, {8, 0, true}, {7, 7, false}, {7, 8, true}, {0, 63, false}, {0, 64, true}} {
		dir := bare(t, nip34.SHA1)
		f := fetcher(t, Config{})
		for _, o := range blobs("packed", c.packs) {
			place(t, dir, o)
		}
		loosen(t, dir, blobs("loose", c.loose)...)
		lately(t, dir)
		was := bases(t, dir)
		before := bytesOf(t, dir, was...)
		k := keeping(t, f, dir)
		done := k.maintain()
		require.Positive(t, done.Locked)
		done.Locked = 0
		if !c.rolled {
			require.Equal(t, purgatory.Maintained{Packs: c.packs}, done, "%+v", c)
			require.Equal(t, was, bases(t, dir))
			continue
		}
		now := bases(t, dir)
		require.Equal(t, purgatory.Maintained{Packs: 1, Removed: c.packs, Freed: before - bytesOf(t, dir, now...)}, done, "%+v", c)
		require.Len(t, now, 1)
		u := f.upkeepOf(upkeep{dir: dir, id: 20})
		require.NoError(t, u.look())
		require.Equal(t, c.packs+c.loose, u.packs[0].objects)
		require.Zero(t, u.loose)
	}
}

// Refs with a file each are packed when there are 64, or at once for who asks for it.
func TestWhenRefsArePacked(t *testing.T) {
	f := fetcher(t, Config{})
	for _, c := range []struct {
		refs   int
		now    bool
		packed bool
		left   int
	}{{0, true, false, 0}, {1, true, true, 0}, {1, false, false, 1}, {63, false, false, 63}, {64, false, true, 0}, {70, false, true, 0}} {
		dir := bare(t, nip34.SHA1)
		tip := blobs("x", 1)[0]
		place(t, dir, tip)
		for i := range c.refs {
			path := filepath.Join(dir, "refs", "tags", fmt.Sprint(i))
			require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, "%x\n", tip.id()), 0o600))
			require.NoError(t, os.WriteFile(path+".lock", nil, 0o600), "somebody moves it")
		}
		n, err := looseRefs(osFiles{}, dir)
		require.NoError(t, err)
		require.Equal(t, min(c.refs, 64), n)
		locks, err := filepath.Glob(filepath.Join(dir, "refs", "tags", "*.lock"))
		require.NoError(t, err)
		for _, lock := range locks {
			require.NoError(t, os.Remove(lock))
		}
		packed := 0
		f.git.started = func(cmd *exec.Cmd) {
			if slices.Contains(cmd.Args, "pack-refs") {
				packed++
			}
		}
		u := f.upkeepOf(upkeep{dir: dir, now: time.Now(), how: purgatory.Maintenance{Now: c.now}})
		require.NoError(t, u.begin(t.Context()))
		require.Equal(t, c.packed, packed == 1, "%+v", c)
		require.Equal(t, c.left, u.done.LooseRefs, "%+v", c)
	}
}

// What there is is told apart: packs of our own, those that another repository has, those that
// came from there, and those that somebody keeps.
func TestWhatThereIs(t *testing.T) {
	dir, other := bare(t, nip34.SHA1), bare(t, nip34.SHA1)
	pack := func(at, base, ext string) string { return filepath.Join(at, "objects", "pack", base+ext) }
	share := func(base string) {
		require.NoError(t, os.Link(pack(dir, base, ".pack"), pack(other, base, ".pack")))
	}
	write := func(base, ext, text string) {
		require.NoError(t, os.WriteFile(pack(dir, base, ext), []byte(text), 0o600))
	}
	own, came := place(t, dir, blobs("own", 4)...), place(t, dir, blobs("came", 1)...)
	given, cruft := place(t, dir, blobs("given", 3)...), place(t, dir, blobs("cruft", 2)...)
	alone := place(t, dir, blobs("listed, and nobody has it any more", 5)...)
	share(came)
	share(given)
	write(cruft, ".mtimes", "")
	ours, theirs := place(t, dir, blobs("ours", 7)...), place(t, dir, blobs("theirs", 9)...)
	write(ours, ".keep", keepNote)
	write(theirs, ".keep", "an operator's\n")
	write("pack-1", ".idx", "no pack")
	write("pack-2", ".pack", "no index")
	write("pack-3", ".keep", keepNote)
	require.NoError(t, noteLinked(osFiles{}, dir, []string{"pack-9"}), "it did not come")
	require.NoError(t, os.WriteFile(filepath.Join(dir, linkedName), []byte(came+"\n"+alone+"\npack-9\n"), 0o600))
	loosen(t, dir, blobs("loose", 3)...)
	f := fetcher(t, Config{})
	u := f.upkeepOf(upkeep{dir: dir, id: 20})
	want := *f.upkeepOf(upkeep{
		dir: dir, id: 20,
		packs: []packFile{
			{base: came, objects: 1, shared: true, linked: true},
			{base: cruft, objects: 2, cruft: true},
			{base: given, objects: 3, shared: true},
			{base: own, objects: 4},
			{base: alone, objects: 5},
		},
		marked: bytesOf(t, dir, ours), loose: 3, done: purgatory.Maintained{Packs: 7},
		size: bytesOf(t, dir, ours, theirs),
	})
	for i := range want.packs {
		want.packs[i].size = bytesOf(t, dir, want.packs[i].base)
		want.size += want.packs[i].size
	}
	for range 2 { // the second look counts nothing twice
		require.NoError(t, u.look())
		require.ElementsMatch(t, []string{ours, theirs}, u.kept)
		got := *u
		got.kept = nil
		require.Equal(t, want, got)
	}
	require.Equal(t, want.packs[0].size, linkedBytes(u.packs))
}

// Of the packs that another repository has as well the sixteen largest stay.
func TestLargestShared(t *testing.T) {
	u := &upkeep{packs: []packFile{{base: "own", size: 1000}, {base: "cruft", size: 1000, shared: true, cruft: true}}}
	for n := range 20 {
		require.Len(t, u.largestShared(), min(n, 16))
		u.packs = append(u.packs, packFile{base: fmt.Sprint(n), size: int64(100 + n), shared: true})
	}
	stay := u.largestShared()
	for n := range 20 {
		require.Equal(t, n >= 4, stay[fmt.Sprint(n)], n)
	}
}

// There must be room for a copy of all that is packed anew, and MinFreeDisk besides.
func TestRoomForACopy(t *testing.T) {
	f := fetcher(t, Config{MinFreeDisk: 100})
	u := f.upkeepOf(upkeep{})
	packs := []packFile{{size: 5}, {size: 7}}
	for free, enough := range map[uint64]bool{0: false, 99: false, 100: false, 111: false, 112: true, 113: true} {
		f.disk.free = func(string) (uint64, error) { return free, nil }
		if err := u.room(packs); enough {
			require.NoError(t, err)
		} else {
			require.ErrorIs(t, err, ErrDisk, "%d", free)
		}
	}
	f.disk.free = func(string) (uint64, error) { return 100, nil }
	require.NoError(t, u.room(nil))
}

// What a process left that was killed goes after an hour, to the nanosecond, and nothing that
// is whole.
func TestWhatIsLeftGoesAfterAnHour(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	goes := map[string]bool{
		"pack/pack-1.pack": true, "pack/pack-1.rev": true, "pack/pack-1.mtimes": true, "pack/pack-1.bitmap": true, "pack/pack-1.keep": false,
		"pack/pack-2.idx": false, "pack/pack-2.pack": false, "pack/pack-2.rev": false, "pack/pack-3.idx": false,
		"pack/tmp_pack_1": true, "pack/.tmp-2-pack-1.pack": true, "pack/other.pack": false, "pack/multi-pack-index": false,
		"tmp_objdir-1/x": true, "12/3": false, "tmp_other/x": false,
	}
	for age, old := range map[time.Duration]bool{time.Hour - 1: false, time.Hour: true} {
		dir := bare(t, nip34.SHA1)
		for name := range goes {
			path := filepath.Join(dir, "objects", name)
			require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
			require.NoError(t, os.WriteFile(path, nil, 0o600))
			for _, p := range []string{path, filepath.Dir(path)} {
				require.NoError(t, os.Chtimes(p, now.Add(-age), now.Add(-age)))
			}
		}
		require.NoError(t, os.Chtimes(filepath.Join(dir, "objects", "tmp_objdir-1"), now.Add(-age), now.Add(-age)))
		require.NoError(t, sweepObjects(osFiles{}, dir, now))
		for name, left := range goes {
			_, err := os.Stat(filepath.Join(dir, "objects", name))
			require.Equal(t, old && left, errors.Is(err, fs.ErrNotExist), "%s after %v", name, age)
		}
	}
}

// Marks of what has come are no reason to keep it for longer than an hour, or its grace, where
// somebody waits for room.
func TestMarksGoAfterAnHour(t *testing.T) {
	f := fetcher(t, Config{})
	dir := bare(t, nip34.SHA1)
	now := time.Now().Truncate(time.Second)
	mark := filepath.Join(dir, "objects", "pack", "pack-1.keep")
	for _, c := range []struct {
		prune      bool
		grace, age time.Duration
		goes       bool
	}{
		{true, 10 * time.Minute, 10 * time.Minute, false}, {true, 10 * time.Minute, 10*time.Minute + 1, true},
		{true, 2 * time.Hour, time.Hour, false}, {true, 2 * time.Hour, time.Hour + 1, true},
		{false, 0, 100 * time.Hour, false},
	} {
		require.NoError(t, os.WriteFile(mark, []byte(keepNote), 0o600))
		require.NoError(t, os.Chtimes(mark, now.Add(-c.age), now.Add(-c.age)))
		u := f.upkeepOf(upkeep{dir: dir, now: now, how: purgatory.Maintenance{Prune: c.prune, Grace: c.grace}})
		require.NoError(t, u.begin(t.Context()))
		_, err := os.Stat(mark)
		require.Equal(t, c.goes, err != nil, "%+v", c)
	}
}

// Loose objects go when their grace is over, to the nanosecond, and only where it was looked
// at what is named; with packs goes all that was made of them.
func TestWhatGoesInASwap(t *testing.T) {
	f := fetcher(t, Config{})
	now := time.Now().Truncate(time.Second).Add(-time.Hour)
	for _, c := range []struct {
		now, prune bool
		age        time.Duration
		goes       bool
	}{
		{false, true, time.Minute - 1, false}, {false, true, time.Minute, true}, {false, false, time.Hour, false},
		{true, true, -1, false}, {true, true, 0, true},
	} {
		dir := bare(t, nip34.SHA1)
		path := loosen(t, dir, blobs("loose", 1)...)[0]
		require.NoError(t, os.Chtimes(path, now.Add(-c.age), now.Add(-c.age)))
		tmp := filepath.Join(filepath.Dir(path), "tmp_obj_1")
		require.NoError(t, os.WriteFile(tmp, nil, 0o600))
		require.NoError(t, os.Chtimes(tmp, time.Unix(0, 0), time.Unix(0, 0)))
		u := f.upkeepOf(upkeep{dir: dir, id: 20, now: now, loose: 1, how: purgatory.Maintenance{Now: c.now, Grace: time.Minute}})
		require.NoError(t, u.swap(t.Context(), nil, c.prune))
		_, err := os.Stat(path)
		require.Equal(t, c.goes, err != nil, "%+v", c)
		require.Equal(t, c.goes, u.loose == 0, "%+v", c)
		require.FileExists(t, tmp, "it is about to become one")
	}

	dir := bare(t, nip34.SHA1)
	folder := filepath.Join(dir, "objects", "pack")
	gone, kept, stays := place(t, dir, blobs("gone", 1)...), place(t, dir, blobs("kept", 1)...), place(t, dir, blobs("stays", 1)...)
	for _, name := range []string{
		gone + ".bitmap", gone + ".rev", gone + ".mtimes", kept + ".keep", stays + ".rev", "multi-pack-index", "multi-pack-index-1.bitmap",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), nil, 0o600))
	}
	size := bytesOf(t, dir, gone, kept, stays)
	freed := bytesOf(t, dir, gone)
	u := f.upkeepOf(upkeep{dir: dir, id: 20, size: size, done: purgatory.Maintained{Removed: 5, Freed: 3}})
	old := []packFile{{base: gone}, {base: kept}, {base: stays}}
	require.ErrorIs(t, u.swap(t.Context(), old, true, stays, "pack-1"), purgatory.ErrInUse, "a new pack is not there")
	require.Len(t, bases(t, dir), 3)
	require.NoError(t, u.swap(t.Context(), old, true, stays, ""))
	require.Equal(t, purgatory.Maintained{Packs: 2, Removed: 6, Freed: 3 + freed}, u.done)
	entries, err := os.ReadDir(folder)
	require.NoError(t, err)
	var left []string
	for _, e := range entries {
		left = append(left, e.Name())
	}
	require.ElementsMatch(t, []string{kept + ".idx", kept + ".pack", kept + ".keep", stays + ".idx", stays + ".pack", stays + ".rev"}, left)
	require.NoError(t, u.undo(stays, ""))
	require.FileExists(t, u.path(stays+".pack"), "it was there before")
	u.packs = nil
	require.NoError(t, u.undo(stays, ""))
	require.Equal(t, []string{kept}, bases(t, dir))
}

// What refs were is read from their logs, both where they came from and where they went; an
// old log is one that begins before what is remembered.
func TestWhatLogsName(t *testing.T) {
	f := fetcher(t, Config{})
	dir := bare(t, nip34.SHA1)
	now := time.Unix(1_700_000_000, 0)
	log := func(name, text string) {
		path := filepath.Join(dir, "logs", filepath.FromSlash(name))
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o700))
		require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	}
	id := func(c string) nip34.ObjectID { return oid(t, strings.Repeat(c, 40)) }
	line := func(from, to nip34.ObjectID, at int64) string {
		return fmt.Sprintf("%s %s g <g> %d +0000\tx\n", from, to, at)
	}
	zero := strings.Repeat("0", 40)
	u := f.upkeepOf(upkeep{dir: dir, now: now, id: 20, how: purgatory.Maintenance{Remember: time.Hour}})
	log("HEAD", line(id("a"), id("b"), now.Unix()))
	log("refs/heads/main", fmt.Sprintf("%s %s g <g> %d +0000\tx\nnonsense\n", zero, id("c"), now.Unix())+line(id("d"), id("d"), 1))
	log("refs/nostr/x", line(id("e"), id("e"), 1))
	got := make(map[nip34.ObjectID]bool)
	require.NoError(t, u.logged(got))
	require.Equal(t, map[nip34.ObjectID]bool{id("a"): true, id("b"): true, id("c"): true, id("d"): true}, got)
	for text, old := range map[string]bool{
		"": false, "no line": false, "nonsense\n": false,
		line(id("a"), id("a"), now.Unix()-3600):                             false,
		line(id("a"), id("a"), now.Unix()-3601):                             true,
		strings.TrimSuffix(line(id("a"), id("a"), now.Unix()-3601), "\n"):   false,
		line(id("a"), id("a"), now.Unix()) + line(id("a"), id("a"), 1):      false,
		line(id("a"), id("a"), now.Unix()-9999) + line(id("a"), id("a"), 1): true,
	} {
		log("refs/heads/a", text)
		got, err := u.hasOldLogs()
		require.NoError(t, err)
		require.Equal(t, old, got, "%q", text)
		_, prune, err := u.due(t.Context())
		require.NoError(t, err)
		require.True(t, prune, "nothing is known of it")
		state, err := u.state(t.Context())
		require.NoError(t, err)
		writeDiary(t, dir, diary{Began: now.Add(-pruneEvery), State: state})
		_, prune, err = u.due(t.Context())
		require.NoError(t, err)
		require.Equal(t, old, prune, "%q", text)
		require.NoError(t, os.Remove(filepath.Join(dir, diaryName)))
	}
	log("refs/heads/a", strings.Repeat("x", 1<<20))
	require.Error(t, u.logged(got), "it names who knows what")
}

// What is named: what refs point to, and apart from that what HEAD, logs and events do, as far
// as it can be in the repository.
func TestWhatIsNamed(t *testing.T) {
	f := fetcher(t, Config{})
	dir := bare(t, nip34.SHA1)
	o := blobs("tagged", 1)[0]
	place(t, dir, o)
	tagged := oid(t, fmt.Sprintf("%x", o.id()))
	git(t, dir, "update-ref", "refs/tags/x", tagged.String())
	id := func(c string, n int) nip34.ObjectID { return oid(t, strings.Repeat(c, n)) }
	keep := []nip34.ObjectID{tagged, id("a", 40), id("b", 64)}
	u := f.upkeepOf(upkeep{dir: dir, id: 20, how: purgatory.Maintenance{
		Keep: func(context.Context) ([]nip34.ObjectID, error) { return keep, nil },
	}})
	tips, named, err := u.naming(t.Context())
	require.NoError(t, err)
	require.Equal(t, []nip34.ObjectID{tagged}, tips)
	require.Equal(t, []nip34.ObjectID{id("a", 40)}, named)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "HEAD"), []byte(id("c", 40).String()+"\n"), 0o600))
	tips, named, err = u.naming(t.Context())
	require.NoError(t, err)
	require.Equal(t, []nip34.ObjectID{tagged}, tips)
	require.ElementsMatch(t, []nip34.ObjectID{id("a", 40), id("c", 40)}, named)

	u.tips, u.named = tips, named
	u.how.Choose = func(_ context.Context, at string) ([]nip34.ObjectID, error) {
		return []nip34.ObjectID{tagged, id("a", 40), id("d", 40), id("e", 64)}, nil
	}
	require.NoError(t, u.choose(t.Context()))
	require.ElementsMatch(t, []nip34.ObjectID{id("a", 40), id("c", 40), id("d", 40)}, u.named)
	boom := errors.New("boom")
	u.how.Choose = func(_ context.Context, at string) ([]nip34.ObjectID, error) {
		require.Equal(t, dir, at)
		return nil, boom
	}
	require.ErrorIs(t, u.choose(t.Context()), boom)
	require.NoError(t, os.Remove(filepath.Join(dir, "HEAD")))
	_, _, err = u.naming(t.Context())
	require.Error(t, err)
}

// A look at all objects that fails is not tried anew for a week; how long it takes is noted
// when it is over, and what there was then.
func TestWhatIsNotedOfALook(t *testing.T) {
	f := fetcher(t, Config{})
	dir := bare(t, nip34.SHA1)
	main := packed(t, dir, nip34.ObjectID{}, "main")
	git(t, dir, "update-ref", "refs/heads/main", main.String())
	k := keeping(t, f, dir)
	room := f.disk.free
	f.disk.free = func(string) (uint64, error) { return 0, nil }
	for was, want := range map[time.Duration]time.Duration{0: time.Minute, time.Minute - 1: time.Minute, time.Hour: time.Hour} {
		writeDiary(t, dir, diary{Began: time.Now().Add(-300 * time.Hour), Took: was, State: "x"})
		began := time.Now()
		_, err := f.Maintain(t.Context(), k.how)
		require.ErrorIs(t, err, ErrDisk)
		book := readDiary(t, dir)
		require.Equal(t, diary{Began: book.Began, Took: want}, book)
		require.WithinRange(t, book.Began, began, time.Now())
	}
	f.disk.free = room
	k.how.Now = true
	began := time.Now()
	require.True(t, k.maintain().Pruned)
	took := time.Since(began)
	book := readDiary(t, dir)
	require.Positive(t, book.Took)
	require.LessOrEqual(t, book.Took, took)
	u := f.upkeepOf(upkeep{dir: dir, id: 20})
	require.NoError(t, u.look())
	state, err := u.state(t.Context())
	require.NoError(t, err)
	require.Equal(t, state, book.State)
	git(t, dir, "update-ref", "refs/heads/other", main.String())
	other, err := u.state(t.Context())
	require.NoError(t, err)
	require.NotEqual(t, state, other, "a branch has come")
}

// What nobody waits for runs at a low priority, and for twenty seconds at most under the lock.
func TestMaintenanceIsNice(t *testing.T) {
	real, err := exec.LookPath("git")
	require.NoError(t, err)
	aside := t.TempDir()
	log, script := filepath.Join(aside, "log"), filepath.Join(aside, "git")
	require.NoError(t, os.WriteFile(script, fmt.Appendf(nil, `#!/bin/sh
case "$*" in *build-options*) exec %[1]s "$@";; esac
cat > %[2]s/$$ # at the end of its input, if not before, it has its priority
echo "$(nice) $*" >> %[3]s
exec %[1]s "$@" < %[2]s/$$
`, real, aside, log), 0o700))
	out, err := exec.Command("nice").Output()
	require.NoError(t, err)
	mine := strings.TrimSpace(string(out))
	f := fetcher(t, Config{Git: script})
	dir := configured(t, bare(t, nip34.SHA1))
	main := packed(t, dir, nip34.ObjectID{}, "main")
	git(t, dir, "update-ref", "refs/heads/main", main.String())
	waits := packed(t, dir, main, "waits")
	k := keeping(t, f, dir)
	packed(t, dir, main, "unnamed")
	loosen(t, dir, blobs("loose", 1)...)
	locked, free := 0, 0
	k.how.Keep = func(ctx context.Context) ([]nip34.ObjectID, error) {
		until, limited := ctx.Deadline()
		if k.lock.TryLock() {
			k.lock.Unlock()
			require.False(t, limited)
			free++
		} else {
			locked++
			require.True(t, limited)
			require.InDelta(t, 19.5, time.Until(until).Seconds(), 0.5)
			if locked == 1 {
				time.Sleep(50 * time.Millisecond)
			}
		}
		return []nip34.ObjectID{waits}, nil
	}
	k.how.Prune = true
	done := k.maintain()
	require.Equal(t, []int{2, 1}, []int{locked, free})
	require.GreaterOrEqual(t, done.Locked, 50*time.Millisecond)
	want := map[string]string{
		"reflog": "10", "pack-objects": "10", "for-each-ref": "10", "prune-packed": "10", "rev-parse": mine, "cat-file": mine,
	}
	got := make(map[string]string)
	for line := range strings.Lines(readFile(t, log)) {
		words := strings.Fields(line)
		i := slices.IndexFunc(words, func(word string) bool { return want[word] != "" || word == "rev-list" })
		require.Positive(t, i, line)
		if words[i] != "rev-list" { // what is waited for, and what is not
			require.Contains(t, []string{"", words[0]}, got[words[i]], line)
			got[words[i]] = words[0]
		}
	}
	require.Equal(t, want, got)
}
