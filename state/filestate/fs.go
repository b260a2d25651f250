package filestate

import (
	"fmt"
	"io"
	"os"

	"github.com/graspsync/graspsync/internal/filelock"
)

// folder is what is needed of the file system, so that tests can have each call
// fail and the power cut.
type folder interface {
	// Open opens a file for reading and says how long it is. The error is
	// fs.ErrNotExist where there is none.
	Open(name string) (io.ReadCloser, int64, error)
	// Create makes a file, or empties the one that is there.
	Create(name string) (file, error)
	Rename(from, to string) error
	// Link gives a file a second name.
	Link(name, other string) error
	Remove(name string) error
	// Sync makes the names durable.
	Sync() error
	Close() error
}

// file is one that is written.
type file interface {
	io.Writer
	Sync() error
	Close() error
}

// osFolder is a folder of the operating system.
type osFolder struct{ root *os.Root }

func openFolder(dir string) (osFolder, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return osFolder{}, fmt.Errorf("making the folder: %w", err)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return osFolder{}, fmt.Errorf("opening the folder: %w", err)
	}
	return osFolder{root}, nil
}

func (f osFolder) Open(name string) (io.ReadCloser, int64, error) {
	file, err := f.root.Open(name)
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err != nil {
		_ = file.Close() // only read
		return nil, 0, err
	}
	return file, info.Size(), nil
}

func (f osFolder) Create(name string) (file, error) {
	return f.root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
}

func (f osFolder) Rename(from, to string) error  { return f.root.Rename(from, to) }
func (f osFolder) Link(name, other string) error { return f.root.Link(name, other) }
func (f osFolder) Remove(name string) error      { return f.root.Remove(name) }
func (f osFolder) Close() error                  { return f.root.Close() }

func (f osFolder) Sync() error {
	d, err := f.root.Open(".")
	if err != nil {
		return err
	}
	defer d.Close() //nolint:errcheck // only synced
	return d.Sync()
}

// lock locks the folder until the returned file is closed, or the process ends.
func (f osFolder) lock() (io.Closer, error) {
	file, err := f.root.OpenFile(lockName, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("opening the lock: %w", err)
	}
	return file, filelock.Take(file, ErrLocked)
}
