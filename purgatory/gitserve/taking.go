package gitserve

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/barerepo"
)

// What is done to a repository around a push, under its lock.

// prepare notes what is about to go, and where a push is going on: what refs were that go is written
// down first.
func (r *Repositories) prepare(ref graspsync.RepoRef, moves []*command, now map[nip34.RefName]nip34.ObjectID) error {
	var removed []barerepo.Moved
	for _, c := range moves {
		if c.new.IsZero() {
			removed = append(removed, barerepo.Moved{Name: c.ref, Old: now[c.ref]})
		}
	}
	if len(removed) > 0 {
		if err := barerepo.LogRemoved(r.root, filepath.FromSlash(r.at(ref)), removed, time.Now()); err != nil {
			return fmt.Errorf("logging deleted refs: %w", err)
		}
	}
	file, err := r.root.Create(r.mark(ref)) // not synced: without power git has gone, too
	if err != nil {
		return fmt.Errorf("marking a push: %w", err)
	}
	return file.Close()
}

// packs returns how the names of the files of each pack in a folder begin.
func (r *Repositories) packs(folder string) (out []string, err error) {
	entries, err := fs.ReadDir(r.root.FS(), folder)
	for _, e := range entries {
		if base, ok := strings.CutSuffix(e.Name(), ".idx"); ok {
			out = append(out, path.Join(folder, base))
		}
	}
	return out, err
}

// packFiles are the files of a pack, in the order in which they get their place: git finds a pack by
// its index. The reverse index is missing in some.
var packFiles = []string{".pack", ".rev", ".idx"}

// weigh returns how many bytes a pack has; there may be none.
func (r *Repositories) weigh(pack string) (n int64, err error) {
	if pack == "" {
		return 0, nil
	}
	for _, ext := range packFiles {
		info, err := r.root.Stat(pack + ext)
		if err != nil && (ext != ".rev" || !errors.Is(err, fs.ErrNotExist)) {
			return 0, fmt.Errorf("measuring a push: %w", err)
		} else if err == nil {
			n += info.Size()
		}
	}
	return n, nil
}

// promote makes a pack that git has synced part of a repository, durably; there may be none. remove
// takes it away again, if it was not there before.
func (r *Repositories) promote(pack, at string) (remove func() error, err error) {
	remove = func() error { return nil }
	if pack == "" {
		return remove, nil
	}
	_, hash, _ := strings.Cut(path.Base(pack), "-")
	to := path.Join(at, "objects/pack", "pack-"+hash)
	if _, err := r.root.Stat(to + ".idx"); errors.Is(err, fs.ErrNotExist) {
		remove = func() (err error) {
			for _, ext := range slices.Backward(packFiles) {
				err = errors.Join(err, ifExists(r.root.Remove(to+ext)))
			}
			return err
		}
	} else if err != nil {
		return remove, fmt.Errorf("looking for a pack: %w", err)
	}
	for _, ext := range packFiles {
		if err := r.root.Rename(pack+ext, to+ext); err != nil && (ext != ".rev" || !errors.Is(err, fs.ErrNotExist)) {
			return remove, fmt.Errorf("giving a pack its place: %w", err)
		}
	}
	return remove, barerepo.SyncPacks(filepath.FromSlash(at), r.sync)
}

// settle makes what a push has changed durable, before anybody sees it who relies on
// that: git syncs files, but not the folders in which it gives them a name. If the disk
// fails nobody gets the lock until it has worked.
func (r *Repositories) settle(ref graspsync.RepoRef, names []nip34.RefName) error {
	if err := barerepo.SyncRefs(filepath.FromSlash(r.at(ref)), names, r.sync); err != nil {
		r.mu.Lock()
		r.unsure[ref] = struct{}{}
		r.mu.Unlock()
		return err
	}
	return r.root.Remove(r.mark(ref))
}

// syncPushed makes durable what a push may have changed of which it is not known what.
func (r *Repositories) syncPushed(at string) error {
	errs := []error{barerepo.SyncPacks(filepath.FromSlash(at), r.sync)}
	for _, folder := range []string{"refs", "logs"} {
		errs = append(errs, fs.WalkDir(r.root.FS(), path.Join(at, folder), func(name string, d fs.DirEntry, err error) error {
			if err == nil && d.IsDir() {
				err = r.sync(filepath.FromSlash(name))
			}
			return ifExists(err)
		}))
	}
	return errors.Join(append(errs, r.sync(filepath.FromSlash(at)))...)
}

// sweep removes what pushes have left that were killed: locks of refs. It is called with the lock of
// the repository: nobody else pushes.
func (r *Repositories) sweep(at string) error {
	var errs []error
	for _, folder := range []string{"refs", "logs"} { // that of a log is taken to expire it
		errs = append(errs, fs.WalkDir(r.root.FS(), path.Join(at, folder), func(name string, d fs.DirEntry, err error) error {
			if err == nil && d.Type().IsRegular() && path.Ext(name) == ".lock" {
				err = r.root.Remove(name)
			}
			return ifExists(err)
		}))
	}
	errs = append(errs, ifExists(r.root.Remove(path.Join(at, "HEAD.lock"))), r.sweepPacked(at))
	return errors.Join(errs...)
}

// packingMost is how long it takes at most to pack refs: twice as long as git waits for it.
const packingMost = 2 * time.Second

// sweepPacked removes the lock of packed-refs, and what was written under it. An operator
// who packs refs has no other lock, and to take that away would lose refs: he is given the
// moment that he needs, and garbage collection all its time.
func (r *Repositories) sweepPacked(at string) error {
	lock := path.Join(at, "packed-refs.lock")
	info, err := r.root.Lstat(lock)
	if err != nil {
		return ifExists(err) // who has it now also has what is written
	}
	if _, err := r.root.Lstat(path.Join(at, "gc.pid")); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	time.Sleep(min(packingMost, packingMost-time.Since(info.ModTime())))
	now, err := r.root.Lstat(lock)
	if err != nil || !os.SameFile(info, now) || !now.ModTime().Equal(info.ModTime()) {
		return ifExists(err) // it was somebody's
	}
	return errors.Join(ifExists(r.root.Remove(path.Join(at, "packed-refs.new"))), ifExists(r.root.Remove(lock)))
}

// pushMark begins the names of the files that say to which repositories pushes go on,
// lockMark of those that say which are locked for something else, such as maintenance.
const (
	pushMark = "push-"
	lockMark = "lock-"
)

// sweepPushes removes what pushes, and whoever else had a repository locked, have left that
// were killed with the process that they worked for, and makes durable what they had moved.
// It is called with the lock of the folder: git has gone as well.
func (r *Repositories) sweepPushes() error {
	entries, err := fs.ReadDir(r.root.FS(), incoming)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	errs := []error{err}
	for _, e := range entries {
		name, ok := strings.CutPrefix(e.Name(), pushMark)
		if !ok {
			name, ok = strings.CutPrefix(e.Name(), lockMark)
		}
		if !ok {
			continue // it was about to come or go
		}
		at := strings.Replace(name, "-", "/", 1) // as marked has it
		if _, err := r.root.Stat(path.Join(at, "HEAD")); err != nil {
			errs = append(errs, ifExists(err)) // if it is there, its mark must stay
			continue
		}
		errs = append(errs, r.sweep(at), r.syncPushed(at))
	}
	return errors.Join(errs...)
}
