package gitserve

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory/internal/barerepo"
)

// What is done to a repository around a push, under its lock.

// prepare makes a push ready to be given to git, whose request is in a file. Between what
// a client was told about its refs and now, they may have been moved to just where it
// wants them: then it asks for nothing any more, and git is told so. What refs were that
// go is written down first, and so is where a push is going on.
func (r *Repositories) prepare(ref graspsync.RepoRef, req request, request *os.File) error {
	dir := filepath.FromSlash(r.at(ref))
	at, err := barerepo.Refs(r.root, dir, req.names())
	if err != nil {
		return fmt.Errorf("reading refs: %w", err)
	}
	var removed []barerepo.Moved
	for _, c := range req.commands {
		now := at[c.ref]
		switch {
		case now == c.new && now != c.old:
			if _, err := request.WriteAt([]byte(gitID(c.new, c.old)), c.at); err != nil {
				return fmt.Errorf("keeping a request: %w", err)
			}
		case c.new.IsZero() && now == c.old && !now.IsZero():
			removed = append(removed, barerepo.Moved{Name: c.ref, Old: now})
		}
	}
	if len(removed) > 0 {
		if err := barerepo.LogRemoved(r.root, dir, removed, time.Now()); err != nil {
			return fmt.Errorf("logging deleted refs: %w", err)
		}
	}
	file, err := r.root.Create(r.mark(ref)) // not synced: without power git has gone, too
	if err != nil {
		return fmt.Errorf("marking a push: %w", err)
	}
	return file.Close()
}

// settle makes what a push has changed durable, before anybody sees it who relies on
// that: git syncs files, but not the folders in which it gives them a name. If the disk
// fails nobody gets the lock until it has worked.
func (r *Repositories) settle(ref graspsync.RepoRef, req request) error {
	at := filepath.FromSlash(r.at(ref))
	if err := errors.Join(barerepo.SyncPacks(at, r.sync), barerepo.SyncRefs(at, req.names(), r.sync)); err != nil {
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

// incomplete begins the names of the folders that git keeps the objects of a push in
// until it takes them. It removes them itself, unless it is killed.
const incomplete = "tmp_objdir-incoming-"

// sweep removes what pushes have left that were killed: objects, notes that keep packs, and locks
// of refs. It is called with the lock of the repository: nobody else pushes.
func (r *Repositories) sweep(at string) error {
	entries, err := fs.ReadDir(r.root.FS(), path.Join(at, "objects"))
	if err != nil {
		return fmt.Errorf("sweeping a repository: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), incomplete) {
			errs = append(errs, r.root.RemoveAll(path.Join(at, "objects", e.Name())))
		}
	}
	errs = append(errs, r.sweepKept(at))
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

// sweepKept removes the notes of pushes that keep packs: what is in these was never maintained, and
// stayed though nothing named it.
func (r *Repositories) sweepKept(at string) error {
	folder := path.Join(at, "objects", "pack")
	entries, err := fs.ReadDir(r.root.FS(), folder)
	errs := []error{err}
	for _, e := range entries {
		if path.Ext(e.Name()) != ".keep" {
			continue
		}
		name := path.Join(folder, e.Name())
		note, err := r.root.ReadFile(name)
		if err == nil && strings.HasPrefix(string(note), barerepo.PushNote) {
			err = r.root.Remove(name)
		}
		errs = append(errs, ifExists(err))
	}
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
