//go:build !linux

package gitrun

import "syscall"

// endWithUs does nothing. The pipes of a child are closed when this process ends.
func endWithUs(*syscall.SysProcAttr) {}
