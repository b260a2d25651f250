package gitrun

import (
	"syscall"
	"unsafe"
)

// EndWithUs has a child process killed when we are, whatever kills us. It is when the
// thread ends that has started it: who does must keep that.
func EndWithUs(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// LimitMemory bounds the address space of a process.
func LimitMemory(pid int, most uint64) error { return setLimit(pid, syscall.RLIMIT_AS, most) }

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
const ShellMemoryLimit = `ulimit -v "$3" && `
