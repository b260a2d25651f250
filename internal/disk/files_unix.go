//go:build unix

package disk

import (
	"math"
	"syscall"
)

// Files returns the maximum number of open files of the process.
func Files() int {
	var l syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &l); err != nil {
		return math.MaxInt
	}
	return int(min(uint64(l.Cur), math.MaxInt)) //nolint:unconvert // it is signed on some systems
}
