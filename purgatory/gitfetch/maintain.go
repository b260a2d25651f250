package gitfetch

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/internal/barerepo"
	"github.com/graspsync/graspsync/purgatory/internal/gitops"
)

const (
	// maxMaintained is the maximum number of concurrent maintenance runs: one scheduled, and one
	// that an operator requested. Their children do not count toward MaxChildren.
	maxMaintained = 2
	// fewPacks and fewRefs are the numbers below which readers notice no delay.
	fewPacks = 8
	fewRefs  = 64
	// pruneEvery is the minimum time between two full repacks of a repository. Full repacks also
	// take at most 1/pruneShare of the time.
	pruneEvery = 7 * 24 * time.Hour
	pruneShare = 100
	// lockMost is the maximum time that the lock is held.
	lockMost = 20 * time.Second
	// leftAfter is the age after which a temporary file is abandoned. Pushes, fetches and repacks
	// write more often.
	leftAfter = time.Hour
)

// maintainer maintains repositories with git's own commands. It is safe for concurrent use.
type maintainer struct {
	// set by newMaintainer, read-only
	*store
	places *limit.Slots // one per maintained repository

	mu   sync.Mutex
	busy map[string]bool // guarded by mu: folders being maintained
}

func newMaintainer(s *store) *maintainer {
	return &maintainer{store: s, places: limit.NewSlots(maxMaintained, maxMaintained), busy: make(map[string]bool)}
}

// Maintain implements [gitops.Operations] with git's repack, reflog expire and pack-refs. These
// commands keep young objects, so they need no lock. Expired objects are removed under the lock,
// after a check that no ref has named them in between.
func (f *Fetcher) Maintain(ctx context.Context, how gitops.Maintenance) (gitops.Maintained, error) {
	place, err := f.maintainer.places.Acquire(ctx, limit.Stranger{}, 1)
	if err != nil {
		return gitops.Maintained{}, fmt.Errorf("waiting to run git: %w", err)
	}
	defer place.Release()
	m := &maintenance{maintainer: f.maintainer, how: how, now: time.Now()}
	defer m.leave()
	if err := m.run(ctx); err != nil {
		return m.done, fmt.Errorf("maintaining a repository: %w", err)
	}
	return m.done, nil
}

type maintenance struct {
	*maintainer // read-only
	how         gitops.Maintenance
	dir         string // folder of the repository at the start; empty: not yet known
	now         time.Time
	idLen       int
	done        gitops.Maintained

	// result of the last look
	packs  map[string]packFile // by name without extension
	first  map[string]packFile // packs at the start
	loose  int                 // number of loose objects
	chosen []nip34.ObjectID    // result of how.Choose
}

type packFile struct {
	size   int64
	kept   bool // has a keep file
	marked bool // has our keep file
	cruft  bool // contains unreferenced objects
}

// record is the saved state of maintenance. A lost record costs a full repack.
type record struct {
	Began time.Time     `json:"began"` // start of the last full repack
	Took  time.Duration `json:"took"`
	State string        `json:"state"` // hash of packs and refs after the repack
}

const recordName = "graspsync-maintenance"

func (m *maintenance) run(ctx context.Context) error {
	var last record
	prune := false
	err := m.locked(ctx, func(ctx context.Context) (err error) {
		if err := m.begin(ctx); err != nil {
			return err
		}
		last, prune, err = m.due(ctx)
		return err
	})
	switch {
	case err != nil:
		return err
	case prune:
		return m.prune(ctx, last)
	}
	return m.gather(ctx)
}

// locked calls do under the lock of the repository. It fails if the repository has moved.
func (m *maintenance) locked(ctx context.Context, do func(ctx context.Context) error) error {
	dir, unlock, err := m.how.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := m.enter(dir); err != nil {
		return err
	}
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(ctx, lockMost, errLong)
	defer cancel()
	err = do(ctx)
	m.done.Locked = max(m.done.Locked, time.Since(began))
	return err
}

var errLong = errors.New("the lock was held too long")

// enter reserves the repository. Two concurrent maintenance runs would take each other's changes
// for the initial state.
func (m *maintenance) enter(dir string) error {
	switch {
	case m.dir == dir:
		return nil
	case m.dir != "":
		return fmt.Errorf("%w: it has moved", purgatory.ErrInUse)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.busy[dir] {
		return fmt.Errorf("%w: it is being maintained", purgatory.ErrInUse)
	}
	m.busy[dir] = true
	m.dir = dir
	return nil
}

func (m *maintenance) leave() {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.busy, m.dir)
}

