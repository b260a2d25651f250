package gitfetch

import (
	"syscall"
	"unsafe"
)

// endWithUs has a child process killed when we are, whatever kills us. It is when the
// thread ends that has started it: who does must keep that.
func endWithUs(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// limitMemory bounds the address space of a process.
func limitMemory(pid int, most uint64) error { return setLimit(pid, syscall.RLIMIT_AS, most) }

// limitFiles bounds the size of each file that a process writes.
func limitFiles(pid int, most uint64) error { return setLimit(pid, syscall.RLIMIT_FSIZE, most) }

func setLimit(pid, resource int, most uint64) error {
	limit := syscall.Rlimit{Cur: most, Max: most}
	_, _, errno := syscall.Syscall6(syscall.SYS_PRLIMIT64,
		uintptr(pid), uintptr(resource), uintptr(unsafe.Pointer(&limit)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
