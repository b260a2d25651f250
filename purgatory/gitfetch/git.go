package gitfetch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
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
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/internal/gitrun"
	"github.com/graspsync/graspsync/purgatory/internal/stopwatch"
)

// ErrGit is wrapped by every error about the git program itself.
var ErrGit = errors.New("git can't be used")

// The oldest git that is known to do what is asked of it, and to survive a crash as
// described.
const (
	leastMajor = 2
	leastMinor = 39
)

var versionPattern = regexp.MustCompile(`^git version (\d+)\.(\d+)`)

// versionWithin is how long a program may take to say its version. One that hangs would keep
// a server from starting, and from saying why.
const versionWithin = 10 * time.Second

// checkVersion finds out whether the git program can be used, and what it says of
// itself and of how it was built, within a time.
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
	major, _ := strconv.Atoi(m[1]) // digits by the pattern
	minor, _ := strconv.Atoi(m[2])
	if major < leastMajor || major == leastMajor && minor < leastMinor {
		return "", "", fmt.Errorf("%w: %s, want %d.%d or later", ErrGit, version, leastMajor, leastMinor)
	}
	return version, build, nil
}

// weakHash reports whether a build of git says that its SHA-1 does not detect
// collisions. Git before 2.49 does not say; it detects them unless whoever built it
// took pains that it does not.
func weakHash(build string) bool {
	for line := range strings.Lines(build) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "SHA-1: "); ok {
			return !strings.HasPrefix(name, "SHA1_DC")
		}
	}
	return false
}

// environment is what git sees of ours. Histories are not cut off by a file that says so
// (shallow) either: what is not there is missing.
var environment = append(gitrun.Environment(), "GIT_SHALLOW_FILE=")

// settings are the configuration of every child process. A commit graph may list commits that
// are gone.
var settings = append(gitrun.Settings(), "-c", "core.commitGraph=false")

// child is one run of git in a repository.
type child struct {
	dir   string   // of the repository: never in an argument or the environment
	extra []string // environment: where objects are, from dir
	args  []string // constants of ours
	stdin io.Reader
	// each, if not nil, is called for each line of what it prints, and nothing of it
	// is kept.
	each func(line []byte)
	// out and said, if not nil, get all that it writes to its standard output and standard error.
	out, said io.Writer
	// long says that how long it takes is for whoever made the objects to say.
	long   bool
	file   int64 // bytes of each file that it writes; zero: no limit
	nice   bool  // others go first
	memory int64 // bytes; zero: what a walk over the repository needs
}

// maxOutput bounds what is kept of what a child says, in bytes.
const (
	maxOutput = 64 << 20
	maxErrors = 4 << 10
)

// program is the git that is run. It is safe for concurrent use.
type program struct {
	path     string
	memory   *gitrun.Memory
	children *limit.Slots // places to run a child, by owner
	long     *limit.Slots // a quarter of them: places of walks that may take longer than longAfter
	// started, for tests, nil otherwise: which child is about to start.
	started func(cmd *exec.Cmd)
}

// run runs git and returns what it printed. When ctx ends, its whole process group
// is killed.
func (g *program) run(ctx context.Context, c child) ([]byte, error) {
	began := time.Now()
	release, err := g.acquire(ctx, c.dir, c.long)
	if err != nil {
		return nil, err
	}
	defer release()
	ran := time.Now()
	out, err := g.runNow(ctx, c)
	if _, limited := stopwatch.Left(ctx); !limited && err != nil && ctx.Err() != nil && ran.Sub(began) > time.Since(ran) { // it had less than its time
		err = fmt.Errorf("%w: %w", purgatory.ErrCrowded, err)
	}
	return out, err
}

// longAfter separates walks that may take long from others. The owner of a repository decides how long
// a walk takes.
const longAfter = 10 * time.Second

// acquire waits for the right to run a child in a repository, one owner after another. A walk may take long unless its context
// ends soon.
func (g *program) acquire(ctx context.Context, dir string, walk bool) (release func(), err error) {
	if left, limited := stopwatch.Left(ctx); limited {
		walk = walk && left > longAfter
	} else if end, ok := ctx.Deadline(); ok && time.Until(end) <= longAfter {
		walk = false
	}
	defer stopwatch.Waits(ctx)()
	who := limit.Stranger{ID: ownerOf(dir)}
	places := []*limit.Slots{g.children}
	if walk {
		places = []*limit.Slots{g.long, g.children}
	}
	var held []*limit.Slot
	release = func() {
		for _, slot := range held {
			slot.Release()
		}
	}
	for _, of := range places {
		slot, err := of.Acquire(ctx, who, 1)
		if err != nil {
			release()
			return nil, fmt.Errorf("waiting to run git: %w: %w", purgatory.ErrCrowded, err)
		}
		held = append(held, slot)
	}
	return release, nil
}

// ownerOf returns the owner of a repository by the name of its folder: package gitserve keeps the
// repositories of an owner in one folder.
func ownerOf(dir string) string { return filepath.Dir(dir) }

