// Package gitrun says how git is run, whoever runs it: what it sees of ours, and what it may do
// to itself.
package gitrun

import (
	"os/exec"
	"strconv"
	"syscall"
	"time"
)

// Environment is all that git sees of ours: nothing. No configuration but what it is given is
// read, nobody is asked for a password, no protocol is allowed, no other host is asked for an object
// that is missed, and what replaces or cuts off histories (replace refs, grafts) does not count.
func Environment() []string {
	return []string{
		"PATH=/usr/local/bin:/usr/bin:/bin",
		"HOME=/nonexistent",
		"LC_ALL=C",
		"GIT_CONFIG_NOSYSTEM=1",
		"GIT_CONFIG_GLOBAL=/dev/null",
		"GIT_ATTR_NOSYSTEM=1",
		"GIT_TERMINAL_PROMPT=0",
		"GIT_ASKPASS=/bin/false",
		"GIT_ALLOW_PROTOCOL=",
		"GIT_NO_LAZY_FETCH=1",
		"GIT_GRAFT_FILE=/nonexistent",
		"GIT_NO_REPLACE_OBJECTS=1",
		"GIT_OPTIONAL_LOCKS=0",
	}
}

// Settings are the configuration that git is given, as arguments: no hook runs, nothing is put
// in order behind our back, what is written is on the disk and in the logs of refs, refs that keep what
// events name are told to nobody, and a
// crafted pack has git allocate no more than that.
func Settings() []string {
	return []string{
		"-c", "core.hooksPath=/dev/null",
		"-c", "core.fsmonitor=false",
		"-c", "gc.auto=0",
		"-c", "maintenance.auto=false",
		"-c", "core.fsync=objects,derived-metadata,reference",
		"-c", "core.fsyncMethod=fsync",
		"-c", "core.logAllRefUpdates=always",
		"-c", "transfer.hideRefs=refs/graspsync",
		"-c", "core.packedGitWindowSize=1m",
		"-c", "core.packedGitLimit=16m",
		"-c", "core.deltaBaseCacheLimit=8m",
		"-c", "core.bigFileThreshold=16m",
		"-c", "pack.windowMemory=16m",
		"-c", "pack.deltaCacheSize=8m",
	}
}

// AllocLimit is the part of the environment that bounds what git allocates in one piece.
func AllocLimit(bytes uint64) string { return "GIT_ALLOC_LIMIT=" + strconv.FormatUint(bytes, 10) }

// Beside is the environment in which git writes objects to a folder and sees those of the
// repository behind it. The folder's path is that from the repository, so that no name in
// the repository's own path can be taken for a separator of two.
func Beside(folder string) []string {
	return []string{"GIT_OBJECT_DIRECTORY=" + folder, "GIT_ALTERNATE_OBJECT_DIRECTORIES=objects"}
}

// Only is the environment in which git sees the objects of a folder and no others.
func Only(folder string) []string { return []string{"GIT_OBJECT_DIRECTORY=" + folder} }

// killWait is how long the output of a child that was killed is waited for.
const killWait = 5 * time.Second

// Group has a command be the head of a process group, all of which is killed when its
// context ends: git starts others.
func Group(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = killWait
}