// begin removes abandoned files, packs refs if there are many, and lists the packs.
func (m *maintenance) begin(ctx context.Context) error {
	format, err := m.format(ctx, m.dir)
	if err != nil {
		return err
	}
	m.idLen = 20
	if format == nip34.SHA256 {
		m.idLen = 32
	}
	_, err = barerepo.RemoveOldLocks(m.disk.files, m.dir, staleAfter, staleAfter)
	if err := errors.Join(err, sweepObjects(m.disk.files, m.dir, m.now)); err != nil {
		return fmt.Errorf("sweeping: %w", err)
	}
	if m.how.Prune { // otherwise an object that waits forever would protect the objects of other events
		if err := unmark(m.disk.files, m.dir, m.now.Add(-min(leftAfter, m.how.Grace))); err != nil {
			return fmt.Errorf("removing marks: %w", err)
		}
	}
	if err := errors.Join(m.packRefs(ctx, fewRefs), m.look()); err != nil {
		return err
	}
	m.first = m.packs
	return nil
}

// packRefs packs the refs if at least many of them are loose.
func (m *maintenance) packRefs(ctx context.Context, many int) (err error) {
	if m.done.LooseRefs, err = looseRefs(m.disk.files, m.dir); err != nil || m.done.LooseRefs < many {
		return err
	}
	if _, err := m.child(ctx, nil, "pack-refs", "--all", "--prune"); err != nil {
		return fmt.Errorf("packing refs: %w", err)
	}
	m.done.LooseRefs, err = looseRefs(m.disk.files, m.dir)
	return err
}

// look lists the packs.
func (m *maintenance) look() error {
	folder := m.path("")
	entries, err := m.disk.files.ReadDir(folder)
	if err != nil {
		return err
	}
	ours, err := marks(m.disk.files, m.dir)
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
		switch ext {
		case "pack":
			p.size += info.Size()
		case "idx":
			p.size += info.Size()
		case "keep":
			p.kept, p.marked = true, slices.Contains(ours, filepath.Join(folder, base))
		case "mtimes":
			p.cruft = true
		}
		m.packs[base] = p
	}
	m.done.Packs = len(m.packs)
	m.loose, err = looseObjects(m.disk.files, m.dir)
	return err
}

func size(packs map[string]packFile) (sum int64) {
	for _, p := range packs {
		sum += p.size
	}
	return sum
}

// due reads the record and reports whether a full repack is due.
func (m *maintenance) due(ctx context.Context) (last record, prune bool, err error) {
	data, err := m.disk.files.ReadFile(filepath.Join(m.dir, recordName))
	if err == nil {
		err = json.Unmarshal(data, &last)
	}
	if err != nil || last.Began.After(m.now) {
		last = record{} // missing or invalid
	}
	if m.how.Now || m.how.Prune {
		return last, true, nil
	}
	if m.now.Sub(last.Began) < max(pruneEvery, pruneShare*last.Took) {
		return last, false, nil
	}
	state, err := m.state(ctx)
	if err != nil || state == "" || state != last.State {
		return last, err == nil, err
	}
	last.Began = m.now
	return last, false, m.write(last)
}

