package barerepo

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// PackingMost is the maximum time for which git packs refs.
const PackingMost = 2 * time.Second

// RemoveLocks removes the ref locks of a locked repository. It waits until packed-refs.lock is
// older than [PackingMost], because an operator's pack-refs may hold it, whose refs would be lost.
func RemoveLocks(ctx context.Context, on Disk, dir string) error {
	info, err := on.Lstat(filepath.Join(dir, "packed-refs.lock"))
	if err == nil {
		select {
		case <-time.After(min(PackingMost, PackingMost-time.Since(info.ModTime()))):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return RemoveOldLocks(on, dir, 0, PackingMost)
}

// RemoveOldLocks removes ref locks of at least the given age, packed for packed-refs.lock. The
// caller holds the lock of the repository.
func RemoveOldLocks(on Disk, dir string, age, packed time.Duration) error {
	var errs []error
	remove := func(path string, age time.Duration) {
		info, err := on.Lstat(path)
		if err == nil && time.Since(info.ModTime()) < age {
			return
		}
		if err == nil {
			err = on.Remove(path)
		}
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	for _, name := range []string{"HEAD.lock", "config.lock"} {
		remove(filepath.Join(dir, name), age)
	}
	lock := filepath.Join(dir, "packed-refs.lock")
	remove(lock, packed)
	switch _, err := on.Lstat(lock); { // packed-refs.new belongs to the holder of the lock
	case errors.Is(err, fs.ErrNotExist):
		remove(filepath.Join(dir, "packed-refs.new"), 0)
	case err != nil:
		errs = append(errs, err)
	}
	for _, folder := range []string{"refs", "logs"} { // git locks a reflog to expire it
		errs = append(errs, files(on, filepath.Join(dir, folder), func(path string) {
			if strings.HasSuffix(path, ".lock") {
				remove(path, age)
			}
		}))
	}
	return errors.Join(errs...)
}

// files calls do for each regular file below a folder. Folders may be removed concurrently.
func files(on Disk, folder string, do func(path string)) error {
	entries, err := list(on, folder)
	errs := []error{err}
	for _, e := range entries {
		switch path := filepath.Join(folder, e.Name()); {
		case e.IsDir():
			errs = append(errs, files(on, path, do))
		case e.Type().IsRegular():
			do(path)
		}
	}
	return errors.Join(errs...)
}

// list returns the entries of a folder, none if it does not exist, or was removed or replaced
// concurrently.
func list(on Disk, folder string) ([]fs.DirEntry, error) {
	file, err := on.OpenFile(folder, os.O_RDONLY, 0)
	var entries []fs.DirEntry
	if err == nil {
		entries, err = file.ReadDir(-1)
		err = errors.Join(err, file.Close())
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return nil, nil
	}
	return entries, err
}
