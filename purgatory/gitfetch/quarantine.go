package gitfetch

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/internal/barerepo"
	"github.com/graspsync/graspsync/purgatory/internal/fsck"
	"github.com/graspsync/graspsync/purgatory/internal/gitrun"
)

const quarantinePrefix = barerepo.QuarantinePrefix

// quarantines creates quarantines and removes abandoned ones. It is safe for concurrent use.
type quarantines struct {
	// set by newQuarantines, read-only
	*store
	parts    *parts
	receiver *receiver
	epoch    string // name part that identifies this process

	names atomic.Uint64
}

func newQuarantines(s *store, receiver *receiver) *quarantines {
	return &quarantines{store: s, parts: newParts(), receiver: receiver, epoch: rand.Text()}
}

func (qs *quarantines) open(dir string) (*Quarantine, error) {
	if err := qs.sweep(dir); err != nil { // otherwise a crash loop would fill the disk
		return nil, err
	}
	q := &Quarantine{quarantines: qs, dir: dir, name: fmt.Sprintf("%s%s-%d", quarantinePrefix, qs.epoch, qs.names.Add(1))}
	for _, p := range []string{q.path(), q.packs()} {
		if err := qs.disk.files.Mkdir(p, 0o700); err != nil {
			return nil, fmt.Errorf("making a quarantine: %w", errors.Join(err, q.Discard()))
		}
	}
	return q, nil
}

