package gitfetch

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// unlock removes the locks of at least an age that a process of git, or we, left when
// we were killed; that of packed-refs has an age of its own.
// Whoever writes refs holds the repository's lock, as we do now, but for garbage
// collection: while that runs, locks are its own.
func unlock(on files, dir string, age, packed time.Duration) (removed int, err error) {
	if collecting(dir) {
		return 0, nil
	}
	var errs []error
	remove := func(path string, age time.Duration) {
		switch info, err := on.Lstat(path); {
		case errors.Is(err, fs.ErrNotExist):
			return
		case err != nil: // it may be somebody's
			errs = append(errs, err)
			return
		case time.Since(info.ModTime()) < age:
			return
		}
		switch err := on.Remove(path); {
		case err == nil:
			removed++
		case !errors.Is(err, fs.ErrNotExist):
			errs = append(errs, err)
		}
	}
	for _, name := range []string{"HEAD.lock", "config.lock"} {
		remove(filepath.Join(dir, name), age)
	}
	// Git does not write packed-refs while its packed-refs.new is there, which belongs to
	// who has the lock.
	lock := filepath.Join(dir, "packed-refs.lock")
	remove(lock, packed)
	switch _, err := on.Lstat(lock); {
	case errors.Is(err, fs.ErrNotExist):
		remove(filepath.Join(dir, "packed-refs.new"), 0)
	case err != nil:
		errs = append(errs, err)
	}
	for _, folder := range []string{"refs", "logs"} { // that of a log is taken to expire it
		errs = append(errs, walk(on, filepath.Join(dir, folder), func(path string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // a folder that somebody removed since
			}
			if err != nil {
				return err
			}
			if d.Type().IsRegular() && strings.HasSuffix(path, ".lock") {
				remove(path, age)
			}
			return nil
		}))
	}
	return removed, errors.Join(errs...)
}

// collecting reports whether a process of this host says that it collects garbage
// in a repository, and is alive. Git writes "<pid> <host>" for as long. It does not
// believe a note that is older than 12 hours either: its number may be another process's.
func collecting(dir string) bool {
	path := filepath.Join(dir, "gc.pid")
	if info, err := os.Lstat(path); err != nil || time.Since(info.ModTime()) > gcMost {
		return false
	}
	note, _ := os.ReadFile(path) // one that can't be read has no number
	text, host, _ := strings.Cut(strings.TrimSpace(string(note)), " ")
	pid, err := strconv.Atoi(text)
	if err != nil || pid <= 0 {
		return false
	}
	if own, err := os.Hostname(); err == nil && host != own {
		return false
	}
	err = syscall.Kill(pid, 0)
	return err == nil || errors.Is(err, syscall.EPERM)
}

const gcMost = 12 * time.Hour
