package gitfetch

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/internal/barerepo"
	"github.com/graspsync/graspsync/purgatory/internal/gitops"
	"github.com/graspsync/graspsync/purgatory/internal/gitrun"
)

const (
	// fewPacks is the number below which readers notice no delay.
	fewPacks = 8
	// pruneEvery is the minimum time between two searches for unnamed objects.
	pruneEvery = 7 * 24 * time.Hour
	// lockMost is the maximum time that the lock is held.
	lockMost = 20 * time.Second
)

const recordName = "graspsync-maintenance"

// Maintain implements [gitops.Operations]. It repacks, and removes expired objects, without the lock.
func (f *Fetcher) Maintain(ctx context.Context, how gitops.Maintenance) (gitops.Maintained, error) {
	slot, err := f.maintained.Acquire(ctx, limit.Stranger{}, 1) // concurrent repacks of a repository disturb each other
	if err != nil {
		return gitops.Maintained{}, fmt.Errorf("waiting to run git: %w", err)
	}
	defer slot.Release()
	m := &maintenance{Fetcher: f, how: how, now: time.Now()}
	if err := m.run(ctx); err != nil {
		return m.done, fmt.Errorf("maintaining a repository: %w", err)
	}
	return m.done, nil
}

type maintenance struct {
	*Fetcher
	how  gitops.Maintenance
	dir  string // folder of the repository at the start
	now  time.Time
	ids  nip34.ObjectFormat
	done gitops.Maintained

	bytes  int64            // size of all packs, as last listed
	open   int              // number of packs with neither a keep file nor unreferenced objects
	before int64            // size of all packs at the start
	chosen []nip34.ObjectID // result of how.Choose
}

func (m *maintenance) run(ctx context.Context) error {
	prune := false
	err := m.locked(ctx, func(ctx context.Context) (err error) {
		if err := m.begin(ctx); err != nil {
			return err
		}
		prune, err = m.due()
		return err
	})
	switch {
	case err != nil:
		return err
	case prune:
		return m.prune(ctx)
	case m.open >= fewPacks:
		return m.repack(ctx, "--geometric=2", "--write-midx") // removes no object, so it needs no lock
	}
	return nil
}

// locked calls do under the lock. It fails if the repository has moved.
func (m *maintenance) locked(ctx context.Context, do func(ctx context.Context) error) error {
	dir, unlock, err := m.how.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if m.dir = cmp.Or(m.dir, dir); m.dir != dir {
		return fmt.Errorf("%w: it has moved", purgatory.ErrInUse)
	}
	ctx, cancel := context.WithTimeout(ctx, lockMost)
	defer cancel()
	return do(ctx)
}

// begin removes abandoned files, packs refs, and lists the packs.
func (m *maintenance) begin(ctx context.Context) error {
	format, err := barerepo.Format(m.disk.files, m.dir)
	if err != nil {
		return err
	}
	m.ids = format
	err = barerepo.RemoveOldLocks(m.disk.files, m.dir, staleAfter, staleAfter)
	if err := errors.Join(err, sweepObjects(m.disk.files, m.dir, m.now)); err != nil {
		return fmt.Errorf("sweeping: %w", err)
	}
	if m.how.Prune { // otherwise an event that waits forever would protect all objects of its packs
		if err := unmark(m.disk.files, m.dir, m.now.Add(-min(leftAfter, m.how.Grace))); err != nil {
			return fmt.Errorf("removing marks: %w", err)
		}
	}
	return errors.Join(m.packRefs(ctx), m.look())
}

func (m *maintenance) packRefs(ctx context.Context) error {
	if _, err := m.child(ctx, nil, "pack-refs", "--all", "--prune"); err != nil {
		return fmt.Errorf("packing refs: %w", err)
	}
	return nil
}

