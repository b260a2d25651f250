// Package filelock locks files that name their holder.
package filelock

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// Self returns the text that identifies this process as lock holder.
func Self() string {
	host, err := os.Hostname()
	if err != nil {
		host = "unknown host"
	}
	return fmt.Sprintf("pid %d since %s on %s", os.Getpid(), time.Now().UTC().Format(time.RFC3339), host)
}

// maxHolder is the maximum length of a holder's text that Lock reads, in bytes.
const maxHolder = 512

// Lock locks a file until the file is closed or the process ends. If the file is locked, the error
// wraps inUse and names the holder. Lock closes the file on error.
func Lock(file *os.File, inUse error) error {
	ok, err := TryLock(file)
	switch {
	case err != nil:
		err = fmt.Errorf("locking: %w", err)
	case !ok:
		holder, _ := io.ReadAll(io.LimitReader(file, maxHolder)) // without it the error names no holder
		err = fmt.Errorf("%w: %s", inUse, holder)
	default:
		if file.Truncate(0) == nil { // on a full disk the lock holds without the text
			_, _ = file.WriteAt([]byte(Self()), 0)
		}
		return nil
	}
	return errors.Join(err, file.Close())
}
