package gitfetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/barerepo"
	"github.com/graspsync/graspsync/purgatory/internal/stopwatch"
)

// Whatever goes wrong with a child, its output is not taken for one that is whole, and the
// error says what it was.
func TestChildThatGoesWrong(t *testing.T) {
	here := sample(t)
	errBroken := errors.New("a broken source")
	look := func(from io.Reader) child {
		return child{dir: here, args: []string{"cat-file", "--batch-check"}, stdin: from}
	}
	head := func() io.Reader { return strings.NewReader("HEAD\n") }
	over, cancel := context.WithCancelCause(t.Context())
	cancel(errBroken)
	soon, cancelSoon := context.WithCancelCause(t.Context())
	source, sink := io.Pipe()
	go func() {
		_, _ = sink.Write([]byte("HEAD\n")) // it runs when this is taken
		cancelSoon(errBroken)
	}()
	for name, c := range map[string]struct {
		ctx     context.Context
		child   child
		started func(cmd *exec.Cmd)
		wrong   func(err error) bool
	}{
		"nothing": {child: look(head()), wrong: func(err error) bool { return err == nil }},
		"no pipe": {child: look(head()), started: func(cmd *exec.Cmd) { cmd.Stdin = strings.NewReader("") }, wrong: func(err error) bool { return errors.Is(err, ErrGit) }},
		"no program": {child: look(head()), started: func(cmd *exec.Cmd) { cmd.Path = "/nonexistent" }, wrong: func(err error) bool {
			return errors.Is(err, ErrGit) && errors.Is(err, fs.ErrNotExist)
		}},
		"half an input": {
			child: look(io.MultiReader(head(), iotest.ErrReader(errBroken))),
			wrong: func(err error) bool { return errors.Is(err, errBroken) },
		},
		"half an input, and nobody minds": {
			child:   look(iotest.ErrReader(errBroken)),
			started: func(cmd *exec.Cmd) { cmd.Cancel = func() error { return os.ErrProcessDone } },
			wrong:   func(err error) bool { return errors.Is(err, errBroken) },
		},
		"it is over": {ctx: over, child: look(head()), wrong: func(err error) bool { return errors.Is(err, errBroken) && !errors.Is(err, ErrGit) }},
		"it ends meanwhile": {ctx: soon, child: look(source), wrong: func(err error) bool {
			var failed *childError
			return errors.Is(err, errBroken) && !errors.As(err, &failed)
		}},
		"it fails": {child: child{dir: here, args: []string{"cat-file", "-e", "nowhere"}}, wrong: func(err error) bool {
			var failed *childError
			return errors.As(err, &failed) && failed.verdict() && !failed.fileTooLarge() && !errors.Is(err, ErrGit)
		}},
		"it is killed": {child: look(head()), started: func(cmd *exec.Cmd) { cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", "kill -9 $$"} }, wrong: func(err error) bool {
			var failed *childError
			return errors.As(err, &failed) && !failed.verdict() && !failed.fileTooLarge()
		}},
		"a line without an end": {
			child:   child{dir: here, args: []string{"cat-file"}, each: func([]byte) {}},
			started: func(cmd *exec.Cmd) { cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", "head -c 100000 /dev/zero"} },
			wrong:   func(err error) bool { return err != nil },
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := fetcher(t, Config{})
			f.git.started = c.started
			ctx := c.ctx
			if ctx == nil {
				ctx = t.Context()
			}
			c.child.long = true
			out, err := f.git.runNow(ctx, c.child)
			require.True(t, c.wrong(err), "%v", err)
			require.Equal(t, err == nil, len(out) > 0)
			f.idle(t)
		})
	}
}

// What a child says is kept up to a bound, lines are passed on one by one however they come,
// and the end of what it complains about is what a log has.
func TestWhatAChildSays(t *testing.T) {
	for _, n := range []int{9, 10, 11} {
		c := &capped{most: 10}
		for _, part := range []int{n / 2, n - n/2} {
			done, err := c.Write(make([]byte, part))
			require.NoError(t, err)
			require.Equal(t, part, done)
		}
		require.Equal(t, min(n, 10), c.b.Len())
		require.Equal(t, n > 10, c.over)
	}
	text := "one\n\nthree\nfour"
	for size := 1; size <= len(text); size++ {
		var got []string
		s := &splitter{each: func(line []byte) { got = append(got, string(line)) }}
		for i := 0; i < len(text); i += size {
			part := text[i:min(i+size, len(text))]
			n, err := s.Write([]byte(part))
			require.NoError(t, err)
			require.Len(t, part, n)
		}
		require.Equal(t, []string{"one", "", "three"}, got)
		require.Equal(t, "four", string(s.rest))
	}
	s := &splitter{each: func([]byte) {}}
	_, err := s.Write(make([]byte, 4<<10))
	require.NoError(t, err, "exactly as long as a line may be")
	_, err = s.Write([]byte{0})
	require.Error(t, err)
	for n := 298; n < 303; n++ {
		words := fmt.Sprintf("%0*d", n, 7)
		require.Equal(t, words[max(0, n-300):], lastOf(" "+words+"\n"))
	}
	require.Equal(t, `a\x1b"b`, lastOf("a\x1b\"b"))
}

