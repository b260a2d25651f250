package gitrun

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"time"
)

// Limits bound a git process and each of its children.
type Limits struct {
	Memory int64         // bytes, without mapped files
	CPU    time.Duration // in full seconds; zero: no limit
	File   int64         // maximum size of a written file, in bytes; zero: no limit
}

// The guard is a shell script that sets the limits of git and of all its children.
const (
	guardBegin = `{ [ -z "$1" ] || ulimit -f "$1"; } && ulimit -t "$2" && `
	guardEnd   = `shift 3 && unset PWD OLDPWD || exit 125
`
	// guardRun replaces the shell by git, which the kernel kills when this process ends.
	guardRun = `exec "$@"`
	// guardWatch also kills the children of git when file descriptor 3 reaches EOF because this
	// process has ended. Git may outlive it for a moment, so it must inherit a lock.
	guardWatch = `{ read -r x; kill -KILL 0; } <&3 >/dev/null 2>&1 &
"$@" 3<&-
status=$?
kill $! && wait $! 2>/dev/null
exit $status`
	// guardMemory limits the memory on Linux; other systems count mapped files too. When memory
	// runs out, the kernel kills the child before this process.
	guardMemory = `{ echo 500 > /proc/self/oom_score_adj; } 2>/dev/null; ulimit -d "$3" && `
)

// Shell is the program that sets the limits.
const Shell = "/bin/sh"

// Died is git's exit status after a fatal error. The shell adds the signal number to it.
const Died = 128

// Guard makes a command of a [Group] run with limits. The caller has locked the goroutine to its
// thread.
func Guard(cmd *exec.Cmd, l Limits) {
	l.guard(cmd, guardRun)
	endWithUs(cmd.SysProcAttr)
}

// Watch is Guard for a command with children. It inherits lock. release must be called after its
// end.
func Watch(cmd *exec.Cmd, l Limits, lock *os.File) (release func(), err error) {
	life, ours, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	l.guard(cmd, guardWatch)
	cmd.ExtraFiles = []*os.File{life, lock}
	return func() { _, _ = life.Close(), ours.Close() }, nil
}

func (l Limits) guard(cmd *exec.Cmd, run string) {
	const block = 512 // block size of ulimit -f in POSIX
	file, cpu, script := "", "unlimited", guardBegin
	if l.File > 0 {
		file = strconv.FormatInt(l.File/block+1, 10)
	}
	if l.CPU > 0 {
		cpu = strconv.FormatInt(int64(l.CPU/time.Second)+1, 10)
	}
	if runtime.GOOS == "linux" {
		script += guardMemory
	}
	cmd.Args = append([]string{"sh", "-c", script + guardEnd + run, "sh", file, cpu, strconv.FormatInt(l.Memory>>10, 10), cmd.Path}, cmd.Args[1:]...)
	cmd.Path = Shell
}

// niceness is the process priority of background work and of work for clients.
const niceness = 10

// StartNice starts a command with low priority.
func StartNice(cmd *exec.Cmd) error {
	err := cmd.Start()
	if err == nil {
		SetNice(cmd.Process.Pid, niceness)
	}
	return err
}
