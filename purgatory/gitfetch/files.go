package gitfetch

import "os"

// files is what is done to the disk beside git: in quarantines, and to promote what is in
// them.
type files interface {
	Stat(name string) (os.FileInfo, error)
	ReadDir(name string) ([]os.DirEntry, error)
	ReadFile(name string) ([]byte, error)
	OpenFile(name string, flag int, mode os.FileMode) (*os.File, error)
	Mkdir(name string, mode os.FileMode) error
	Rename(from, to string) error
	Remove(name string) error
	RemoveAll(name string) error
	Sync(name string) error // file or folder
}

// osFiles are those of the system.
type osFiles struct{}

func (osFiles) Stat(name string) (os.FileInfo, error)      { return os.Stat(name) }
func (osFiles) ReadDir(name string) ([]os.DirEntry, error) { return os.ReadDir(name) }
func (osFiles) ReadFile(name string) ([]byte, error)       { return os.ReadFile(name) }
func (osFiles) Mkdir(name string, mode os.FileMode) error  { return os.Mkdir(name, mode) }
func (osFiles) Rename(from, to string) error               { return os.Rename(from, to) }
func (osFiles) Remove(name string) error                   { return os.Remove(name) }
func (osFiles) RemoveAll(name string) error                { return os.RemoveAll(name) }
func (osFiles) Sync(name string) error                     { return syncPath(name) }
func (osFiles) OpenFile(name string, flag int, mode os.FileMode) (*os.File, error) {
	return os.OpenFile(name, flag, mode)
}