// A pack that is made anew may be as large as those that came and a little more, and with what
// is copied as large as all that is there, twice.
func TestMostOfAPackThatIsMadeAnew(t *testing.T) {
	here := bare(t, nip34.SHA1)
	history(t, here, "main", 3)
	git(t, here, "repack", "-dq", "main~1")
	f := fetcher(t, Config{})
	q, err := f.quarantines.open(here)
	require.NoError(t, err)
	came := int64(0)
	for i, size := range []int{1000, 20, 0} {
		require.NoError(t, os.WriteFile(filepath.Join(q.packs(), fmt.Sprint(i)), make([]byte, size), 0o600))
		came += int64(size)
	}
	names, err := q.content()
	require.NoError(t, err)
	most, err := q.mostOf(names, false)
	require.NoError(t, err)
	require.Equal(t, came+64<<10, most)
	there := int64(0)
	require.NoError(t, filepath.WalkDir(filepath.Join(here, "objects"), func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			info, err := d.Info()
			require.NoError(t, err)
			there += info.Size()
		}
		return err
	}))
	require.Positive(t, there)
	most, err = q.mostOf(names, true)
	require.NoError(t, err)
	require.Equal(t, 2*(came+there)+64<<10, most)
	_, err = q.mostOf(map[string]bool{"gone": true}, false)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, q.Discard())
}

// An index that is cut off, or is none, is an error wherever one is read: what it does not say
// must not be taken for what is not there.
func TestBrokenIndexes(t *testing.T) {
	folder := t.TempDir()
	const n = 300
	path := func(name string) string { return filepath.Join(folder, name+".idx") }
	writeIndex(t, path("whole"), n, evenly(n))
	data, err := os.ReadFile(path("whole"))
	require.NoError(t, err)
	f := fetcher(t, Config{})
	for name, broken := range map[string]struct {
		data []byte
		open bool // that is seen only when it is looked into
	}{
		"empty":     {},
		"head":      {data: data[:barerepo.IndexFanout-1]},
		"mark":      {data: append([]byte("x"), data[1:]...)},
		"version":   {data: append([]byte("\xfftOc\x00\x00\x00\x01"), data[8:]...)},
		"cut off":   {data: data[:barerepo.IndexFanout+20*n-1], open: true},
		"fans only": {data: data[:barerepo.IndexFanout], open: true},
	} {
		require.NoError(t, os.WriteFile(path("broken"), broken.data, 0o600))
		_, err := readIndex(broken.data, 20)
		require.ErrorIs(t, err, barerepo.ErrIndex, name)
		_, err = f.objects.readIndexes(folder, map[string]bool{"whole.idx": true, "broken.idx": true, "whole.pack": true}, 20)
		require.ErrorIs(t, err, barerepo.ErrIndex, name)
		open, closeAll, err := barerepo.OpenIndexes(f.disk.files, folder, []string{"whole", "broken"}, 20)
		if !broken.open {
			require.Error(t, err, name)
			require.Empty(t, open)
			closeAll()
			continue
		}
		require.NoError(t, err, name)
		last := evenly(n)(n - 1)
		_, err = open[1].Has(last[:])
		require.Error(t, err, name)
		closeAll()
		_, err = open[0].Has(last[:])
		require.ErrorIs(t, err, fs.ErrClosed)
	}
	_, err = readIndex(data, 20)
	require.NoError(t, err)
	exact, err := readIndex(data[:barerepo.IndexFanout+20*n], 20)
	require.NoError(t, err)
	require.Equal(t, n, exact.len())
}

// What may take longer than ten seconds is one that takes long: a walk, unless it ends before
// that. The bound of its watch goes before that of its context.
func TestWhatTakesLong(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct {
			walk           bool
			watch, context time.Duration // zero: none
			long           bool
		}{
			{true, 0, 0, true},
			{false, 0, 0, false},
			{true, 0, 10 * time.Second, false},
			{true, 0, 10*time.Second + 1, true},
			{false, 0, time.Hour, false},
			{true, 10 * time.Second, 0, false},
			{true, 10*time.Second + 1, 0, true},
			{true, 10*time.Second + 1, time.Second, true},
			{true, 10 * time.Second, time.Hour, false},
			{false, time.Hour, 0, false},
		} {
			ctx, end := t.Context(), func() {}
			if c.context > 0 {
				ctx, end = context.WithTimeout(ctx, c.context)
			}
			over := func() {}
			if c.watch > 0 {
				ctx, over = stopwatch.New(time.Hour, errCrowded).Limit(ctx, c.watch, errCrowded)
			}
			s := newSlots(4)
			release, err := s.acquire(ctx, "/a/b", c.walk)
			require.NoError(t, err)
			require.Equal(t, c.long, s.long == 1, "%+v", c)
			require.Equal(t, c.walk, s.walks == 1, "%+v", c)
			release()
			require.Zero(t, s.long+s.walks+s.running)
			over()
			end()
		}
	})
}

