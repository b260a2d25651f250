package gitfetch

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/graspsync/graspsync/purgatory/internal/barerepo"
)

// files is the file system for quarantines, promotion and maintenance.
type files interface {
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

func (osFiles) Lstat(name string) (os.FileInfo, error)     { return os.Lstat(name) }
func (osFiles) ReadDir(name string) ([]os.DirEntry, error) { return os.ReadDir(name) }
func (osFiles) ReadFile(name string) ([]byte, error)       { return os.ReadFile(name) }
func (osFiles) Mkdir(name string, mode os.FileMode) error  { return os.Mkdir(name, mode) }
func (osFiles) Link(from, to string) error                 { return os.Link(from, to) }
func (osFiles) Rename(from, to string) error               { return os.Rename(from, to) }
func (osFiles) Remove(name string) error                   { return os.Remove(name) }
func (osFiles) RemoveAll(name string) error                { return os.RemoveAll(name) }
func (osFiles) OpenFile(name string, flag int, mode os.FileMode) (*os.File, error) {
	return os.OpenFile(name, flag, mode)
}

func (osFiles) WriteFile(name string, data []byte, mode os.FileMode) error {
	return os.WriteFile(name, data, mode)
}

func (osFiles) Sync(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// storage is the disk of the repositories.
type storage struct {
	files files
	free  func(dir string) (uint64, error)
	least uint64 // minimum free bytes

	// called by sync and before a file is moved into a repository; only tests set them
	synced func(path string)
	placed func(path string)
}

func (d *storage) writeKeep(path string) error {
	file, err := d.files.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = file.WriteString(barerepo.KeepNote)
	return errors.Join(err, file.Close())
}

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

// check returns an error if less than the minimum would be free after bytes more.
func (d *storage) check(dir string, bytes int64) error {
	free, err := d.free(dir)
	if err != nil {
		return fmt.Errorf("checking the disk: %w", err)
	}
	if free < d.least+uint64(bytes) {
		return fmt.Errorf("%w: %d bytes", ErrDisk, free)
	}
	return nil
}

func fileBytes(folder string) (sum int64, err error) {
	err = filepath.WalkDir(folder, func(_ string, d fs.DirEntry, err error) error {
		var info fs.FileInfo
		if err == nil && d.Type().IsRegular() {
			if info, err = d.Info(); err == nil {
				sum += info.Size()
			}
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
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
