package gitserve

import (
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

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/purgatory/internal/gitrun"
)

var environment = gitrun.Environment()

func settings() []string { return append(gitrun.Settings(), constants...) }

var constants = []string{
	// Packing must fit into the memory limit on any number of processors.
	"-c", "pack.threads=1",
	"-c", "receive.advertisePushOptions=false",
	"-c", "uploadpack.allowTipSHA1InWant=true",
	"-c", "uploadpack.allowReachableSHA1InWant=true",
	"-c", "uploadpack.allowFilter=true",
	// Other filters compare each path with a list that the client chooses.
	"-c", "uploadpackfilter.allow=false",
	"-c", "uploadpackfilter.blob:none.allow=true",
	"-c", "uploadpackfilter.blob:limit.allow=true",
	"-c", "uploadpackfilter.tree.allow=true",
	"-c", "uploadpackfilter.tree.maxDepth=0",
	"-c", "uploadpackfilter.object:type.allow=true",
}

// call is a request for git. It contains no text of clients.
type call struct {
	dir      string   // folder of the repository
	args     []string // git service with options
	kind     string   // content type of the answer
	prefix   string   // start of the answer
	protocol string   // git protocol version; empty: version 0
	body     *body    // may be nil
	limits   gitrun.Limits
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

const besides = 16 << 20

type program struct {
	path     string
	settings []string
	memory   *gitrun.Memory
	lock     *os.File // lock of the folder of repositories
	started  func(cmd *exec.Cmd)
}

// serve runs git to answer a request. Git is killed if ctx ends or the client stops reading. begun
// reports whether a part of the answer was written. If git refused the request, the error is a
// refusal with status 403.
func (g *program) serve(ctx context.Context, w *patient, c call) (begun bool, err error) {
	var in io.Reader
	if c.body != nil {
		in = c.body.file
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	said := &tail{}
	out := writerFunc(func(p []byte) (int, error) {
		if !begun {
			begun = true
			_, _ = io.WriteString(w, c.prefix) // the next write fails too
		}
		n, err := w.Write(p)
		if ferr := w.FlushError(); err == nil && !errors.Is(ferr, http.ErrNotSupported) {
			err = ferr
		}
		if err != nil {
			cancel()
		}
		return n, err
	})
	noCache(w.Header(), c.kind)
	err = g.run(ctx, c.limits, c.dir, []string{"GIT_PROTOCOL=" + c.protocol}, in, out, said, append(slices.Clone(c.args), ".")...)
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		if why := said.reasons(); requestFault.MatchString(why) {
			err = &refusal{http.StatusForbidden, why}
		}
	}
	return begun, err
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

var requestFault = regexp.MustCompile("protocol error|unknown capability|no command requested|invalid command|already requesting command|" +
	"unexpected line|mismatched object format|remote end hung up|expected SHA1|invalid shallow|[Dd]eepen|not negotiated|" +
	"no commits selected|filter|not our ref|unadvertised object")

// run runs git in a repository. Git inherits the lock of the folder, so that the next process that
// opens the folder waits for git. Its process group is killed if ctx ends.
func (g *program) run(ctx context.Context, l gitrun.Limits, dir string, env []string, in io.Reader, out io.Writer, said *tail, args ...string) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cmd := exec.CommandContext(ctx, g.path, slices.Concat([]string{"--git-dir=."}, g.settings, args)...)
	gitrun.Group(cmd)
	release, err := gitrun.Watch(cmd, l, g.lock)
	if err != nil {
		return fmt.Errorf("running git: %w", err)
	}
	defer release()
	if g.started != nil {
		g.started(cmd)
	}
	cmd.Dir, cmd.Env = dir, slices.Concat([]string{gitrun.AllocLimit(uint64(l.Memory / 2))}, env, environment)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, out, said
	if err = gitrun.StartNice(cmd); err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return fmt.Errorf("git %s: %w: %s", args[0], err, said)
	}
	return nil
}

func (g *program) weighPulls(ctx context.Context, dir string) (int64, error) {
	bytes := g.memory.Walk(dir)
	memory, err := g.memory.Acquire(ctx, limit.Stranger{}, bytes)
	if err != nil {
		return 0, fmt.Errorf("waiting for memory to run git: %w", err)
	}
	defer memory.Release()
	var out strings.Builder
	if err := g.run(ctx, gitrun.Limits{Memory: bytes, CPU: weighMost, File: 1}, dir, nil, nil, &out, &tail{},
		"rev-list", "--objects", "--disk-usage", "--glob=refs/nostr", "--not", "--branches", "--tags"); err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(out.String()), 10, 64)
}

func noCache(h http.Header, kind string) {
	h.Set("Content-Type", kind)
	h.Set("Cache-Control", "no-cache, max-age=0, must-revalidate")
	h.Set("Expires", "Fri, 01 Jan 1980 00:00:00 GMT")
	h.Set("Pragma", "no-cache")
}

// tail keeps the last maxTail bytes written to it.
type tail struct {
	b    bytes.Buffer
	also io.Writer
}

const maxTail = 300

func (t *tail) Write(p []byte) (int, error) {
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
