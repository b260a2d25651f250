package gitfetch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/purgatory/internal/gitops"
	"github.com/graspsync/graspsync/purgatory/internal/gitrun"
)

// ErrGit is wrapped by errors about the git program.
var ErrGit = errors.New("git can't be used")

// The oldest git version with all required commands and crash safety.
const (
	leastMajor = 2
	leastMinor = 39
)

var versionPattern = regexp.MustCompile(`^git version (\d+)\.(\d+)`)

// versionWithin is the maximum time of git version, so that a hanging program is an error.
const versionWithin = 10 * time.Second

// checkVersion returns the version and build options of git.
func checkVersion(ctx context.Context, path string, within time.Duration) (version, build string, err error) {
	if path, err = exec.LookPath(path); err != nil {
		return "", "", fmt.Errorf("%w: %w", ErrGit, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("no answer within %s", within))
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "version", "--build-options")
	cmd.Env, cmd.WaitDelay = environment, time.Second
	out, err := cmd.Output()
	if cause := context.Cause(ctx); err != nil && cause != nil {
		err = cause
	}
	if err != nil {
		return "", "", fmt.Errorf("%w: asking for its version: %w", ErrGit, err)
	}
	version, build, _ = strings.Cut(strings.TrimSpace(string(out)), "\n")
	m := versionPattern.FindStringSubmatch(version)
	if m == nil {
		return "", "", fmt.Errorf("%w: %s is no version of git", ErrGit, graspsync.Printable(version))
	}
	major, _ := strconv.Atoi(m[1]) // the pattern matches digits
	minor, _ := strconv.Atoi(m[2])
	if major < leastMajor || major == leastMajor && minor < leastMinor {
		return "", "", fmt.Errorf("%w: %s, want %d.%d or later", ErrGit, version, leastMajor, leastMinor)
	}
	return version, build, nil
}

// weakHash reports whether git's build options name a SHA-1 without collision detection. Git before
// 2.49 does not list it.
func weakHash(build string) bool {
	for line := range strings.Lines(build) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "SHA-1: "); ok {
			return !strings.HasPrefix(name, "SHA1_DC")
		}
	}
	return false
}

// environment disables shallow files, so that missing history is an error.
var environment = append(gitrun.Environment(), "GIT_SHALLOW_FILE=")

// settings disable commit graphs, because they may list removed commits.
var settings = append(gitrun.Settings(), "-c", "core.commitGraph=false")

// child is a git run in a repository.
type child struct {
	dir   string   // folder of the repository: never an argument or in the environment
	extra []string // environment: object directories relative to dir
	args  []string // constants only
	stdin io.Reader
	// out and said, if not nil, receive standard output and standard error.
	out, said io.Writer
	file      int64 // maximum size of a written file, in bytes; zero: no limit
	nice      bool  // low priority
	memory    int64 // bytes; zero: enough to walk the repository
}

// Limits of the kept output of a child, in bytes.
const (
	maxOutput = 64 << 20
	maxErrors = 4 << 10
)

// program runs git. It is safe for concurrent use.
type program struct {
	path     string
	memory   *gitrun.Memory
	children *limit.Slots // slots for children, by owner
	// started is called before a child starts. Only tests set it.
	started func(cmd *exec.Cmd)
}

// run runs git and returns its output. When ctx ends, the process group is killed.
func (g *program) run(ctx context.Context, c child) ([]byte, error) {
	began := time.Now()
	release, err := g.acquire(ctx, c.dir)
	if err != nil {
		return nil, err
	}
	defer release()
	ran := time.Now()
	out, err := g.runNow(ctx, c)
	if err != nil && ctx.Err() != nil && ran.Sub(began) > time.Since(ran) { // most of its time was spent waiting
		err = fmt.Errorf("%w: %w", gitops.ErrBusy, err)
	}
	return out, err
}

// acquire waits for a slot to run a child, with owners in rotation.
func (g *program) acquire(ctx context.Context, dir string) (release func(), err error) {
	slot, err := g.children.Acquire(ctx, limit.Stranger{ID: ownerOf(dir)}, 1)
	if err != nil {
		return nil, fmt.Errorf("waiting to run git: %w: %w", gitops.ErrBusy, err)
	}
	return slot.Release, nil
}

// ownerOf returns the parent folder of a repository, of which gitserve has one per owner.
func ownerOf(dir string) string { return filepath.Dir(dir) }

