package gitfetch

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
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

// Maintain implements [gitops.Operations]. It repacks without the lock. Expired objects are removed
// under the lock, after a check that no ref has named them in between.
func (f *Fetcher) Maintain(ctx context.Context, how gitops.Maintenance) (gitops.Maintained, error) {
	place, err := f.maintained.Acquire(ctx, limit.Stranger{}, 1)
	if err != nil {
		return gitops.Maintained{}, fmt.Errorf("waiting to run git: %w", err)
	}
	defer place.Release()
	m := &maintenance{Fetcher: f, how: how, now: time.Now()}
	if err := m.run(ctx); err != nil {
		return m.done, fmt.Errorf("maintaining a repository: %w", err)
	}
	return m.done, nil
}

type maintenance struct {
	*Fetcher
	how   gitops.Maintenance
	dir   string // folder of the repository at the start
	now   time.Time
	idLen int
	done  gitops.Maintained

	packs  map[string]packFile // by name without extension, as last listed
	before int64               // size of all packs at the start, in bytes
	chosen []nip34.ObjectID    // result of how.Choose
}

type packFile struct {
	size  int64
	kept  bool // has a keep file
	cruft bool // contains unreferenced objects
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
	case len(m.names(func(p packFile) bool { return !p.kept && !p.cruft })) >= fewPacks:
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
	ctx, cancel := context.WithTimeoutCause(ctx, lockMost, errLong)
	defer cancel()
	return do(ctx)
}

var errLong = errors.New("the lock was held too long")

// begin removes abandoned files, packs refs, and lists the packs.
func (m *maintenance) begin(ctx context.Context) error {
	format, err := m.format(ctx, m.dir)
	if err != nil {
		return err
	}
	m.idLen = len(barerepo.Null(format)) / 2
	_, err = barerepo.RemoveOldLocks(m.disk.files, m.dir, staleAfter, staleAfter)
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
	there := make(map[string]bool)
	for _, e := range entries {
		there[e.Name()] = true
	}
	m.packs = make(map[string]packFile)
	for _, e := range entries {
		base, ext, _ := strings.Cut(e.Name(), ".")
		info, err := e.Info()
		if err != nil || !there[base+".pack"] || !there[base+".idx"] { // removed or incomplete
			continue
		}
		p := m.packs[base]
		if ext == "pack" || ext == "idx" {
			p.size += info.Size()
		}
		p.kept, p.cruft = p.kept || ext == "keep", p.cruft || ext == "mtimes"
		m.packs[base] = p
	}
	m.before = cmp.Or(m.before, size(m.packs))
	m.done.Packs, m.done.Freed = len(m.packs), m.before-size(m.packs)
	return nil
}

func size(packs map[string]packFile) (sum int64) {
	for _, p := range packs {
		sum += p.size
	}
	return sum
}

// due reports whether unnamed objects must be searched: a pack has come or gone since the last
// search, or objects expire with time.
func (m *maintenance) due() (bool, error) {
	if m.how.Now || m.how.Prune {
		return true, nil
	}
	var last time.Time
	data, err := m.disk.files.ReadFile(filepath.Join(m.dir, recordName))
	if err != nil || last.UnmarshalText(data) != nil || last.After(m.now) {
		return true, nil //nolint:nilerr // missing or invalid
	}
	if m.now.Sub(last) < pruneEvery {
		return false, nil
	}
	packs, err := m.disk.files.Lstat(m.path(""))
	if err != nil {
		return false, err
	}
	if packs.ModTime().After(last) || len(m.names(func(p packFile) bool { return p.cruft })) > 0 {
		return true, nil
	}
	logs, err := fileBytes(filepath.Join(m.dir, "logs"))
	return logs > 0, err
}

func (m *maintenance) searched() error {
	text, err := time.Now().MarshalText()
	if err != nil {
		return err
	}
	return m.disk.files.WriteFile(filepath.Join(m.dir, recordName), text, 0o600)
}

func (m *maintenance) names(is func(p packFile) bool) (bases []string) {
	for base, p := range m.packs {
		if is(p) {
			bases = append(bases, base)
		}
	}
	slices.Sort(bases)
	return bases
}

func (m *maintenance) repack(ctx context.Context, args ...string) error {
	if err := m.disk.check(m.dir, size(m.packs)); err != nil { // for a copy of all packs
		return err
	}
	args = append([]string{"repack", "-d", "-n", "--quiet", "--threads=1"}, args...)
	if _, err := m.child(ctx, nil, args...); err != nil {
		return fmt.Errorf("packing: %w", err)
	}
	return m.look()
}

