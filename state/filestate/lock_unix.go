//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package filestate

import (
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
)

// lock takes the folder for this process; closing what it returns gives it back,
// and so does the end of the process.
func (f osFolder) lock() (io.Closer, error) {
	file, err := f.root.OpenFile(lockName, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock: %w", err)
	}
	if err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil {
		return file, nil
	}
	_ = file.Close() // nothing was written
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, ErrLocked
	}
	return nil, fmt.Errorf("locking: %w", err)
}