// state returns a hash of packs and refs. If it is unchanged, nothing can be pruned. It is "" if
// objects may expire with time alone.
func (m *maintenance) state(ctx context.Context) (string, error) {
	logs := false
	err := walk(m.disk.files, filepath.Join(m.dir, "logs"), func(_ string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			logs = true
			return fs.SkipAll
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil || logs {
		return "", err
	}
	if len(m.names(func(p packFile) bool { return p.cruft })) > 0 {
		return "", nil
	}
	return m.stamp(ctx, m.dir)
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

func (m *maintenance) write(last record) error {
	data, err := json.Marshal(last)
	if err != nil {
		return err
	}
	path := filepath.Join(m.dir, recordName)
	if err := m.disk.files.WriteFile(path+".new", data, 0o600); err != nil {
		return err
	}
	return m.disk.files.Rename(path+".new", path)
}

// gather combines the smallest packs if there are too many. It removes no object, so it needs no
// lock.
func (m *maintenance) gather(ctx context.Context) error {
	few := m.names(func(p packFile) bool { return !p.kept && !p.cruft })
	if len(few)+m.loose/fewPacks < fewPacks {
		return nil
	}
	return m.repack(ctx, "--geometric=2", "--write-midx")
}

func (m *maintenance) repack(ctx context.Context, args ...string) error {
	if err := m.room(); err != nil {
		return err
	}
	args = append([]string{"repack", "-d", "-n", "--quiet", "--threads=1"}, args...)
	if _, err := m.child(ctx, nil, args...); err != nil {
		return fmt.Errorf("packing: %w", err)
	}
	return m.again()
}

// again lists the packs again and updates the result.
func (m *maintenance) again() error {
	if err := m.look(); err != nil {
		return err
	}
	m.done.Removed, m.done.Freed = 0, size(m.first)-size(m.packs)
	for base := range m.first {
		if _, there := m.packs[base]; !there {
			m.done.Removed++
		}
	}
	return nil
}

// prune packs all objects that refs and reflogs reach, and puts the rest in a cruft pack. This
// removes nothing and needs no lock. Then it removes expired cruft under the lock, unless a ref has
// named some of it in between.
func (m *maintenance) prune(ctx context.Context, last record) error {
	last.Began, last.Took, last.State = m.now, max(last.Took, time.Minute), ""
	if err := m.write(last); err != nil { // avoids a retry each time after a failure
		return err
	}
	if m.how.Choose != nil {
		var err error
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
		if err := m.again(); err != nil {
			return err
		}
		m.done.Pruned = true
		for _, p := range m.packs {
			if p.cruft || p.marked { // finding their reachable part would cost a walk
				m.done.Unnamed += p.size
			}
		}
		last.Took = time.Since(m.now)
		if last.State, err = m.state(ctx); err != nil {
			return err
		}
		return m.write(last)
	})
}

// expireLogs expires reflogs. Reflogs of event refs are deleted, because they would protect
// replaced objects of any pusher.
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
	if err := removeEmpty(m.disk.files, filepath.Join(m.dir, "logs")); err != nil {
		return fmt.Errorf("expiring logs: %w", err)
	}
	return nil
}

func gitTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 +0000") }

// hold creates hidden refs to the objects that waiting events name, so that git keeps the objects.
// Incomplete objects are skipped, because git would fail to pack them.
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
	incomplete, _, err := m.missing(ctx, m.dir, "", fresh, nil)
	if err != nil {
		return err
	}
	var in bytes.Buffer
	for name := range held {
		if !wanted[name] {
			fmt.Fprintf(&in, "delete %s\n", name)
		}
	}
	for _, id := range without(fresh, incomplete) {
		fmt.Fprintf(&in, "create %s%s %s\n", heldRefs, id, id)
	}
	if in.Len() > 0 {
		if _, err := m.child(ctx, &in, "-c", "core.logAllRefUpdates=false", "update-ref", "--stdin"); err != nil {
			return fmt.Errorf("protecting objects of events: %w", err)
		}
	}
	return m.packRefs(ctx, 1)
}

const heldRefs = barerepo.HiddenRefs + "held/"

// young makes a cruft pack of objects that are not expired, and of objects that they need. It
// returns its name, or "".
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

// unnamed returns an error that wraps [purgatory.ErrInUse] if an object of the old packs, and not
// of the young pack, was named after the refs in before were read, or if a pack was marked while
// git repacked it.
func (m *maintenance) unnamed(ctx context.Context, before []byte, old []string, young string) error {
	marked, err := marks(m.disk.files, m.dir)
	if err != nil {
		return err
	}
	for _, base := range marked {
		if _, there := m.packs[filepath.Base(base)]; !there && len(old) > 0 {
			return fmt.Errorf("%w: %s was marked during maintenance", purgatory.ErrInUse, filepath.Base(base))
		}
	}
	goes, err := m.indexes(old...)
	if err != nil || len(old) == 0 {
		return err
	}
	stays, err := m.indexes(young)
	if err != nil {
		return err
	}
	var needed error
	_, err = m.git.runNow(ctx, child{
		dir: m.dir, stdin: bytes.NewReader(before), args: []string{"rev-list", "--objects", "--no-object-names", "--all", "--reflog", "--stdin"},
		each: func(line []byte) {
			if needed == nil && goes.has(line) && !stays.has(line) {
				needed = fmt.Errorf("%w: %s was needed meanwhile", purgatory.ErrInUse, line)
			}
		},
	})
	return errors.Join(err, needed)
}

func (m *maintenance) indexes(bases ...string) (packIndexes, error) {
	names := make(map[string]bool)
	for _, base := range bases {
		if base != "" {
			names[base+".idx"] = true
		}
	}
	return m.readIndexes(m.path(""), names, m.idLen)
}

