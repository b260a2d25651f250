package gitrun

import (
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

// The guard is a shell script that sets the limits and is then replaced by git.
const (
	guardBegin = `{ [ -z "$1" ] || ulimit -f "$1"; } && ulimit -t "$2" && `
	guardEnd   = `shift 3 && unset PWD OLDPWD || exit 125
exec "$@"`
	// guardMemory limits the memory on Linux; other systems count mapped files too. When memory
	// runs out, the kernel kills the child before this process.
	guardMemory = `{ echo 500 > /proc/self/oom_score_adj; } 2>/dev/null; ulimit -d "$3" && `
)

// Shell is the program that sets the limits.
const Shell = "/bin/sh"

// Died is git's exit status after a fatal error.
const Died = 128

func guard(cmd *exec.Cmd, l Limits) {
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
	cmd.Args = append([]string{"sh", "-c", script + guardEnd, "sh", file, cpu, strconv.FormatInt(l.Memory>>10, 10), cmd.Path}, cmd.Args[1:]...)
	cmd.Path = Shell
	endWithUs(cmd.SysProcAttr)
}
