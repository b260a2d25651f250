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
	"slices"
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

// serve runs git to answer a request. If ctx ends or the client stops reading, the process group is
// killed. begun reports whether a part of the answer was written.
func (g *program) serve(ctx context.Context, w http.ResponseWriter, c call) (begun bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd, release, err := g.command(ctx, gitrun.Limits{Memory: c.memory, CPU: c.cpu}, append(slices.Clone(g.settings), append(c.args, ".")...)...)
	if err != nil {
		return false, err
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
		err = gitrun.StartNice(cmd)
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

// command returns a git command with limits. It inherits the lock of the folder, so that the next
// process that opens the folder waits for git. It is killed when release is called.
func (g *program) command(ctx context.Context, l gitrun.Limits, args ...string) (cmd *exec.Cmd, release func(), err error) {
	cmd = exec.CommandContext(ctx, g.path, args...)
	gitrun.Group(cmd)
	if release, err = gitrun.Watch(cmd, l, g.lock); err != nil {
		return nil, nil, fmt.Errorf("running git: %w", err)
	}
	if g.started != nil {
		g.started(cmd)
	}
	return cmd, release, nil
}

// inside returns a git command in a repository, with extra environment variables.
func (g *program) inside(ctx context.Context, l gitrun.Limits, dir string, extra []string, args ...string) (cmd *exec.Cmd, release func(), err error) {
	if cmd, release, err = g.command(ctx, l, append(append([]string{"--git-dir=."}, g.settings...), args...)...); err != nil {
		return nil, nil, err
	}
	cmd.Dir = dir
	cmd.Env = append(append([]string{gitrun.AllocLimit(uint64(l.Memory / 2))}, extra...), environment...)
	return cmd, release, nil
}

// weighPulls returns the size of objects that only pull requests need, in bytes.
func (g *program) weighPulls(ctx context.Context, dir string) (int64, error) {
	bytes := g.memory.Walk(dir)
	memory, err := g.memory.Acquire(ctx, limit.Stranger{}, bytes)
	if err != nil {
		return 0, fmt.Errorf("waiting for memory to run git: %w", err)
	}
	defer memory.Release()
	cmd, release, err := g.inside(ctx, gitrun.Limits{Memory: bytes, CPU: weighMost, File: 1}, dir, nil,
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
