package gitfetch

import (
	"io/fs"
	"os"
	"path/filepath"
)

// files is what is done to the disk beside git: in quarantines, to promote what is in
// them, and in repositories that are maintained.
type files interface {
	Stat(name string) (os.FileInfo, error)
	Lstat(name string) (os.FileInfo, error)
	ReadDir(name string) ([]os.DirEntry, error)
	ReadFile(name string) ([]byte, error)
	WriteFile(name string, data []byte, mode os.FileMode) error
	OpenFile(name string, flag int, mode os.FileMode) (*os.File, error)
	Mkdir(name string, mode os.FileMode) error
	Link(from, to string) error
	Rename(from, to string) error
	Remove(name string) error
	RemoveAll(name string) error
	Sync(name string) error // file or folder
}

// osFiles are those of the system.
type osFiles struct{}

func (osFiles) Stat(name string) (os.FileInfo, error)      { return os.Stat(name) }
func (osFiles) Lstat(name string) (os.FileInfo, error)     { return os.Lstat(name) }
func (osFiles) ReadDir(name string) ([]os.DirEntry, error) { return os.ReadDir(name) }
func (osFiles) ReadFile(name string) ([]byte, error)       { return os.ReadFile(name) }
func (osFiles) Mkdir(name string, mode os.FileMode) error  { return os.Mkdir(name, mode) }
func (osFiles) Link(from, to string) error                 { return os.Link(from, to) }
func (osFiles) Rename(from, to string) error               { return os.Rename(from, to) }
func (osFiles) Remove(name string) error                   { return os.Remove(name) }
func (osFiles) RemoveAll(name string) error                { return os.RemoveAll(name) }
func (osFiles) Sync(name string) error                     { return syncPath(name) }
func (osFiles) OpenFile(name string, flag int, mode os.FileMode) (*os.File, error) {
	return os.OpenFile(name, flag, mode)
}

func (osFiles) WriteFile(name string, data []byte, mode os.FileMode) error {
	return os.WriteFile(name, data, mode)
}

// walk does what [filepath.WalkDir] does.
func walk(on files, root string, do fs.WalkDirFunc) error {
	return fs.WalkDir(tree{on, root}, ".", func(path string, d fs.DirEntry, err error) error {
		return do(filepath.Join(root, path), d, err)
	})
}

// tree is a folder as [fs.WalkDir] takes it.
type tree struct {
	files
	root string
}

var (
	_ fs.StatFS    = tree{}
	_ fs.ReadDirFS = tree{}
)

// Open implements [fs.FS], of which nobody makes use here.
func (t tree) Open(name string) (fs.File, error) { return os.Open(filepath.Join(t.root, name)) }

// Stat implements [fs.StatFS]. It follows no link.
func (t tree) Stat(name string) (fs.FileInfo, error) { return t.Lstat(filepath.Join(t.root, name)) }

// ReadDir implements [fs.ReadDirFS].
func (t tree) ReadDir(name string) ([]fs.DirEntry, error) {
	return t.files.ReadDir(filepath.Join(t.root, name))
}