// To ask for nothing is a fault of ours, for which no server is asked.
func TestFetchOfNothing(t *testing.T) {
	here := sample(t)
	o := serve(t, here, nil)
	f := fetcher(t, Config{})
	q, err := f.quarantines.open(here)
	require.NoError(t, err)
	n, err := q.Fetch(t.Context(), o.clone(t), nil)
	require.ErrorIs(t, err, errNothing)
	require.Zero(t, n)
	require.Empty(t, o.seen())
	missing, err := q.Missing(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, missing)
	require.NoError(t, q.Discard())
	f.idle(t)
}

// What a child writes for strangers is bounded before it has read a byte of theirs: a copy
// by what its objects take up where they are, a pack that is made anew by what came.
func TestFilesOfChildrenAreBounded(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("no such limit")
	}
	from, to := bare(t, nip34.SHA1), bare(t, nip34.SHA1)
	tip := history(t, from, "main", 5)[4] // in no pack, so that it is copied
	size, err := strconv.ParseInt(gitIn(t, from, tip.String()+"\n", "rev-list", "--objects", "--disk-usage", "--stdin"), 10, 64)
	require.NoError(t, err)
	f := fetcher(t, Config{})
	seen := filepath.Join(t.TempDir(), "limits")
	f.git.started = func(cmd *exec.Cmd) {
		if slices.Contains(cmd.Args, "pack-objects") {
			cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", "read x; cat /proc/self/limits >> " + seen + "; exit 1"}
		}
	}
	limits := func() (file, memory int64) {
		data, err := os.ReadFile(seen)
		require.NoError(t, err)
		require.NoError(t, os.Remove(seen))
		for line := range strings.Lines(string(data)) {
			words := strings.Fields(line)
			switch {
			case strings.HasPrefix(line, "Max file size"):
				file, err = strconv.ParseInt(words[3], 10, 64)
			case strings.HasPrefix(line, "Max data size"):
				memory, err = strconv.ParseInt(words[3], 10, 64)
			}
			require.NoError(t, err, line)
		}
		return file, memory
	}
	require.Error(t, f.Share(t.Context(), from, to, []nip34.ObjectID{tip}))
	file, memory := limits()
	require.Equal(t, 4*size+64<<10, file)
	require.EqualValues(t, 64<<20, memory)
	require.Empty(t, leftovers(t, to))
	q, err := f.quarantines.open(to)
	require.NoError(t, err)
	q.complete = []nip34.ObjectID{tip}
	_, err = q.pack(t.Context(), nil, 12345)
	require.Error(t, err)
	file, memory = limits()
	require.EqualValues(t, 12345, file)
	require.EqualValues(t, 64<<20, memory)
	require.NoError(t, q.Discard())
	f.idle(t)
}

// Who collects garbage says so with his number and host, and is believed for half a day, if he
// is alive.
func TestWhoCollects(t *testing.T) {
	dir := t.TempDir()
	require.False(t, collecting(dir))
	host, err := os.Hostname()
	require.NoError(t, err)
	gone := exec.Command("true")
	require.NoError(t, gone.Run())
	for note, want := range map[string]bool{
		fmt.Sprintf("%d %s", os.Getpid(), host):           true,
		fmt.Sprintf("%d %s\n", os.Getpid(), host):         true,
		fmt.Sprintf("%d %s.elsewhere", os.Getpid(), host): false,
		fmt.Sprintf("%d %s", gone.Process.Pid, host):      false,
		"":           false,
		"x " + host:  false,
		"0 " + host:  false,
		"-1 " + host: false,
	} {
		path := filepath.Join(dir, "gc.pid")
		require.NoError(t, os.WriteFile(path, []byte(note), 0o600))
		require.Equal(t, want, collecting(dir), "%q", note)
		for age, believed := range map[time.Duration]bool{12*time.Hour - time.Minute: true, 12*time.Hour + time.Minute: false} {
			at := time.Now().Add(-age)
			require.NoError(t, os.Chtimes(path, at, at))
			require.Equal(t, want && believed, collecting(dir), "%q %v", note, age)
		}
	}
}
