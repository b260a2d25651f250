package gitfetch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/graspsync/graspsync/purgatory"
)

// Tidy implements [purgatory.GitFetcher]. It is called when nothing has gone wrong as well:
// young locks may be those of an operator.
func (f *Fetcher) Tidy(_ context.Context, dir string) error {
	_, err := unlock(f.files, dir, staleAfter, staleAfter)
	f.letGo(dir)
	if err := errors.Join(err, f.sweep(dir), sweepObjects(f.files, dir, time.Now()), release(f.files, dir)); err != nil {
		return fmt.Errorf("tidying a repository: %w", err)
	}
	return nil
}

var _ purgatory.Mender = (*Fetcher)(nil)

// Mend implements [purgatory.Mender]. Locks of refs are nobody's, since we have that of
// the repository; but who packs refs, as an operator may, has no other one than that of
// packed-refs, for a moment. To take it away would lose refs: it is given that moment.
func (f *Fetcher) Mend(ctx context.Context, dir string) error {
	if info, err := os.Lstat(filepath.Join(dir, "packed-refs.lock")); err == nil {
		select {
		case <-time.After(packingMost - time.Since(info.ModTime())):
		case <-ctx.Done():
			return fmt.Errorf("mending a repository: %w", context.Cause(ctx))
		}
	}
	_, err := unlock(f.files, dir, 0, packingMost)
	if err := errors.Join(err, f.sweep(dir), sweepObjects(f.files, dir, time.Now())); err != nil {
		return fmt.Errorf("mending a repository: %w", err)
	}
	return nil
}

// packingMost is how long it takes at most to pack refs: twice as long as git waits for it.
const packingMost = 2 * time.Second

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

// release lets garbage collection have the packs that Promote marked.
func release(on files, dir string) error {
	marks, err := marks(on, dir)
	errs := []error{err}
	for _, base := range marks {
		errs = append(errs, on.Remove(base+".keep"))
	}
	return errors.Join(errs...)
}

// unmark is release for what was marked before a time.
func unmark(on files, dir string, before time.Time) error {
	marks, err := marks(on, dir)
	errs := []error{err}
	for _, base := range marks {
		info, err := on.Lstat(base + ".keep")
		if err == nil && info.ModTime().Before(before) {
			err = on.Remove(base + ".keep")
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// marks returns the packs that we keep from garbage collection, without extension.
func marks(on files, dir string) (bases []string, err error) {
	folder := filepath.Join(dir, "objects", "pack")
	entries, err := on.ReadDir(folder)
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		base, ok := strings.CutSuffix(e.Name(), ".keep")
		if !ok {
			continue
		}
		path := filepath.Join(folder, base)
		if note, err := on.ReadFile(path + ".keep"); err == nil && string(note) == keepNote {
			bases = append(bases, path)
		}
	}
	return bases, nil
}

// kept reads which objects we keep from garbage collection.
func (f *Fetcher) kept(dir string, idLen int) (packIndexes, error) {
	bases, err := marks(f.files, dir)
	if err != nil {
		return nil, err
	}
	names := make(map[string]bool, len(bases))
	for _, base := range bases {
		if _, err := f.files.Stat(base + ".idx"); err == nil { // or the mark of a crash, alone
			names[filepath.Base(base)+".idx"] = true
		}
	}
	return f.readIndexes(filepath.Join(dir, "objects", "pack"), names, idLen)
}