// runNow is run for who has the right already.
func (g *program) runNow(outer context.Context, c child) ([]byte, error) {
	memory, err := g.take(outer, &c)
	if err != nil {
		return nil, err
	}
	defer memory.Release()
	ctx, cancel := context.WithCancel(outer)
	defer cancel()
	cmd, out, errs := g.command(ctx, c)
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrGit, err)
	}
	runtime.LockOSThread() // the child ends with its thread
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil && outer.Err() != nil { // that is not git's fault
		return nil, fmt.Errorf("running git %s: %w", c.args[0], context.Cause(outer))
	} else if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrGit, err)
	}
	// Before the first byte of a stranger reaches it.
	err = gitrun.LimitMemory(cmd.Process.Pid, uint64(c.memory))
	if err == nil && c.file > 0 {
		err = gitrun.LimitFiles(cmd.Process.Pid, uint64(c.file))
	}
	if err != nil {
		_ = cmd.Cancel() // Wait says how it ended
		_ = cmd.Wait()
		return nil, fmt.Errorf("%w: setting its limits: %w", ErrGit, err)
	}
	if c.nice {
		_ = syscall.Setpriority(syscall.PRIO_PGRP, cmd.Process.Pid, niceness) // without it, it only disturbs more
	}
	var broken error // half an input must not be taken for all of it, however the child ends
	fed := make(chan struct{})
	go func() {
		defer close(fed)
		if broken = feed(in, c.stdin); broken != nil {
			cancel()
		}
		_ = in.Close() // what was not written shows in how the child ends
	}()
	err = cmd.Wait()
	<-fed
	switch {
	case err != nil && outer.Err() != nil:
		return nil, fmt.Errorf("running git %s: %w", c.args[0], context.Cause(outer))
	case broken != nil:
		return nil, broken
	case err != nil:
		return nil, &childError{command: c.args[0], err: err, stderr: errs.b.String()}
	case out.over:
		return nil, fmt.Errorf("running git %s: it says more than %d bytes", c.args[0], maxOutput)
	}
	return out.b.Bytes(), nil
}

// take waits until there is the memory that a child needs.
func (g *program) take(ctx context.Context, c *child) (*limit.Slot, error) {
	if c.memory == 0 {
		c.memory = g.memory.Walk(c.dir)
	}
	defer stopwatch.Waits(ctx)()
	slot, err := g.memory.Acquire(ctx, limit.Stranger{}, c.memory)
	if err != nil {
		return nil, fmt.Errorf("waiting for memory to run git: %w: %w", purgatory.ErrCrowded, err)
	}
	return slot, nil
}

// command is a run that was not started. Git is run inside the repository: the path
// may have the name that a stranger gave it.
func (g *program) command(ctx context.Context, c child) (cmd *exec.Cmd, out, errs *capped) {
	cmd = exec.CommandContext(ctx, g.path, append(append([]string{"--git-dir=."}, settings...), c.args...)...)
	cmd.Dir = c.dir
	cmd.Env = append(append([]string{gitrun.AllocLimit(uint64(c.memory / 2))}, environment...), c.extra...)
	gitrun.Group(cmd)
	gitrun.EndWithUs(cmd.SysProcAttr)
	out, errs = &capped{most: maxOutput}, &capped{most: maxErrors}
	cmd.Stdout, cmd.Stderr = out, errs
	if c.said != nil {
		cmd.Stderr = io.MultiWriter(errs, c.said)
	}
	if c.each != nil {
		cmd.Stdout = &splitter{each: c.each}
	}
	if c.out != nil {
		cmd.Stdout = c.out
	}
	if g.started != nil {
		g.started(cmd)
	}
	return cmd, out, errs
}

// feed writes a child's input. A child that has seen enough is no error here: how
// it ended says more.
func feed(to io.Writer, from io.Reader) error {
	if from == nil {
		return nil
	}
	_, err := io.Copy(to, from)
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, os.ErrClosed) || errors.Is(err, io.ErrClosedPipe) {
		return nil
	}
	return err
}

// childError is a run of git that failed.
type childError struct {
	command string
	err     error
	stderr  string
}

// Error says which command failed, how, and the last thing that it said.
func (e *childError) Error() string {
	return fmt.Sprintf("git %s: %v: %s", e.command, e.err, lastOf(e.stderr))
}

func (e *childError) Unwrap() error { return e.err }

// verdict reports whether git came to the end of what it was asked to find out: it
// was not killed, and did not run into the limit of its memory.
func (e *childError) verdict() bool {
	var exit *exec.ExitError
	return errors.As(e.err, &exit) && exit.ExitCode() > 0 && !e.outOfMemory()
}

// outOfMemory reports whether git says that it needed more memory than it may have.
func (e *childError) outOfMemory() bool {
	return gitrun.OutOfMemory(e.stderr)
}

// fileTooLarge reports whether git was to write a larger file than it may. It dies of that,
// unless whoever started us has that signal ignored.
func (e *childError) fileTooLarge() bool {
	var exit *exec.ExitError
	if !errors.As(e.err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == syscall.SIGXFSZ || strings.Contains(e.stderr, "File too large")
}

// capped keeps the first bytes that are written to it and swallows the rest.
type capped struct {
	b    bytes.Buffer
	most int
	over bool // something was swallowed
}

// Write implements [io.Writer].
func (c *capped) Write(p []byte) (int, error) {
	n := min(len(p), c.most-c.b.Len())
	c.b.Write(p[:n])
	c.over = c.over || n < len(p)
	return len(p), nil
}

// splitter passes lines on.
type splitter struct {
	each func([]byte)
	rest []byte
}

// Write implements [io.Writer].
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
		return 0, errors.New("line without an end")
	}
	return len(p), nil
}

// lastOf is the end of what a program of git has said: why it failed stands there.
func lastOf(s string) string {
	s = strings.TrimSpace(s)
	return graspsync.Printable(s[max(0, len(s)-graspsync.MaxText):])
}
