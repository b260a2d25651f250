// Package filelock locks files that name their holder.
package filelock

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Self returns the text that names this process as the holder of a lock.
func Self() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("pid %d since %s on %s", os.Getpid(), time.Now().UTC().Format(time.RFC3339), host)
}

// maxHolder is the maximum number of bytes that Take reads of a holder's name.
const maxHolder = 512

// Take locks a file until it is closed, or the process ends. If another open file has the lock, the error wraps inUse and names
// the holder. On an error Take closes the file.
func Take(file *os.File, inUse error) error {
	ok, err := lock(file)
	switch {
	case err != nil:
		err = fmt.Errorf("locking: %w", err)
	case !ok:
		holder, _ := io.ReadAll(io.LimitReader(file, maxHolder)) // without it the error names nobody
		err = fmt.Errorf("%w: %s", inUse, holder)
	default:
		if file.Truncate(0) == nil { // a full disk is no reason to stop: the lock holds without the name
			_, _ = file.WriteAt([]byte(Self()), 0)
		}
		return nil
	}
	return errors.Join(err, file.Close())
}
