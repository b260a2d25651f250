package gitserve

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/purgatory/internal/gitrun"
)

// environment is what git sees of ours.
var environment = gitrun.Environment()

// settings are the configuration of git and of what it starts.
func settings() []string { return append(gitrun.Settings(), constants...) }

// constants are those of serving.
var constants = []string{
	// What packing for a client takes must fit into the limit of memory, whatever the
	// number of processors is.
	"-c", "pack.threads=1",
	"-c", "receive.advertisePushOptions=false",
	"-c", "uploadpack.allowTipSHA1InWant=true",
	"-c", "uploadpack.allowReachableSHA1InWant=true",
	"-c", "uploadpack.allowFilter=true",
	// Those filters that clients use. Others have git compare every path with a list of the
	// client's choice, or do several of them at once.
	"-c", "uploadpackfilter.allow=false",
	"-c", "uploadpackfilter.blob:none.allow=true",
	"-c", "uploadpackfilter.blob:limit.allow=true",
	"-c", "uploadpackfilter.tree.allow=true",
	"-c", "uploadpackfilter.tree.maxDepth=0",
	"-c", "uploadpackfilter.object:type.allow=true",
}

// call is a request that git answers. Nothing in it is a client's text.
type call struct {
	dir      string   // of the repository
	args     []string // a service of git, and its options
	kind     string   // content type of the answer
	prefix   string   // of the answer
	protocol string   // version of the git protocol; empty for the first
	body     *os.File
	cpu      time.Duration // that each process may have; in full seconds
	memory   int64         // that each process may have, in bytes
}

// shell sets the limits, and sees to it that nothing is left.
const shell = "/bin/sh"

// guard is what runs git: with limits to the files that it writes, its time and its
// memory, which hold from its first moment on and for all that it starts: to set them when
// it runs may be too late for that. When its third file comes to an end, which it does
// when we are killed, whatever kills us, the whole process group goes: git must not move
// refs when nobody has the lock any more.
const guard = `{ [ -z "$1" ] || ulimit -f "$1"; } && ulimit -t "$2" && ` + gitrun.ShellMemoryLimit + `shift 3 || exit 125
{ read -r x; kill -KILL 0; } <&3 >/dev/null 2>&1 &
"$@" 3<&-
status=$?
kill $! && wait $! 2>/dev/null
exit $status`

// limits are those of each process.
type limits struct {
	memory int64         // bytes
	cpu    time.Duration // in full seconds
	file   int64         // bytes of each file that it writes; zero: no limit
}

// fetchMemory is the memory of the processes of a fetch, and of each: pack-objects needs some 300 bytes for
// each object, upload-pack may be made to need as much, and each reads the request.
func (g *program) fetchMemory(dir string, request int64) (all, each int64) {
	objects, unpacked := gitrun.Packs(dir)
	each = min(16<<20+max(8<<20, 320*objects)+unpacked+4*request, g.memory.Part/2-besides/2)
	return 2*each + besides, each
}

// pushMemory is the memory of a run of git for a push of so many bytes, and of each process of it. What comes may be
// deltas of large objects in the repository.
func (g *program) pushMemory(dir string, size int64) (all, each int64) {
	_, unpacked := gitrun.Packs(dir)
	all = min(256<<20+2*size+unpacked, g.memory.Part)
	return all, all - besides
}

// besides is the memory of the processes beside those that need much.
const besides = 16 << 20

// program is the git that is run. It is safe for concurrent use.
type program struct {
	path     string
	settings []string
	memory   *gitrun.Memory
	lock     *os.File // of the folder of all repositories
	// started, for tests, nil otherwise: which child is about to start.
	started func(cmd *exec.Cmd)
}

// guarded makes a command one that runs below the guard, with limits. It ends when release
// is called, at the latest.
func (g *program) guarded(ctx context.Context, l limits, line ...string) (cmd *exec.Cmd, release func(), err error) {
	life, ours, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	const block = 512 // of a file, by POSIX
	file := ""
	if l.file > 0 {
		file = strconv.FormatInt(l.file/block+1, 10)
	}
	cmd = exec.CommandContext(ctx, shell, append([]string{
		"-c", guard, "sh", file, strconv.FormatInt(int64(l.cpu/time.Second)+1, 10), strconv.FormatInt(l.memory>>10, 10),
	}, line...)...)
	// Whoever has the folder open has its lock: the next to open it waits for git.
	cmd.ExtraFiles = []*os.File{life, g.lock}
	gitrun.Group(cmd)
	if g.started != nil {
		g.started(cmd)
	}
	return cmd, func() { _, _ = life.Close(), ours.Close() }, nil
}

