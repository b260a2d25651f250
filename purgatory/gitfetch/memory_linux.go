package gitfetch

import (
	"syscall"
	"unsafe"
)

// endWithUs has a child process killed when we are, whatever kills us. It is when the
// thread ends that has started it: who does must keep that.
func endWithUs(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }

// limitMemory bounds the address space of a process.
func limitMemory(pid int, most uint64) error {
	limit := syscall.Rlimit{Cur: most, Max: most}
	_, _, errno := syscall.Syscall6(syscall.SYS_PRLIMIT64,
		uintptr(pid), syscall.RLIMIT_AS, uintptr(unsafe.Pointer(&limit)), 0, 0, 0)
	if errno != 0 {
		return errno
	}
	return nil
}
