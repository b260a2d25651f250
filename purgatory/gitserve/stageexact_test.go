package gitserve

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// uploading is a push with something for an event that is not here, up to where git is run.
func uploading(t *testing.T, r *rig, text string, lines ...string) (*upload, *arrival) {
	t.Helper()
	ref := owner.Ref("x")
	b, err := incomingBody(t, r.git, strings.NewReader(packet(lines...)+text), math.MaxInt64, math.MaxInt64, "")
	require.NoError(t, err)
	t.Cleanup(b.close)
	req, err := readRequest(b, 100, maxCommandBytes)
	require.NoError(t, err)
	said, err := judge(t.Context(), r.git.auth, ref, req.commands)
	require.NoError(t, err)
	var ids []graspsync.EventID
	for _, c := range req.commands {
		if id, ok := eventOf(c.ref); ok {
			ids = append(ids, id)
		}
	}
	a, err := r.repos.staging.begin(ref, "c", ids)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, a.end()) })
	v := &visit{of: newVisits(r.git.cfg, math.MaxInt64), who: party{client: "c", network: "c", owner: "o", repo: "r"}}
	return &upload{ref: ref, dir: r.dir(), visit: v, body: b, req: req, said: said}, a
}

// What is packed anew for git may be as large as a push, and there must be room for it once
// more: not a byte less.
func TestBoundsOfARestThatIsPacked(t *testing.T) {
	r := newRig(t, Config{MinFreeDisk: 1000})
	tip, _ := r.file(t, "f", random(t, 5000))
	r.says(map[string]string{"refs/heads/main": tip})
	git(t, r.work, "push", "-q", r.repo(), "main")
	p, a := uploading(t, r, "", null+" "+tip+" refs/nostr/"+stranger(1)+"\x00report-status")
	free := uint64(1 << 40)
	r.git.disk.free = func(string) (uint64, error) { return free, nil }
	pack := func(ctx context.Context, revisions string) (int64, error) {
		file, err := r.git.disk.scratch()
		require.NoError(t, err)
		defer file.Close()
		err = r.git.packRest(ctx, p, a, strings.NewReader(revisions), file)
		info, serr := file.Stat()
		require.NoError(t, serr)
		return info.Size(), err
	}
	size, err := pack(t.Context(), tip+"\n")
	require.NoError(t, err)
	require.Greater(t, size, int64(5000))
	for most, fits := range map[int64]bool{size: true, size - 1: false, size / 2: false} {
		r.git.cfg.MaxPush = most
		_, err := pack(t.Context(), tip+"\n")
		if fits {
			require.NoError(t, err)
			continue
		}
		require.Equal(t, &limitError{most}, err)
	}
	r.git.cfg.MaxPush = 1 << 30
	for left, fits := range map[uint64]bool{1000 + uint64(size): true, 1000 + uint64(size) - 1: false} {
		free = left
		_, err := pack(t.Context(), tip+"\n")
		require.Equal(t, fits, err == nil, left)
		require.Equal(t, !fits, errors.Is(err, errDisk))
	}
	free = 1 << 40
	_, err = pack(t.Context(), two+"\n")
	require.Equal(t, &refusedError{why: "missing necessary objects"}, err)
	over, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = pack(over, tip+"\n")
	require.ErrorIs(t, err, context.Canceled)
	r.git.git.started = func(cmd *exec.Cmd) { cmd.Path = "/nonexistent" }
	_, err = pack(t.Context(), tip+"\n")
	require.ErrorIs(t, err, os.ErrNotExist)
	var refused *refusedError
	require.False(t, errors.As(err, &refused), "that is not for who pushed to mend")
}

// The body that is made for git has just those commands, a pack only where something is set,
// and is read from its beginning.
func TestBodyOfARest(t *testing.T) {
	r := newRig(t, Config{})
	tip, _ := r.file(t, "f", "text")
	r.says(map[string]string{"refs/heads/main": r.tip})
	git(t, r.work, "push", "-q", r.repo(), r.tip+":refs/heads/main")
	git(t, r.work, "push", "-q", r.dir(), tip+":refs/tags/there") // its objects
	git(t, r.dir(), "update-ref", "-d", "refs/tags/there")
	p, a := uploading(t, r, "", null+" "+tip+" refs/nostr/"+stranger(1)+"\x00report-status")
	body := func(commands ...command) (request, []byte) {
		file, err := r.git.restOf(t.Context(), p, a, commands)
		require.NoError(t, err)
		defer file.Close()
		req, err := readRequest(file, 10, 1<<20)
		require.NoError(t, err)
		rest, err := io.ReadAll(file)
		require.NoError(t, err)
		return req, rest
	}
	name, err := nip34.ParseRefName("refs/heads/main")
	require.NoError(t, err)
	old, err := nip34.ParseObjectID(r.tip)
	require.NoError(t, err)
	updated, err := nip34.ParseObjectID(tip)
	require.NoError(t, err)
	req, rest := body(command{ref: name, old: old})
	require.Len(t, req.commands, 1)
	require.Empty(t, rest, "nothing is to be packed")
	req, rest = body(command{ref: name, old: old, new: updated})
	require.Len(t, req.commands, 1)
	require.True(t, bytes.HasPrefix(rest, []byte("PACK")))
	require.Equal(t, byte(3), rest[11], "a commit, a tree and a file: the rest is here")
	req, rest = body(command{ref: name, old: old, new: old})
	require.Len(t, req.commands, 1)
	require.Equal(t, byte(0), rest[11])
}