// serve has git answer a request. When ctx ends, or the client takes nothing any more, its whole process group
// is killed. begun reports whether something was answered.
func (g *program) serve(ctx context.Context, w http.ResponseWriter, c call) (begun bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	line := append(append([]string{g.path}, g.settings...), append(c.args, ".")...)
	cmd, release, err := g.guarded(ctx, limits{memory: c.memory, cpu: c.cpu}, line...)
	if err != nil {
		return false, fmt.Errorf("running git: %w", err)
	}
	defer release()
	said := &tail{}
	cmd.Dir, cmd.Stderr = c.dir, said
	cmd.Env = append([]string{gitrun.AllocLimit(uint64(c.memory / 2)), "GIT_PROTOCOL=" + c.protocol}, environment...)
	if c.body != nil { // not a nil that is an io.Reader
		cmd.Stdin = c.body
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = startNice(cmd)
	}
	if err != nil {
		return false, fmt.Errorf("running git: %w", err)
	}
	noCache(w.Header(), c.kind)
	answer := bufio.NewReader(out)
	if _, eof := answer.Peek(1); eof == nil {
		begun = true
		if _, err = io.Copy(flusher{w, http.NewResponseController(w)}, io.MultiReader(strings.NewReader(c.prefix), answer)); err != nil {
			err = fmt.Errorf("answering: %w", err)
			cancel()
		}
	}
	if werr := cmd.Wait(); werr != nil && err == nil {
		err = fmt.Errorf("git %s: %w: %s", c.args[0], werr, said)
		if why := said.reasons(); requestFault.MatchString(why) {
			err = &faultError{why}
		}
	}
	return begun, err
}

// requestFault matches what git upload-pack writes of a request that it does not understand, or cannot do.
var requestFault = regexp.MustCompile("protocol error|unknown capability|no command requested|invalid command|already requesting command|" +
	"unexpected line|mismatched object format|remote end hung up|expected SHA1|invalid shallow|[Dd]eepen|not negotiated|" +
	"no commits selected|filter|not our ref|unadvertised object")

// inside is a run of git in a repository that is not for a client: extra is what it has in
// its environment besides. It ends when release is called, at the latest.
func (g *program) inside(ctx context.Context, l limits, dir string, extra []string, args ...string) (cmd *exec.Cmd, release func(), err error) {
	cmd, release, err = g.guarded(ctx, l, append(append([]string{g.path, "--git-dir=."}, g.settings...), args...)...)
	if err != nil {
		return nil, nil, fmt.Errorf("running git: %w", err)
	}
	cmd.Dir = dir
	cmd.Env = append(append([]string{gitrun.AllocLimit(uint64(l.memory / 2))}, extra...), environment...)
	return cmd, release, nil
}

// strangersNice is the priority of what anybody may ask for: everything else goes first.
const strangersNice = 10

// startNice starts a command at that priority.
func startNice(cmd *exec.Cmd) error {
	err := cmd.Start()
	if err == nil {
		_ = syscall.Setpriority(syscall.PRIO_PGRP, cmd.Process.Pid, strangersNice) // without it, it only disturbs more
	}
	return err
}

// weighPulls says how much of a repository only pull requests need, in bytes.
func (g *program) weighPulls(ctx context.Context, dir string) (int64, error) {
	bytes := g.memory.Walk(dir)
	memory, err := g.memory.Acquire(ctx, limit.Stranger{}, bytes)
	if err != nil {
		return 0, fmt.Errorf("waiting for memory to run git: %w", err)
	}
	defer memory.Release()
	cmd, release, err := g.inside(ctx, limits{memory: bytes, cpu: weighMost, file: 1}, dir, nil,
		"rev-list", "--objects", "--disk-usage", "--glob=refs/nostr", "--not", "--branches", "--tags")
	if err != nil {
		return 0, err
	}
	defer release()
	said := &tail{}
	cmd.Stderr = said
	out, err := cmd.Output()
	if err != nil {
		return 0, fmt.Errorf("git rev-list: %w: %s", err, said)
	}
	return strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
}

// noCache sets the headers of an answer that changes.
func noCache(h http.Header, kind string) {
	h.Set("Content-Type", kind)
	h.Set("Cache-Control", "no-cache, max-age=0, must-revalidate")
	h.Set("Expires", "Fri, 01 Jan 1980 00:00:00 GMT")
	h.Set("Pragma", "no-cache")
}

// flusher sends at once what is written: a client that waits for progress sees some.
type flusher struct {
	w http.ResponseWriter
	c *http.ResponseController
}

// Write implements [io.Writer].
func (f flusher) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	if ferr := f.c.Flush(); err == nil && !errors.Is(ferr, http.ErrNotSupported) {
		err = ferr
	}
	return n, err
}

// tail keeps the end of what is written to it.
type tail struct {
	b bytes.Buffer
	n atomic.Int64 // bytes that were written
	// also, if not nil, gets all of it.
	also io.Writer
}

const maxTail = 300

// Write implements [io.Writer].
func (t *tail) Write(p []byte) (int, error) {
	t.n.Add(int64(len(p)))
	t.b.Write(p)
	if t.also != nil {
		_, _ = t.also.Write(p)
	}
	if over := t.b.Len() - maxTail; over > 0 {
		t.b.Next(over)
	}
	return len(p), nil
}

// String returns it fit for a log: git repeats what strangers wrote.
func (t *tail) String() string { return strconv.QuoteToASCII(t.b.String()) }

// reasons returns the errors that git has written, in one line.
func (t *tail) reasons() string {
	var out []string
	for line := range strings.FieldsFuncSeq(t.b.String(), func(r rune) bool { return r == '\n' || r == '\r' }) {
		if _, text, ok := strings.Cut(line, ": "); ok && (strings.HasPrefix(line, "error") || strings.HasPrefix(line, "fatal")) {
			out = append(out, text)
		}
	}
	return graspsync.Printable(strings.Join(out, "; "))
}