// sweep removes the quarantines of earlier processes.
func (qs *quarantines) sweep(dir string) error {
	entries, err := qs.disk.files.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("sweeping quarantines: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), quarantinePrefix) && !strings.HasPrefix(e.Name(), quarantinePrefix+qs.epoch) {
			errs = append(errs, qs.disk.files.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// Quarantine is a [gitops.Quarantine]: a folder of objects inside the folder of a repository.
type Quarantine struct {
	*quarantines
	dir  string // folder of the repository
	name string // folder of the quarantine, in dir

	// complete contains the complete ids of the last call of Missing.
	complete []nip34.ObjectID
	// seen is the result of that walk. Promote does not walk again if nothing changed.
	seen sight
	// exact means that Promote imports only objects that the complete ids need, because a client
	// pushed the packs unasked.
	exact bool
}

// sight is the result of a walk from the complete ids.
type sight struct {
	stamp  string          // stamp of the repository; empty: unknown
	packs  map[string]bool // packs in the quarantine
	needed int             // number of objects, all in these packs
}

// Folder implements [gitops.Quarantine].
func (q *Quarantine) Folder() string { return q.path() }

func (q *Quarantine) path() string  { return filepath.Join(q.dir, q.name) }
func (q *Quarantine) packs() string { return filepath.Join(q.path(), "pack") }

func (q *Quarantine) content() (map[string]bool, error) {
	entries, err := q.disk.files.ReadDir(q.packs())
	if err != nil {
		return nil, fmt.Errorf("reading a quarantine: %w", err)
	}
	names := make(map[string]bool)
	for _, e := range entries {
		names[e.Name()] = true
	}
	return names, nil
}

// restore removes files that are not in before, such as an incomplete pack.
func (q *Quarantine) restore(before map[string]bool) error {
	now, err := q.content()
	errs := []error{err}
	for name := range now {
		if !before[name] {
			errs = append(errs, q.disk.files.Remove(filepath.Join(q.packs(), name)))
		}
	}
	return errors.Join(errs...)
}

// Discard implements [gitops.Quarantine].
func (q *Quarantine) Discard() error {
	if err := q.disk.files.RemoveAll(q.path()); err != nil {
		return fmt.Errorf("removing a quarantine: %w", err)
	}
	return nil
}

// index indexes a pack into the quarantine, and refuses faulty objects by the rules of package
// fsck. The caller holds a slot for a child.
func (q *Quarantine) index(ctx context.Context, pack *spool) error {
	return q.receiver.faults.Index(fsck.Git{
		Index: func(options ...string) (stderr string, err error) {
			err = q.indexPack(ctx, pack, options...)
			var failed *childError
			var limit *LimitError
			if errors.As(err, &failed) && failed.verdict() && !errors.Is(err, ErrIncomplete) && !errors.As(err, &limit) {
				stderr = failed.stderr
			}
			return stderr, err
		},
		Run: func(alone bool, stdin io.Reader, stdout, stderr io.Writer, args ...string) error {
			objects := inside(q.name)
			if alone {
				objects = gitrun.Only(q.name)
			}
			_, err := q.git.runNow(ctx, child{dir: q.dir, extra: objects, stdin: stdin, out: stdout, said: stderr, args: args})
			return err
		},
	})
}

func (q *Quarantine) indexPack(ctx context.Context, pack *spool, options ...string) error {
	memory := q.git.memory.Part
	_, err := q.git.runNow(ctx, child{
		dir: q.dir, extra: inside(q.name), stdin: pack.reader(), memory: memory,
		args: append([]string{"index-pack", "--stdin", "--fix-thin", "--threads=1",
			fmt.Sprintf("--max-input-size=%d", q.receiver.cfg.MaxPackBytes)}, options...),
	})
	var failed *childError
	switch {
	case !errors.As(err, &failed):
	case strings.Contains(failed.stderr, "did not receive expected object"), strings.Contains(failed.stderr, "unresolved delta"):
		return fmt.Errorf("%w: %w", ErrIncomplete, err)
	case failed.outOfMemory():
		return fmt.Errorf("%w: %w", &LimitError{Limit: "memory of git", Most: memory}, err)
	case strings.Contains(failed.stderr, "pack exceeds maximum allowed size"):
		return fmt.Errorf("%w: %w", &LimitError{Limit: "pack bytes", Most: q.receiver.cfg.MaxPackBytes}, err)
	}
	return err
}

// useful returns ErrUnwanted if the files that are not in before contain no wanted object, because
// servers must not fill quarantines with unwanted data. Wanted objects may be incomplete, because
// another server may have the rest.
func (q *Quarantine) useful(ctx context.Context, before map[string]bool, ids []nip34.ObjectID) error {
	now, err := q.content()
	if err != nil {
		return err
	}
	for name := range now {
		if before[name] || !strings.HasSuffix(name, ".idx") {
			continue
		}
		data, err := q.disk.files.ReadFile(filepath.Join(q.packs(), name))
		if err != nil {
			return fmt.Errorf("reading a quarantine: %w", err)
		}
		index, err := readIndex(data, len(ids[0].String())/2)
		if err != nil {
			return fmt.Errorf("reading a quarantine: %s: %w", name, err)
		}
		came := packIndexes{index}
		if slices.ContainsFunc(ids, func(id nip34.ObjectID) bool { return came.has([]byte(id.String())) }) {
			return nil
		}
	}
	missing, err := q.Missing(ctx, ids)
	if err == nil && len(missing) == len(ids) {
		err = ErrUnwanted
	}
	return err
}

// Missing implements [gitops.Quarantine]. Objects of the repository that complete ids need and
// no ref reaches are copied, because they might be removed before the promotion.
func (q *Quarantine) Missing(ctx context.Context, ids []nip34.ObjectID) ([]nip34.ObjectID, error) {
	q.complete, q.seen = nil, sight{}
	if len(ids) == 0 {
		return nil, nil
	}
	before, err := q.content()
	if err != nil {
		return nil, err
	}
	packs, err := q.readIndexes(q.packs(), before, len(ids[0].String())/2)
	if err != nil {
		return nil, err
	}
	stamp, err := q.stamp(ctx, q.dir)
	if err != nil {
		return nil, err
	}
	found, err := q.survey(ctx, q.dir, q.name, ids, packs)
	if err != nil {
		return nil, err
	}
	q.complete = without(ids, found.missing)
	if found.unheld > 0 {
		most, err := q.mostOf(before, true)
		if err == nil {
			_, err = q.pack(ctx, before, most)
		}
		return found.missing, err
	}
	now, err := q.stamp(ctx, q.dir) // without the lock, refs may have moved during the walk
	if err == nil && now == stamp {
		q.seen = sight{stamp: stamp, packs: before, needed: found.needed}
	}
	return found.missing, err
}

// Promote implements [gitops.Quarantine]. It moves the packs unchanged, unless they contain too
// much that the complete ids do not need. In that case it makes one pack of the needed objects.
//
// Readers never see an incomplete pack, even after a crash or power failure. Promote syncs the
// data, moves the keep file, the pack and the reverse index, syncs the folder, and moves the index
// last, because git finds packs by their index.
func (q *Quarantine) Promote(ctx context.Context) error {
	if err := q.trim(ctx); err != nil {
		return fmt.Errorf("promoting: %w", err)
	}
	names, err := q.content()
	if err != nil {
		return fmt.Errorf("promoting: %w", err)
	}
	for name := range names {
		base, ok := strings.CutSuffix(name, ".idx")
		if !ok || !names[base+".pack"] {
			continue
		}
		if err := q.promotePack(base); err != nil {
			return fmt.Errorf("promoting: %w", err)
		}
	}
	stamp, err := q.stamp(ctx, q.dir)
	if err != nil {
		return fmt.Errorf("promoting: %w", err)
	}
	q.parts.took(q.dir, q.complete, stamp)
	return q.Discard()
}

func (q *Quarantine) promotePack(base string) error {
	from, to := filepath.Join(q.packs(), base), filepath.Join(q.dir, "objects", "pack", base)
	folder := filepath.Dir(to)
	if err := q.disk.writeKeep(to + ".keep"); err != nil {
		return err
	}
	// If the pack exists, it only needs the keep file. The files are moved anyway, because garbage
	// collection may remove the old pack now.
	there, err := q.disk.exists(to + ".idx")
	if err != nil {
		return err
	}
	for _, ext := range []string{".pack", ".rev"} {
		if err := q.disk.move(from+ext, to+ext); err != nil && (ext != ".rev" || !errors.Is(err, os.ErrNotExist)) {
			return err
		}
	}
	if err := q.disk.sync(to + ".keep"); err != nil {
		return err
	}
	if err := q.disk.sync(folder); err != nil {
		return err
	}
	if there {
		// An index of another git version may differ and still be valid.
		if there, err = q.disk.exists(to + ".idx"); err != nil {
			return err
		}
	}
	if !there {
		if err := q.disk.move(from+".idx", to+".idx"); err != nil {
			return err
		}
	}
	return q.disk.sync(folder)
}

// Packs may contain maxExtra times the needed objects plus fewExtra before they are repacked,
// because a server may send a whole existing pack.
const (
	maxExtra = 2
	fewExtra = 1000
)

// trim replaces the packs by one pack of the objects that the complete ids need and no ref reaches.
// It does so if the packs contain many other objects, or lack objects that are in the repository
// without a ref.
func (q *Quarantine) trim(ctx context.Context) error {
	if len(q.complete) == 0 {
		return nil
	}
	before, err := q.content()
	if err != nil {
		return err
	}
	have, err := q.readIndexes(q.packs(), before, len(q.complete[0].String())/2)
	if err != nil {
		return err
	}
	needed, lacking, err := q.needs(ctx, before, have)
	if err != nil {
		return fmt.Errorf("listing needed objects: %w", err)
	}
	most := maxExtra*needed + fewExtra
	if q.exact {
		most = needed
	}
	if lacking == 0 && have.objects() <= most {
		return nil
	}
	err = q.repack(ctx, before, needed, lacking)
	var limit *LimitError
	if errors.As(err, &limit) && lacking == 0 && have.objects() <= maxExtra*needed+fewExtra {
		return nil // the received packs are smaller and contain little else
	}
	return err
}

// needs counts the objects that the complete ids need and no ref reaches, and those that packs
// lack. It uses the last walk if nothing changed.
func (q *Quarantine) needs(ctx context.Context, names map[string]bool, packs packIndexes) (needed, lacking int, err error) {
	stamp, err := q.stamp(ctx, q.dir)
	if err != nil {
		return 0, 0, err
	}
	if stamp != "" && stamp == q.seen.stamp && maps.Equal(names, q.seen.packs) {
		return q.seen.needed, 0, nil
	}
	err = q.walk(ctx, q.dir, q.name, q.complete, func(line []byte) {
		needed++
		if !packs.has(line) {
			lacking++
		}
	})
	return needed, lacking, err
}

func (q *Quarantine) repack(ctx context.Context, before map[string]bool, needed, lacking int) error {
	made := ""
	if needed > 0 {
		most, err := q.mostOf(before, lacking > 0)
		if err != nil {
			return err
		}
		if made, err = q.pack(ctx, before, most); err != nil {
			return err
		}
	}
	for name := range before {
		if made != "" && strings.HasPrefix(name, made+".") {
			continue // a received pack was identical
		}
		if err := q.disk.files.Remove(filepath.Join(q.packs(), name)); err != nil {
			return err
		}
	}
	return nil
}

// Deltas against objects of refs are written in full, so a few received bytes may expand to very
// many. A new pack may therefore be at most as large as the received packs plus packSlack. If
// objects are copied from the repository, the limit is maxCopied times both.
const (
	packSlack = 64 << 10
	maxCopied = 2
)

// mostOf returns the maximum size of a new pack in bytes. The index has the same limit, so indexes
// count too.
func (q *Quarantine) mostOf(names map[string]bool, copied bool) (most int64, err error) {
	for name := range names {
		info, err := q.disk.files.Stat(filepath.Join(q.packs(), name))
		if err != nil {
			return most, err
		}
		most += info.Size()
	}
	if copied {
		there, err := objectBytes(q.disk.files, filepath.Join(q.dir, "objects"))
		if err != nil {
			return most, err
		}
		most = maxCopied * (most + there)
	}
	return most + packSlack, nil
}

// pack creates a pack of the objects that the complete ids need and no ref reaches, of at most most
// bytes. It returns the name without extension.
func (q *Quarantine) pack(ctx context.Context, before map[string]bool, most int64) (made string, err error) {
	if err := q.disk.check(q.dir); err != nil {
		return "", err
	}
	tips, err := q.git.run(ctx, child{dir: q.dir, args: []string{"rev-parse", "--exclude=" + barerepo.HiddenRefs + "*", "--all"}})
	if err != nil {
		return "", fmt.Errorf("reading refs: %w", err)
	}
	stdin := io.MultiReader(lines(q.complete), strings.NewReader("--not\n"), bytes.NewReader(tips))
	out, err := q.git.run(ctx, child{
		dir: q.dir, extra: inside(q.name), stdin: stdin, long: true, file: most,
		args: []string{"pack-objects", "--revs", "--delta-base-offset", "--window=0", "--threads=1", "--quiet", q.name + "/pack/pack"},
	})
	var failed *childError
	if errors.As(err, &failed) && failed.fileTooLarge() {
		err = fmt.Errorf("%w: %w: %w", purgatory.ErrLimit, &LimitError{Limit: "bytes of a new pack", Most: most}, err)
	}
	if err != nil {
		return "", fmt.Errorf("packing needed objects: %w", errors.Join(err, q.restore(before)))
	}
	return "pack-" + strings.TrimSpace(string(out)), nil
}