func (m *maintenance) look() error {
	entries, err := m.disk.files.ReadDir(m.path(""))
	if err != nil {
		return err
	}
	ours, err := marks(m.disk.files, m.dir)
	if err != nil {
		return err
	}
	sizes := make(map[string]int64)
	for _, e := range entries {
		if info, err := e.Info(); err == nil { // else it was removed
			sizes[e.Name()] = info.Size()
		}
	}
	m.bytes, m.open, m.done.Packs, m.done.Unnamed = 0, 0, 0, 0
	for name, size := range sizes {
		base, isIndex := strings.CutSuffix(name, ".idx")
		pack, complete := sizes[base+".pack"]
		if !isIndex || !complete {
			continue
		}
		_, kept := sizes[base+".keep"]
		_, cruft := sizes[base+".mtimes"]
		m.done.Packs++
		m.bytes += size + pack
		if !kept && !cruft {
			m.open++
		}
		if cruft || slices.Contains(ours, base) { // finding their reachable part would cost a walk
			m.done.Unnamed += size + pack
		}
	}
	m.before = cmp.Or(m.before, m.bytes)
	m.done.Freed = m.before - m.bytes
	return nil
}

// due reports whether unnamed objects must be searched: a pack has come or gone since the last
// search, or objects expire with time.
func (m *maintenance) due() (bool, error) {
	if m.how.Now || m.how.Prune {
		return true, nil
	}
	record, err := m.disk.files.Lstat(filepath.Join(m.dir, recordName))
	if err != nil || record.ModTime().After(m.now) {
		return true, nil //nolint:nilerr // missing, or the clock was set back
	}
	last := record.ModTime()
	if m.now.Sub(last) < pruneEvery {
		return false, nil
	}
	packs, err := m.disk.files.Lstat(m.path(""))
	if err != nil {
		return false, err
	}
	if packs.ModTime().After(last) || m.done.Unnamed > 0 {
		return true, nil
	}
	logs, err := fileBytes(filepath.Join(m.dir, "logs"))
	return logs > 0, err
}

func (m *maintenance) searched() error {
	return m.disk.files.WriteFile(filepath.Join(m.dir, recordName), []byte(barerepo.KeepNote), 0o600)
}

func (m *maintenance) repack(ctx context.Context, args ...string) error {
	if err := m.disk.check(m.dir, m.bytes); err != nil { // for a copy of all packs
		return err
	}
	args = append([]string{"-c", "pack.writeReverseIndex=true", "repack", "-d", "-n", "--quiet", "--threads=1"}, args...)
	if _, err := m.child(ctx, nil, args...); err != nil {
		return fmt.Errorf("packing: %w", err)
	}
	return m.look()
}

// prune packs all objects that refs and reflogs reach, and the rest into a cruft pack without expired
// objects. This needs no lock, because objects that get a ref or are waited for while git packs
// are copied into new packs, which git leaves alone.
func (m *maintenance) prune(ctx context.Context) (err error) {
	if err := m.searched(); err != nil { // avoids a retry each time after a failure
		return err
	}
	if m.how.Choose != nil {
		if m.chosen, err = m.how.Choose(ctx, m.dir); err != nil {
			return err
		}
	}
	if err := m.locked(ctx, func(ctx context.Context) error { return errors.Join(m.expireLogs(ctx), m.hold(ctx)) }); err != nil {
		return err
	}
	expired := gitTime(m.now.Add(-m.how.Grace))
	if m.how.Now {
		expired = "now"
	}
	if err := m.repack(ctx, "--cruft", "--cruft-expiration="+expired); err != nil {
		return err
	}
	if _, err := m.child(ctx, nil, "prune", "--expire="+expired); err != nil { // loose objects
		return fmt.Errorf("removing loose objects: %w", err)
	}
	m.done.Pruned = true
	return m.searched()
}

// expireLogs expires reflogs, and deletes those of event refs, which any pusher can fill.
func (m *maintenance) expireLogs(ctx context.Context) error {
	if err := m.disk.files.RemoveAll(filepath.Join(m.dir, "logs", "refs", "nostr")); err != nil {
		return fmt.Errorf("removing logs: %w", err)
	}
	at := gitTime(m.now.Add(-m.how.Remember))
	if m.how.Now {
		at = "all"
	}
	if _, err := m.child(ctx, nil, "reflog", "expire", "--all", "--expire="+at, "--expire-unreachable="+at); err != nil {
		return fmt.Errorf("expiring logs: %w", err)
	}
	return nil
}

func gitTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 +0000") }

// hold creates hidden refs to the complete objects that waiting events name.
func (m *maintenance) hold(ctx context.Context) error {
	keep, err := m.how.Keep(ctx)
	if err != nil {
		return err
	}
	out, err := m.child(ctx, nil, "for-each-ref", "--format=%(refname)", heldRefs)
	if err != nil {
		return fmt.Errorf("reading refs: %w", err)
	}
	held := make(map[string]bool)
	for name := range strings.FieldsSeq(string(out)) {
		held[name] = true
	}
	var fresh []nip34.ObjectID
	wanted := make(map[string]bool)
	for _, id := range slices.Concat(keep, m.chosen) {
		name := heldRefs + id.String()
		if id.Format() == m.ids && !held[name] && !wanted[name] {
			fresh = append(fresh, id)
		}
		wanted[name] = true
	}
	missing, err := m.missing(ctx, m.dir, fresh)
	if err == nil {
		missing, err = m.missing(ctx, m.dir, missing) // git may have failed for another reason
	}
	if err != nil {
		return err
	}
	var in bytes.Buffer
	for name := range held {
		if !wanted[name] {
			fmt.Fprintf(&in, "delete %s\n", name)
		}
	}
	for _, id := range without(fresh, missing) {
		fmt.Fprintf(&in, "create %s%s %s\n", heldRefs, id, id)
	}
	if in.Len() == 0 {
		return nil
	}
	if _, err := m.child(ctx, &in, "-c", "core.logAllRefUpdates=false", "update-ref", "--stdin"); err != nil {
		return fmt.Errorf("protecting objects of events: %w", err)
	}
	return m.packRefs(ctx)
}

const heldRefs = barerepo.HiddenRefs + "held/"

// child runs git at low priority, outside of MaxChildren.
func (m *maintenance) child(ctx context.Context, in io.Reader, args ...string) ([]byte, error) {
	return m.git.runNow(ctx, gitrun.Child{Dir: m.dir, Stdin: in, Nice: true, Args: args})
}

func (m *maintenance) path(name string) string { return filepath.Join(m.dir, "objects", "pack", name) }

// leftAfter is the age after which a temporary file is abandoned.
const leftAfter = time.Hour

// sweepObjects removes partial packs and temporary files that killed processes left.
func sweepObjects(on files, dir string, now time.Time) error {
	objects := filepath.Join(dir, "objects")
	var errs []error
	for _, folder := range []string{objects, filepath.Join(objects, "pack")} {
		entries, err := on.ReadDir(folder)
		if err != nil {
			return err
		}
		names := make(map[string]bool)
		for _, e := range entries {
			names[e.Name()] = true
		}
		for _, e := range entries {
			info, err := e.Info()
			if err != nil || now.Sub(info.ModTime()) < leftAfter {
				continue
			}
			path, base, ext := filepath.Join(folder, e.Name()), strings.TrimSuffix(e.Name(), filepath.Ext(e.Name())), filepath.Ext(e.Name())
			half := strings.HasPrefix(base, "pack-") && !(names[base+".idx"] && names[base+".pack"])
			if ext != ".keep" && half || strings.HasPrefix(e.Name(), "tmp_") || strings.HasPrefix(e.Name(), ".tmp-") {
				errs = append(errs, on.RemoveAll(path))
			}
		}
	}
	return errors.Join(errs...)
}

// unmark removes our keep files written before a time, or all if it is zero.
func unmark(on files, dir string, before time.Time) error {
	bases, err := marks(on, dir)
	errs := []error{err}
	for _, base := range bases {
		name := filepath.Join(dir, "objects", "pack", base+".keep")
		info, err := on.Lstat(name)
		if err == nil && (before.IsZero() || info.ModTime().Before(before)) {
			err = on.Remove(name)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// marks returns the packs with our keep files.
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
		if note, err := on.ReadFile(filepath.Join(folder, e.Name())); err == nil && string(note) == barerepo.KeepNote {
			bases = append(bases, base)
		}
	}
	return bases, nil
}
