package gitserve

import (
	"io/fs"
	"os"
)

// folder is the folder of repositories. It is an [os.Root], but in tests of disks that fail.
type folder interface {
	Stat(name string) (fs.FileInfo, error)
	Lstat(name string) (fs.FileInfo, error)
	Open(name string) (*os.File, error)
	OpenFile(name string, flag int, mode fs.FileMode) (*os.File, error)
	Create(name string) (*os.File, error)
	ReadFile(name string) ([]byte, error)
	Mkdir(name string, mode fs.FileMode) error
	Rename(from, to string) error
	Remove(name string) error
	RemoveAll(name string) error
	FS() fs.FS
	Close() error
}

var _ folder = (*os.Root)(nil)
