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
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/purgatory/internal/gitrun"
)

var environment = gitrun.Environment()

func settings() []string { return append(gitrun.Settings(), constants...) }

// constants are the configuration options for serving.
var constants = []string{
	// Packing must fit into the memory limit on any number of processors.
	"-c", "pack.threads=1",
	"-c", "receive.advertisePushOptions=false",
	"-c", "uploadpack.allowTipSHA1InWant=true",
	"-c", "uploadpack.allowReachableSHA1InWant=true",
	"-c", "uploadpack.allowFilter=true",
	// Only the filters that clients use are allowed. Other filters compare each path with a list
	// that the client chooses.
	"-c", "uploadpackfilter.allow=false",
	"-c", "uploadpackfilter.blob:none.allow=true",
	"-c", "uploadpackfilter.blob:limit.allow=true",
	"-c", "uploadpackfilter.tree.allow=true",
	"-c", "uploadpackfilter.tree.maxDepth=0",
	"-c", "uploadpackfilter.object:type.allow=true",
}

// call is a request for git to answer. It contains no text of clients.
type call struct {
	dir      string   // folder of the repository
	args     []string // git service with options
	kind     string   // content type of the answer
	prefix   string   // start of the answer
	protocol string   // git protocol version; empty: version 0
	body     *os.File
	cpu      time.Duration // limit of each process, in full seconds
	memory   int64         // limit of each process, in bytes
}

const shell = "/bin/sh"

// guard is a shell script that runs git with limits of file size, CPU time and memory. The shell
// sets the limits, so they apply to git and all its children from the start. File descriptor 3
// reaches EOF when this process ends, even by kill -9. The guard then kills the process group,
// because git must not move refs without the lock.
const guard = `{ [ -z "$1" ] || ulimit -f "$1"; } && ulimit -t "$2" && ` + gitrun.ShellMemoryLimit + `shift 3 || exit 125
{ read -r x; kill -KILL 0; } <&3 >/dev/null 2>&1 &
"$@" 3<&-
status=$?
kill $! && wait $! 2>/dev/null
exit $status`

type limits struct {
	memory int64         // bytes
	cpu    time.Duration // in full seconds
	file   int64         // maximum size of a written file, in bytes; zero: no limit
}

// fetchMemory returns the memory of a fetch in total, and per process. pack-objects needs about 300
// bytes per object, upload-pack may need the same, and both read the request.
func (g *program) fetchMemory(dir string, request int64) (all, each int64) {
	objects, unpacked := gitrun.Packs(dir)
	each = min(16<<20+max(8<<20, 320*objects)+unpacked+4*request, g.memory.Part/2-besides/2)
	return 2*each + besides, each
}

// pushMemory returns the memory of a git run for a push of size bytes in total, and per process.
// The pack may contain deltas of large objects of the repository.
func (g *program) pushMemory(dir string, size int64) (all, each int64) {
	_, unpacked := gitrun.Packs(dir)
	all = min(256<<20+2*size+unpacked, g.memory.Part)
	return all, all - besides
}

// besides is the memory of the small helper processes.
const besides = 16 << 20

// program runs git. It is safe for concurrent use.
type program struct {
	path     string
	settings []string
	memory   *gitrun.Memory
	lock     *os.File // lock of the folder of repositories
	// started is called before a child starts. Only tests set it.
	started func(cmd *exec.Cmd)
}

// guarded returns a command that runs below the guard with limits. The command is killed when
// release is called.
func (g *program) guarded(ctx context.Context, l limits, line ...string) (cmd *exec.Cmd, release func(), err error) {
	life, ours, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	const block = 512 // block size of ulimit -f in POSIX
	file := ""
	if l.file > 0 {
		file = strconv.FormatInt(l.file/block+1, 10)
	}
	cmd = exec.CommandContext(ctx, shell, append([]string{
		"-c", guard, "sh", file, strconv.FormatInt(int64(l.cpu/time.Second)+1, 10), strconv.FormatInt(l.memory>>10, 10),
	}, line...)...)
	// The child inherits the lock of the folder, so the next process that opens the folder waits
	// for git.
	cmd.ExtraFiles = []*os.File{life, g.lock}
	gitrun.Group(cmd)
	if g.started != nil {
		g.started(cmd)
	}
	return cmd, func() { _, _ = life.Close(), ours.Close() }, nil
}

// serve runs git to answer a request. If ctx ends or the client stops reading, the process group is
// killed. begun reports whether a part of the answer was written.
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
	if c.body != nil { // avoids a typed nil in the interface
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

// requestFault matches messages of git upload-pack about invalid requests.
var requestFault = regexp.MustCompile("protocol error|unknown capability|no command requested|invalid command|already requesting command|" +
	"unexpected line|mismatched object format|remote end hung up|expected SHA1|invalid shallow|[Dd]eepen|not negotiated|" +
	"no commits selected|filter|not our ref|unadvertised object")

// inside returns a git command in a repository, with extra environment variables. It is killed when
// release is called.
func (g *program) inside(ctx context.Context, l limits, dir string, extra []string, args ...string) (cmd *exec.Cmd, release func(), err error) {
	cmd, release, err = g.guarded(ctx, l, append(append([]string{g.path, "--git-dir=."}, g.settings...), args...)...)
	if err != nil {
		return nil, nil, fmt.Errorf("running git: %w", err)
	}
	cmd.Dir = dir
	cmd.Env = append(append([]string{gitrun.AllocLimit(uint64(l.memory / 2))}, extra...), environment...)
	return cmd, release, nil
}

// strangersNice is the process priority of git runs for clients.
const strangersNice = 10

func startNice(cmd *exec.Cmd) error {
	err := cmd.Start()
	if err == nil {
		gitrun.SetNice(cmd.Process.Pid, strangersNice)
	}
	return err
}

// weighPulls returns the size of objects that only pull requests need, in bytes.
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

// noCache sets the headers of an answer that must not be cached.
func noCache(h http.Header, kind string) {
	h.Set("Content-Type", kind)
	h.Set("Cache-Control", "no-cache, max-age=0, must-revalidate")
	h.Set("Expires", "Fri, 01 Jan 1980 00:00:00 GMT")
	h.Set("Pragma", "no-cache")
}

// flusher flushes each write, so that the client sees progress.
type flusher struct {
	w http.ResponseWriter
	c *http.ResponseController
}

func (f flusher) Write(p []byte) (int, error) {
	n, err := f.w.Write(p)
	if ferr := f.c.Flush(); err == nil && !errors.Is(ferr, http.ErrNotSupported) {
		err = ferr
	}
	return n, err
}

// tail keeps the last maxTail bytes written to it.
type tail struct {
	b bytes.Buffer
	n atomic.Int64 // total bytes written
	// also, if not nil, receives all data.
	also io.Writer
}

const maxTail = 300

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

// String returns the text quoted, because git repeats text of clients.
func (t *tail) String() string { return strconv.QuoteToASCII(t.b.String()) }

// reasons returns the error and fatal messages of git on one line.
func (t *tail) reasons() string {
	var out []string
	for line := range strings.FieldsFuncSeq(t.b.String(), func(r rune) bool { return r == '\n' || r == '\r' }) {
		if _, text, ok := strings.Cut(line, ": "); ok && (strings.HasPrefix(line, "error") || strings.HasPrefix(line, "fatal")) {
			out = append(out, text)
		}
	}
	return graspsync.Printable(strings.Join(out, "; "))
}
