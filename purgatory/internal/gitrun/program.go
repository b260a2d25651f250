package gitrun

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/graspsync/graspsync"
)

// ErrGit is wrapped if the git program cannot be started.
var ErrGit = errors.New("git can't be used")

// Program runs git in repositories. It is safe for concurrent use.
type Program struct {
	// set by the owner, then read-only
	Path                  string
	Settings, Environment []string // arguments and environment of each run
	Memory                *Memory
	Started               func(cmd *exec.Cmd) // called before each start; only tests set it
}

// Child is a run of git.
type Child struct {
	Dir            string   // folder of the repository, never an argument, because it may contain untrusted text
	Settings       []string // in addition to those of the Program
	Args           []string // constants only
	Env            []string
	Stdin          io.Reader
	Stdout, Stderr io.Writer // may be nil
	Limits         Limits
	Lock           *os.File // inherited, so that the next process that takes the lock waits for git; may be nil
	Nice           bool     // low priority
}

// maxErrors is the maximum length of the kept end of standard error, in bytes.
const maxErrors = 4 << 10

// Run runs git. Its process group is killed if ctx ends. If git fails, the error is an [Error].
func (p *Program) Run(ctx context.Context, c Child) error {
	said := &tail{}
	cmd := exec.CommandContext(ctx, p.Path, slices.Concat([]string{"--git-dir=."}, p.Settings, c.Settings, c.Args)...)
	cmd.Dir, cmd.Env = c.Dir, slices.Concat([]string{allocLimit(c.Limits.Memory / 2)}, p.Environment, c.Env)
	if cmd.Stdin, cmd.Stdout, cmd.Stderr = c.Stdin, c.Stdout, said; c.Stderr != nil {
		cmd.Stderr = io.MultiWriter(said, c.Stderr)
	}
	if c.Lock != nil {
		cmd.ExtraFiles = []*os.File{c.Lock}
	}
	group(cmd)
	if p.Started != nil {
		p.Started(cmd)
	}
	guard(cmd, c.Limits)
	runtime.LockOSThread() // see endWithUs
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("%w: %w", ErrGit, err)
	}
	if c.Nice {
		setNice(cmd.Process.Pid, niceness)
	}
	if err := cmd.Wait(); err != nil {
		return &Error{Command: c.Args[0], Err: err, Stderr: said.b.String()}
	}
	return nil
}

// niceness is the process priority of background work and of work for clients.
const niceness = 10

// tail keeps the last maxErrors bytes written to it.
type tail struct{ b bytes.Buffer }

func (t *tail) Write(p []byte) (int, error) {
	t.b.Write(p)
	t.b.Next(max(0, t.b.Len()-maxErrors))
	return len(p), nil
}

// Error is the failure of a git process.
type Error struct {
	Command string
	Err     error
	Stderr  string // end of standard error
}

func (e *Error) Error() string {
	return fmt.Sprintf("git %s: %v: %s", e.Command, e.Err, Last(e.Stderr))
}

func (e *Error) Unwrap() error { return e.Err }

// Last returns the end of git's output, which contains the cause of a failure, for an error.
func Last(s string) string {
	s = strings.TrimSpace(s)
	return graspsync.Printable(s[max(0, len(s)-graspsync.MaxText):])
}

// Code returns the exit status, -1 if git was killed.
func (e *Error) Code() int {
	if exit := (*exec.ExitError)(nil); errors.As(e.Err, &exit) {
		return exit.ExitCode()
	}
	return -1
}

// FileTooLarge reports whether git exceeded its file size limit. A parent process may have made it
// ignore SIGXFSZ.
func (e *Error) FileTooLarge() bool {
	var exit *exec.ExitError
	if !errors.As(e.Err, &exit) {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled() && status.Signal() == fileTooLarge || strings.Contains(e.Stderr, "File too large")
}
