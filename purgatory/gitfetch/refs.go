package gitfetch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/barerepo"
	"github.com/graspsync/graspsync/purgatory/internal/gitops"
	"github.com/graspsync/graspsync/purgatory/internal/gitrun"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// Refs implements [gitops.Operations], without git.
func (f *Fetcher) Refs(ctx context.Context, dir string) (refs refplan.Refs, err error) {
	if ctx.Err() != nil {
		return refs, context.Cause(ctx)
	}
	if refs.Format, err = barerepo.Format(f.disk.files, dir); err != nil {
		return refs, fmt.Errorf("reading the object format: %w", err)
	}
	all, err := barerepo.AllRefs(f.disk.files, dir)
	if err != nil {
		return refs, fmt.Errorf("reading refs: %w", err)
	}
	refs.At = make(map[nip34.RefName]nip34.ObjectID, len(all))
	for name, id := range all {
		if ref, err := refplan.ParseRef(name); err == nil {
			refs.At[ref] = id
		}
	}
	data, err := f.disk.files.ReadFile(filepath.Join(dir, "HEAD"))
	if err != nil {
		return refs, fmt.Errorf("reading HEAD: %w", err)
	}
	target, _ := strings.CutPrefix(strings.TrimSpace(string(data)), "ref: ")
	refs.Head, _ = refplan.ParseRef(target)
	return refs, nil
}

// UpdateRefs implements [gitops.Operations]. Conflicting deletions come first if git refuses a ref below
// the name of an existing ref.
func (f *Fetcher) UpdateRefs(ctx context.Context, dir string, changes []refplan.RefChange, head nip34.RefName) error {
	var sets, deletes []refplan.RefChange
	for _, c := range changes {
		if c.New.IsZero() {
			deletes = append(deletes, c)
		} else {
			sets = append(sets, c)
		}
	}
	err := f.transact(ctx, dir, sets)
	if says(err, inTheWay) {
		var first []refplan.RefChange
		if first, deletes = conflicting(sets, deletes); len(first) > 0 {
			if err = f.remove(ctx, dir, first); err == nil {
				err = f.transact(ctx, dir, sets)
			}
		}
	}
	if err != nil {
		return fmt.Errorf("setting refs: %w", err)
	}
	if !head.IsZero() {
		if err := f.setHead(dir, head); err != nil {
			return fmt.Errorf("setting HEAD: %w", err)
		}
	}
	return f.remove(ctx, dir, deletes)
}

// conflicting divides deletes into refs that exclude a set ref, because one name is a folder of the
// other, and the rest.
func conflicting(sets, deletes []refplan.RefChange) (first, rest []refplan.RefChange) {
	folders := func(c refplan.RefChange) (all []string) {
		for at := path.Dir(c.Name.String()); at != "."; at = path.Dir(at) {
			all = append(all, at)
		}
		return all
	}
	names, above := make(map[string]bool), make(map[string]bool)
	for _, c := range sets {
		names[c.Name.String()] = true
		for _, at := range folders(c) {
			above[at] = true
		}
	}
	for _, c := range deletes {
		if above[c.Name.String()] || slices.ContainsFunc(folders(c), func(at string) bool { return names[at] }) {
			first = append(first, c)
		} else {
			rest = append(rest, c)
		}
	}
	return first, rest
}

// remove deletes refs, after writing their old values to the reflog of HEAD.
func (f *Fetcher) remove(ctx context.Context, dir string, changes []refplan.RefChange) error {
	if len(changes) == 0 {
		return nil
	}
	if err := barerepo.LogRemoved(f.disk.files, dir, changes, time.Now()); err != nil {
		return fmt.Errorf("logging deleted refs: %w", err)
	}
	if err := f.transact(ctx, dir, changes); err != nil {
		return fmt.Errorf("deleting refs: %w", err)
	}
	return nil
}

func (f *Fetcher) transact(ctx context.Context, dir string, changes []refplan.RefChange) error {
	if len(changes) == 0 {
		return nil
	}
	_, err := f.git.run(ctx, gitrun.Child{
		Dir: dir, Stdin: barerepo.Transaction(changes), Args: []string{"update-ref", "--no-deref", "--stdin", "-z", "-m", "graspsync"},
	})
	switch {
	case says(err, unfit):
		return fmt.Errorf("%w: %w", gitops.ErrInvalidRefs, err)
	case says(err, changed):
		return fmt.Errorf("%w: %w", gitops.ErrChanged, err)
	case err != nil:
		return err
	}
	names := make([]nip34.RefName, len(changes))
	for i, c := range changes {
		names[i] = c.Name
	}
	if err := barerepo.SyncRefs(dir, names, f.disk.sync); err != nil {
		return fmt.Errorf("syncing refs: %w", err)
	}
	return nil
}

// staleAfter is the age at which a lock belongs to a killed process, not to an operator.
const staleAfter = time.Minute

// Phrases of git. Ref names contain no spaces, so they cannot contain these.
var (
	// changed: another value of a ref, or a conflicting ref.
	changed  = append([]string{"but expected", "reference already exists", "unable to resolve reference"}, inTheWay...)
	inTheWay = []string{"exists; cannot create"}
	// unfit: one name is a folder of another, a branch is no commit, the file system does not
	// support a name, or an object is unreadable.
	unfit = []string{
		"at the same time", "non-commit object", "File name too long", "nonexistent object", "refusing to update ref with bad name",
	}
)

func says(err error, phrases []string) bool {
	var failed *gitrun.Error
	return errors.As(err, &failed) && slices.ContainsFunc(phrases, func(p string) bool { return strings.Contains(failed.Stderr, p) })
}

// setHead points HEAD to a branch through a lock file. The name must be no argument of git.
func (f *Fetcher) setHead(dir string, head nip34.RefName) (err error) {
	if !strings.HasPrefix(head.String(), "refs/heads/") {
		return fmt.Errorf("%s is no branch", head)
	}
	want := "ref: " + head.String() + "\n"
	at := filepath.Join(dir, "HEAD")
	if now, err := f.disk.files.ReadFile(at); err == nil && string(now) == want {
		return nil
	}
	lock := at + ".lock"
	file, err := f.disk.files.OpenFile(lock, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = file.WriteString(want)
	if err = errors.Join(err, file.Sync(), file.Close()); err == nil {
		err = f.disk.files.Rename(lock, at)
	}
	if err != nil {
		return errors.Join(err, f.disk.files.Remove(lock))
	}
	return f.disk.sync(dir)
}
