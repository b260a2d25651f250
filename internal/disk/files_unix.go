//go:build unix

package disk

import (
	"io/fs"
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

// Links returns the number of hard links of a file.
func Links(info fs.FileInfo) int64 {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		return max(1, int64(st.Nlink))
	}
	return 1
}