// All that came must be what it says, each of it; what is not is told once.
func TestTipsOfAnUpload(t *testing.T) {
	var log strings.Builder
	r := newRig(t, Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	r.says(map[string]string{"refs/heads/main": r.tip})
	git(t, r.work, "push", "-q", r.repo(), "main")
	id := func(s string) nip34.ObjectID {
		id, err := nip34.ParseObjectID(s)
		require.NoError(t, err)
		return id
	}
	p, a := uploading(t, r, "no pack", null+" "+r.tip+" refs/nostr/"+stranger(1)+"\x00report-status")
	for _, c := range []struct {
		tips []string
		has  bool
	}{{[]string{r.tip}, true}, {[]string{r.tip, r.tip}, true}, {[]string{two}, false}, {[]string{r.tip, two}, false}, {[]string{two, r.tip}, false}} {
		var commands []command
		for _, tip := range c.tips {
			commands = append(commands, command{new: id(tip)})
		}
		err := r.git.hasTips(t.Context(), p, a, commands)
		require.Equal(t, c.has, err == nil, "%v", c.tips)
		if !c.has {
			require.Equal(t, &refusedError{why: "missing necessary objects"}, err)
		}
	}
	require.NoError(t, p.body.readAll())
	err := r.git.indexStaged(t.Context(), p, a, 0)
	require.Equal(t, &refusedError{why: "git did not take the pack: it is broken, too much work, or lacks objects"}, err)
	require.Contains(t, log.String(), "git index-pack: exit status 128: ")
}

// Uploads are the last for whom the processor is, and what git says of them is kept to its end.
func TestUploadsAreNice(t *testing.T) {
	r := newRig(t, Config{})
	p, a := uploading(t, r, "", null+" "+r.tip+" refs/nostr/"+stranger(1)+"\x00report-status")
	r.git.git.path = filepath.Join(t.TempDir(), "git")
	require.NoError(t, os.WriteFile(r.git.git.path, []byte("#!/bin/sh\nread x\nnice\necho \"$GIT_OBJECT_DIRECTORY\"; echo \"$GIT_ALTERNATE_OBJECT_DIRECTORIES\"\npwd\n"), 0o700))
	in, feed := io.Pipe()
	go func() { // when it runs, it has its priority
		_, _ = feed.Write([]byte("x\n"))
		_ = feed.Close()
	}()
	out, err := r.git.aside(t.Context(), p, a, in, nil, "verb")
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	require.Len(t, lines, 4)
	require.Contains(t, []string{"10", niceness(t)}, lines[0], "it may have asked before")
	require.Equal(t, filepath.Join(r.repos.dir, a.folder), filepath.Join(p.dir, lines[1]))
	require.Equal(t, []string{"objects", p.dir}, lines[2:])
}

// niceness is our own.
func niceness(t *testing.T) string {
	t.Helper()
	out, err := exec.Command("nice").Output()
	require.NoError(t, err)
	return strings.TrimSpace(string(out))
}

// A push that came whole needs as much room once more, and each 8 MiB of one that comes asks
// for it.
func TestRoomForAnUpload(t *testing.T) {
	r := newRig(t, Config{MinFreeDisk: 1000})
	const text = "so many bytes"
	line := null + " " + r.tip + " refs/nostr/" + stranger(1) + "\x00report-status"
	size := uint64(len(packet(line)) + len(text))
	for _, staging := range []bool{true, false} {
		for free, fits := range map[uint64]bool{1000 + size: true, 1000 + size - 1: false, 999: false} {
			p, a := uploading(t, r, text, line)
			looks := 0
			r.git.disk.free = func(string) (uint64, error) {
				looks++
				return free, nil
			}
			var err error
			if staging {
				err = r.git.receiveStaged(p.body, a)
			} else {
				err = r.git.receive(p.body, nil)
			}
			require.Equal(t, fits, err == nil, "%d", free)
			require.Equal(t, !fits, errors.Is(err, errDisk))
			want := 2
			if free < 1000 {
				want = 1
			}
			require.Equal(t, want, looks)
			require.NoError(t, a.end())
		}
	}
}

// Who may not have more is cut off at the byte, and told what helps; what others took is no
// reason.
func TestQuotaIsChargedAsItComes(t *testing.T) {
	r := rigWith(t, RepositoriesConfig{fixed: folderNumbers{MaxStagedPerClient: 100_000}}, Config{Client: byHeader})
	line := null + " " + r.tip + " refs/nostr/" + stranger(1) + "\x00report-status"
	for size, fits := range map[int]bool{100_000: true, 100_001: false} {
		p, a := uploading(t, r, strings.Repeat("x", size-len(packet(line))), line)
		err := r.git.receiveStaged(p.body, a)
		require.Equal(t, fits, err == nil, size)
		if !fits {
			var quota *quotaError
			require.ErrorAs(t, err, &quota)
			require.Equal(t, "you have pushed too much for events that are not here: publish the event first", quota.Error())
			require.NoError(t, a.end())
			continue
		}
		require.EqualValues(t, size, a.bytes())
		require.Zero(t, a.left())
		require.NoError(t, a.measure())
		require.EqualValues(t, 65536, a.bytes(), "what lies there is what counts")
		require.EqualValues(t, 100_000-65536, a.left())
		require.NoError(t, os.WriteFile(filepath.Join(r.repos.dir, a.folder, "pack", "x"), make([]byte, 70_000), 0o600))
		require.NoError(t, os.WriteFile(filepath.Join(r.repos.dir, a.folder, "y"), make([]byte, 5), 0o600))
		require.NoError(t, a.measure())
		require.EqualValues(t, 70_005, a.bytes())
		require.NoError(t, os.Remove(filepath.Join(r.repos.dir, a.folder, "y")))
		require.NoError(t, a.end())
	}
	require.EqualValues(t, 1, r.repos.staging.refused["client"])
	reasons := make([]string, 0, len(r.repos.staging.refused))
	for reason := range r.repos.staging.refused {
		reasons = append(reasons, reason)
	}
	slices.Sort(reasons)
	require.Equal(t, "[all client event repository]", fmt.Sprint(reasons))
}

// A file that can't be looked at, read or written any more is a fault of ours: it is told as
// one, and nothing is done.
func TestFilesThatAreGone(t *testing.T) {
	r := newRig(t, Config{})
	line := null + " " + r.tip + " refs/nostr/" + event + "\x00report-status"
	p, a := uploading(t, r, "", line)
	closed, err := r.git.disk.scratch()
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	for name, do := range map[string]func() error{
		"pack": func() error { return r.git.packRest(t.Context(), p, a, strings.NewReader(""), closed) },
		"push": func() error {
			_, err := r.git.pushRest(t.Context(), p, closed)
			return err
		},
		"change": func() error {
			w := &answered{header: make(map[string][]string)}
			refused, told, err := r.git.change(t.Context(), w, p.visit, p.ref, p.req, call{body: closed})
			require.Empty(t, refused)
			require.False(t, told)
			require.Zero(t, w.body.Len())
			return err
		},
		"index": func() error {
			b := *p.body
			b.file = closed
			return r.git.indexStaged(t.Context(), &upload{ref: p.ref, dir: p.dir, visit: p.visit, body: &b}, a, 0)
		},
		"body": func() error {
			b, err := incomingBody(t, r.git, strings.NewReader(""), 10, 10, "")
			require.NoError(t, err)
			b.close()
			return b.readAll()
		},
		"kept": func() error {
			b, err := incomingBody(t, r.git, strings.NewReader("x"), 10, 10, "")
			require.NoError(t, err)
			b.close()
			return b.readAll()
		},
	} {
		err := do()
		require.ErrorIs(t, err, os.ErrClosed, name)
		require.ErrorContains(t, err, "a request: ", name)
	}
	git(t, r.work, "push", "-q", r.dir(), r.tip+":refs/nostr/"+event) // it is where it is to be
	require.ErrorIs(t, r.repos.prepare(p.ref, p.req, closed), os.ErrClosed)
	require.NoFileExists(t, filepath.Join(r.repos.dir, mark(p.ref)))
}

// While a push that is done waits for its events it takes nothing any more: no room of its owner
// and no file but that of its answer.
func TestPushThatWaitsTakesNothing(t *testing.T) {
	r := rigWith(t, RepositoriesConfig{MaxOwnerBytes: 1 << 30}, Config{})
	n := &noted{folder: r.repos.root}
	r.git.tasks.mu.Lock() // which each request takes
	r.repos.root = n
	asked := 0
	r.git.auth = settling{r.authority, func(context.Context) error {
		asked++
		c := r.repos.ceiling
		c.mu.Lock()
		s := c.sizes[owner.Hex()]
		c.mu.Unlock()
		open := 0
		n.mu.Lock()
		for _, file := range n.open {
			if _, err := file.Stat(); err == nil {
				open++
			}
		}
		n.mu.Unlock()
		if s.bytes != s.measured || s.ends != 1 || open != 1 {
			return fmt.Errorf("%+v, %d files", s, open)
		}
		return nil
	}}
	var log strings.Builder
	r.git.cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
	r.git.failures.log = r.git.cfg.Logger
	r.git.tasks.mu.Unlock()
	r.says(map[string]string{"refs/heads/main": r.tip})
	git(t, r.work, "push", "-q", r.repo(), "main")
	r.git.Close()
	require.Equal(t, 1, asked)
	require.Empty(t, log.String())
	n.closed(t, "a push")
}
