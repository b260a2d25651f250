package gitrun

import (
	"fmt"
	"os"
	"syscall"
	"unsafe"
)

// EndWithUs makes the kernel kill a child when the thread that started it ends, even by kill -9.
// The caller must lock the goroutine to its thread.
func EndWithUs(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// LimitMemory limits the memory of a process without mapped files, because the kernel can drop
// their pages, and upload-pack maps whole packs. It also makes the kernel kill the child before
// this process when memory runs out.
func LimitMemory(pid int, most uint64) error {
	_ = os.WriteFile(fmt.Sprintf("/proc/%d/oom_score_adj", pid), []byte(killFirst), 0) // an error only costs the preference
	return setLimit(pid, syscall.RLIMIT_DATA, most)
}

const killFirst = "500"

// LimitFiles limits the size of each file that a process writes.
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

// ShellMemoryLimit is a shell command that limits the memory of later commands to $3 KiB.
const ShellMemoryLimit = `{ echo ` + killFirst + ` > /proc/self/oom_score_adj; } 2>/dev/null; ulimit -d "$3" && `
