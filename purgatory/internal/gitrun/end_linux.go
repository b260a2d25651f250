package gitrun

import "syscall"

// endWithUs makes the kernel kill a child when the thread that started it ends, even by kill -9.
func endWithUs(attr *syscall.SysProcAttr) { attr.Pdeathsig = syscall.SIGKILL }
