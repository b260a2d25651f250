package gitfetch

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// files is the file system for quarantines, promotion and maintenance.
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

// walk is [filepath.WalkDir] on files.
func walk(on files, root string, do fs.WalkDirFunc) error {
	return fs.WalkDir(tree{on, root}, ".", func(path string, d fs.DirEntry, err error) error {
		return do(filepath.Join(root, path), d, err)
	})
}

// tree is a folder as a file system for [fs.WalkDir].
type tree struct {
	files
	root string
}

var (
	_ fs.StatFS    = tree{}
	_ fs.ReadDirFS = tree{}
)

// Open implements [fs.FS]. It is never called.
func (t tree) Open(name string) (fs.File, error) { return os.Open(filepath.Join(t.root, name)) }

// Stat implements [fs.StatFS]. It does not follow symbolic links.
func (t tree) Stat(name string) (fs.FileInfo, error) { return t.Lstat(filepath.Join(t.root, name)) }

func (t tree) ReadDir(name string) ([]fs.DirEntry, error) {
	return t.files.ReadDir(filepath.Join(t.root, name))
}

// storage is the disk of the repositories. It is safe for concurrent use.
type storage struct {
	files files
	free  func(dir string) (uint64, error)
	least uint64 // minimum free bytes

	// called by sync and before a file is moved into a repository; only tests set them
	synced func(path string)
	placed func(path string)
}

func (d *storage) exists(path string) (bool, error) {
	_, err := d.files.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

func (d *storage) writeKeep(path string) error {
	file, err := d.files.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = file.WriteString(keepNote)
	return errors.Join(err, file.Close())
}

// move syncs a file and renames it.
func (d *storage) move(from, to string) error {
	if err := d.sync(from); err != nil {
		return err
	}
	if d.placed != nil {
		d.placed(to)
	}
	return d.files.Rename(from, to)
}

func (d *storage) sync(path string) error {
	if d.synced != nil {
		d.synced(path)
	}
	return d.files.Sync(path)
}

func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

func (d *storage) check(dir string) error {
	free, err := d.free(dir)
	if err != nil {
		return fmt.Errorf("checking the disk: %w", err)
	}
	if free < d.least {
		return fmt.Errorf("%w: %d bytes", ErrDisk, free)
	}
	return nil
}

// objectBytes returns the size of the objects of a repository. Files may be removed concurrently.
func objectBytes(on files, dir string) (sum int64, err error) {
	err = walk(on, dir, func(_ string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			sum += info.Size()
		}
		return err
	})
	return sum, err
}

// link creates a hard link, or a copy on another disk.
func link(on files, from, to string) error {
	err := on.Link(from, to)
	if err == nil || errors.Is(err, os.ErrNotExist) {
		return err
	}
	in, err := on.OpenFile(from, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	out, err := on.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return errors.Join(err, in.Close())
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close(), in.Close())
}
