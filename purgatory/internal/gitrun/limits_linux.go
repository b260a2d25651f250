package gitrun

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"
)

// EndWithUs has a child process killed when we are, whatever kills us. It is when the
// thread ends that has started it: who does must keep that.
func EndWithUs(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// LimitMemory bounds the memory of a process, without the files that it maps: these are pages that
// the system can drop, and upload-pack maps whole packs. When memory runs out nevertheless, the
// system ends the process before it ends us.
func LimitMemory(pid int, most uint64) error {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(killFirst), 0) // it only helps
	return setLimit(pid, syscall.RLIMIT_DATA, most)
}

const killFirst = "500"

// LimitFiles bounds the size of each file that a process writes.
func LimitFiles(pid int, most uint64) error { return setLimit(pid, syscall.RLIMIT_FSIZE, most) }

func setLimit(pid, resource int, most uint64) error {
	limit := syscall.Rlimit{Cur: most, Max: most}
	_, _, errno := syscall.Syscall6(syscall.SYS_PRLIMIT64,
		uintptr(pid), uintptr(resource), uintptr(unsafe.Pointer(&limit)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}

// ShellMemoryLimit is what has a shell bound the memory of what it starts, to so many KiB as
// its third argument says.
const ShellMemoryLimit = `{ echo ` + killFirst + ` > /proc/self/oom_score_adj; } 2>/dev/null; ulimit -d "$3" && `
