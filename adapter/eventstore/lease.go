package eventstoreadapter

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/graspsync/graspsync/internal/filelock"
)

// ErrInUse means that another Store uses the lmdb folder.
var ErrInUse = errors.New("another server uses the database")

// ErrClosed means that [Store.Close] was called.
var ErrClosed = errors.New("event store is closed")

const closeWait = 10 * time.Second

func lockFolder(folder string) (*os.File, error) {
	if folder == "" {
		return nil, nil
	}
	path := filepath.Join(folder, "graspsync-lock")
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock: %w", err)
	}
	if err := filelock.Lock(f, ErrInUse); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return f, nil
}