// prune packs all objects that refs and reflogs reach, and the rest into a cruft pack. Then it
// removes expired cruft under the lock.
func (m *maintenance) prune(ctx context.Context) (err error) {
	if err := m.searched(); err != nil { // avoids a retry each time after a failure
		return err
	}
	if m.how.Choose != nil {
		if m.chosen, err = m.how.Choose(ctx, m.dir); err != nil {
			return err
		}
	}
	var before []byte
	if err := m.locked(ctx, func(ctx context.Context) (err error) {
		if err := errors.Join(m.expireLogs(ctx), m.hold(ctx)); err != nil {
			return err
		}
		before, err = m.child(ctx, nil, "for-each-ref", "--format=^%(objectname)")
		return err
	}); err != nil {
		return err
	}
	if err := m.repack(ctx, "--cruft"); err != nil {
		return err
	}
	old := m.names(func(p packFile) bool { return p.cruft && !p.kept })
	young, err := m.young(ctx, old)
	if err != nil {
		return err
	}
	return m.locked(ctx, func(ctx context.Context) error {
		if err := m.hold(ctx); err != nil {
			return err
		}
		if err := errors.Join(m.look(), m.unnamed(ctx, before, old, young)); err != nil {
			return err
		}
		if old = slices.DeleteFunc(old, func(base string) bool { return base == young || m.packs[base].kept }); len(old) > 0 {
			if err := m.drop(old...); err != nil {
				return err
			}
		}
		ours, err := marks(m.disk.files, m.dir)
		if err := errors.Join(err, m.look(), m.searched()); err != nil {
			return err
		}
		m.done.Pruned = true
		for base, p := range m.packs {
			if p.cruft || slices.Contains(ours, base) { // finding their reachable part would cost a walk
				m.done.Unnamed += p.size
			}
		}
		return nil
	})
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
		if len(id.String()) == 2*m.idLen && !held[name] && !wanted[name] {
			fresh = append(fresh, id)
		}
		wanted[name] = true
	}
	found := closure{}
	if len(fresh) > 0 {
		if found, err = m.closure(ctx, m.dir, "", fresh, &packIndexes{}); err != nil {
			return err
		}
	}
	var in bytes.Buffer
	for name := range held {
		if !wanted[name] {
			fmt.Fprintf(&in, "delete %s\n", name)
		}
	}
	for _, id := range without(fresh, found.missing) {
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

// young makes a cruft pack of objects that are not expired, with all that they need. It returns its
// name, or "".
func (m *maintenance) young(ctx context.Context, old []string) (string, error) {
	if m.how.Now || m.how.Grace <= 0 || len(old) == 0 {
		return "", nil
	}
	var in bytes.Buffer
	for base := range m.packs {
		if slices.Contains(old, base) {
			in.WriteByte('-')
		}
		fmt.Fprintf(&in, "%s.pack\n", base)
	}
	out, err := m.child(ctx, &in, "pack-objects", "--cruft", "--cruft-expiration="+gitTime(m.now.Add(-m.how.Grace)),
		"--delta-base-offset", "--threads=1", "--quiet", "--non-empty", "objects/pack/pack")
	if err != nil {
		return "", fmt.Errorf("packing: %w", err)
	}
	name := strings.TrimSpace(string(out))
	if name == "" {
		return "", nil
	}
	return "pack-" + name, m.disk.sync(m.path(""))
}

// unnamed returns an error that wraps [purgatory.ErrInUse] if an object that only the old packs have
// was named after the refs in before were read, or if a pack was marked while git repacked it.
func (m *maintenance) unnamed(ctx context.Context, before []byte, old []string, young string) error {
	ours, err := marks(m.disk.files, m.dir)
	if err != nil || len(old) == 0 {
		return err
	}
	for _, base := range ours {
		if _, there := m.packs[base]; !there {
			return fmt.Errorf("%w: %s was marked during maintenance", purgatory.ErrInUse, base)
		}
	}
	goes, err := m.indexes(m.path(""), old, m.idLen)
	if err != nil {
		return err
	}
	defer goes.close()
	stays, err := m.indexes(m.path(""), slices.DeleteFunc([]string{young}, func(base string) bool { return base == "" }), m.idLen)
	if err != nil {
		return err
	}
	defer stays.close()
	var needed error
	_, err = m.git.runNow(ctx, gitrun.Child{
		Dir: m.dir, Stdin: bytes.NewReader(before), Args: []string{"rev-list", "--objects", "--no-object-names", "--all", "--reflog", "--stdin"},
		Stdout: &splitter{each: func(line []byte) {
			if needed == nil && goes.has(line) && !stays.has(line) {
				needed = fmt.Errorf("%w: %s was needed meanwhile", purgatory.ErrInUse, line)
			}
		}},
	})
	return errors.Join(err, needed, goes.err, stays.err)
}

// child runs git at low priority, outside of MaxChildren.
func (m *maintenance) child(ctx context.Context, in io.Reader, args ...string) ([]byte, error) {
	return m.git.runNow(ctx, gitrun.Child{Dir: m.dir, Stdin: in, Nice: true, Args: args})
}

func (m *maintenance) path(name string) string { return filepath.Join(m.dir, "objects", "pack", name) }

// drop removes packs and multi-pack indexes. Repack would fail on a pack without an index.
func (m *maintenance) drop(bases ...string) error {
	names, err := filepath.Glob(m.path("multi-pack-index*"))
	for _, ext := range []string{".pack", ".idx", ".bitmap", ".rev", ".mtimes"} {
		for _, base := range bases {
			names = append(names, m.path(base+ext))
		}
	}
	for _, name := range names {
		if rerr := m.disk.files.Remove(name); rerr != nil && !errors.Is(rerr, fs.ErrNotExist) {
			return errors.Join(err, rerr)
		}
	}
	return errors.Join(err, m.disk.sync(m.path("")))
}

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
		if note, err := on.ReadFile(filepath.Join(folder, e.Name())); err == nil && string(note) == keepNote {
			bases = append(bases, base)
		}
	}
	return bases, nil
}

const keepNote = "graspsync\n"

// kept opens the indexes of packs with our keep files.
func (f *Fetcher) kept(dir string, idLen int) (*packIndexes, error) {
	folder := filepath.Join(dir, "objects", "pack")
	bases, err := marks(f.disk.files, dir)
	if err != nil {
		return nil, err
	}
	bases = slices.DeleteFunc(bases, func(base string) bool {
		_, err := f.disk.files.Lstat(filepath.Join(folder, base+".idx"))
		return errors.Is(err, os.ErrNotExist) // a crash may leave a keep file alone
	})
	return f.indexes(folder, bases, idLen)
}