// child runs git at low priority, outside of MaxChildren.
func (m *maintenance) child(ctx context.Context, in io.Reader, args ...string) ([]byte, error) {
	return m.git.runNow(ctx, child{dir: m.dir, stdin: in, nice: true, args: args})
}

// room returns an error if another copy of all packs does not fit.
func (m *maintenance) room() error {
	free, err := m.disk.free(m.dir)
	if err != nil {
		return fmt.Errorf("checking the disk: %w", err)
	}
	if more := uint64(size(m.packs)); free < m.disk.least || free-m.disk.least < more {
		return fmt.Errorf("%w: %d bytes", ErrDisk, free)
	}
	return nil
}

func (m *maintenance) path(name string) string { return filepath.Join(m.dir, "objects", "pack", name) }

// drop removes packs and multi-pack indexes. It removes the pack file first: git ignores an index
// without a pack, but the next repack would fail on a pack without an index.
func (m *maintenance) drop(bases ...string) error {
	together, err := filepath.Glob(m.path("multi-pack-index*"))
	errs := []error{err}
	remove := func(name string) (gone bool) {
		err := m.disk.files.Remove(name)
		if errors.Is(err, fs.ErrNotExist) {
			err = nil
		}
		errs = append(errs, err)
		return err == nil
	}
	for _, name := range together {
		remove(name)
	}
	for _, base := range bases {
		if !remove(m.path(base + ".pack")) {
			continue
		}
		for _, ext := range []string{".idx", ".bitmap", ".rev", ".mtimes"} {
			remove(m.path(base + ext))
		}
	}
	return errors.Join(append(errs, m.disk.sync(m.path("")))...)
}

// sweepObjects removes files that killed processes left: partial packs, temporary folders of
// pushes, and their keep files. The caller holds the lock of the repository.
func sweepObjects(on files, dir string, now time.Time) error {
	var errs []error
	left := func(d fs.DirEntry) bool {
		info, err := d.Info()
		return err == nil && now.Sub(info.ModTime()) >= leftAfter
	}
	folder := filepath.Join(dir, "objects", "pack")
	entries, err := on.ReadDir(folder)
	if err != nil {
		return err
	}
	names := make(map[string]bool)
	for _, e := range entries {
		names[e.Name()] = true
	}
	for _, e := range entries {
		base, ext, _ := strings.Cut(e.Name(), ".")
		half := strings.HasPrefix(base, "pack-") && !(names[base+".idx"] && names[base+".pack"]) &&
			slices.Contains([]string{"pack", "idx", "rev", "mtimes", "bitmap"}, ext)
		if (half || strings.HasPrefix(base, "tmp_") || strings.HasPrefix(e.Name(), ".tmp-")) && left(e) {
			errs = append(errs, on.Remove(filepath.Join(folder, e.Name())))
		}
		if ext == "keep" && left(e) {
			errs = append(errs, sweepNote(on, filepath.Join(folder, e.Name())))
		}
	}
	objects := filepath.Join(dir, "objects")
	if entries, err = on.ReadDir(objects); err != nil {
		return err
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "tmp_objdir-") && left(e) {
			errs = append(errs, on.RemoveAll(filepath.Join(objects, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// sweepNote removes a keep file that a push created.
func sweepNote(on files, name string) error {
	note, err := on.ReadFile(name)
	if err == nil && strings.HasPrefix(string(note), barerepo.PushNote) {
		err = on.Remove(name)
	}
	if errors.Is(err, fs.ErrNotExist) { // the push ended
		return nil
	}
	return err
}

// looseRefs counts loose refs, up to fewRefs.
func looseRefs(on files, dir string) (n int, err error) {
	err = walk(on, filepath.Join(dir, "refs"), func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		if d.Type().IsRegular() && !strings.HasSuffix(path, ".lock") {
			if n++; n >= fewRefs {
				return fs.SkipAll
			}
		}
		return nil
	})
	return n, err
}

// looseObjects counts loose objects. Only operators create them.
func looseObjects(on files, dir string) (n int, err error) {
	folders, err := filepath.Glob(filepath.Join(dir, "objects", "[0-9a-f][0-9a-f]"))
	for _, folder := range folders {
		entries, err := on.ReadDir(folder)
		if err != nil {
			return n, err
		}
		n += len(entries)
	}
	return n, err
}

// removeEmpty removes empty reflogs. Git creates them again.
func removeEmpty(on files, folder string) error {
	err := walk(on, folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if err == nil && info.Size() == 0 {
			err = on.Remove(path)
		}
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return nil // no logs exist
	}
	return err
}