// runNow runs git. The caller holds a slot.
func (g *program) runNow(outer context.Context, c child) ([]byte, error) {
	if c.memory == 0 {
		c.memory = g.memory.Walk(c.dir)
	}
	memory, err := g.memory.Acquire(outer, limit.Stranger{}, c.memory)
	if err != nil {
		return nil, fmt.Errorf("waiting for memory to run git: %w: %w", gitops.ErrBusy, err)
	}
	defer memory.Release()
	ctx, cancel := context.WithCancel(outer)
	defer cancel()
	cmd, out, errs := g.command(ctx, c)
	gitrun.Guard(cmd, gitrun.Limits{Memory: c.memory, File: c.file})
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	start := cmd.Start
	if c.nice {
		start = func() error { return gitrun.StartNice(cmd) }
	}
	started := start()
	if err = started; err == nil {
		err = cmd.Wait()
	}
	switch {
	case err != nil && outer.Err() != nil: // not an error of git
		return nil, fmt.Errorf("running git %s: %w", c.args[0], context.Cause(outer))
	case started != nil:
		return nil, fmt.Errorf("%w: %w", ErrGit, started)
	case err != nil:
		return nil, &childError{command: c.args[0], err: err, stderr: errs.b.String()}
	case out.over:
		return nil, fmt.Errorf("running git %s: output exceeds %d bytes", c.args[0], maxOutput)
	}
	return out.b.Bytes(), nil
}

// command returns a command that runs inside the repository, because the path may contain untrusted
// text.
func (g *program) command(ctx context.Context, c child) (cmd *exec.Cmd, out, errs *capped) {
	cmd = exec.CommandContext(ctx, g.path, append(append([]string{"--git-dir=."}, settings...), c.args...)...)
	cmd.Dir, cmd.Stdin = c.dir, c.stdin
	cmd.Env = append(append([]string{gitrun.AllocLimit(uint64(c.memory / 2))}, environment...), c.extra...)
	gitrun.Group(cmd)
	out, errs = &capped{most: maxOutput}, &capped{most: maxErrors}
	cmd.Stdout, cmd.Stderr = out, errs
	if c.said != nil {
		cmd.Stderr = io.MultiWriter(errs, c.said)
	}
	if c.out != nil {
		cmd.Stdout = c.out
	}
	if g.started != nil {
		g.started(cmd)
	}
	return cmd, out, errs
}

type childError struct {
	command string
	err     error
	stderr  string
}

// Error contains the end of standard error.
func (e *childError) Error() string {
	return fmt.Sprintf("git %s: %v: %s", e.command, e.err, lastOf(e.stderr))
}

func (e *childError) Unwrap() error { return e.err }

// verdict reports whether git completed its check. It did not if it was killed or out of memory.
func (e *childError) verdict() bool {
	var exit *exec.ExitError
	if !errors.As(e.err, &exit) || gitrun.OutOfMemory(e.stderr) {
		return false
	}
	code := exit.ExitCode()
	return code > 0 && (code < 125 || code > 127) // else the shell did not start git
}

// fileTooLarge reports whether git exceeded its file size limit. A parent process may have made it
// ignore SIGXFSZ.
func (e *childError) fileTooLarge() bool {
	var exit *exec.ExitError
	if !errors.As(e.err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == gitrun.FileTooLarge || strings.Contains(e.stderr, "File too large")
}

// capped keeps the first most bytes written to it.
type capped struct {
	b    bytes.Buffer
	most int
	over bool // bytes were dropped
}

func (c *capped) Write(p []byte) (int, error) {
	n := min(len(p), c.most-c.b.Len())
	c.b.Write(p[:n])
	c.over = c.over || n < len(p)
	return len(p), nil
}

// splitter calls each for each line.
type splitter struct {
	each func([]byte)
	rest []byte
}

func (s *splitter) Write(p []byte) (int, error) {
	s.rest = append(s.rest, p...)
	lines := s.rest
	for {
		line, after, ok := bytes.Cut(lines, []byte{'\n'})
		if !ok {
			break
		}
		s.each(line)
		lines = after
	}
	s.rest = append(s.rest[:0], lines...)
	if len(s.rest) > maxErrors {
		return 0, errors.New("line too long")
	}
	return len(p), nil
}

// lastOf returns the end of git's output, which contains the cause of a failure.
func lastOf(s string) string {
	s = strings.TrimSpace(s)
	return graspsync.Printable(s[max(0, len(s)-graspsync.MaxText):])
}
