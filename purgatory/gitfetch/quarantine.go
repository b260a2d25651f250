package gitfetch

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/internal/barerepo"
)

const quarantinePrefix = barerepo.QuarantinePrefix

func newEpoch() string {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// Quarantine holds objects that were fetched and are not part of their repository.
type Quarantine struct {
	f    *Fetcher
	dir  string // of the repository
	name string // of ours, in it
	// complete are the ids that Missing found to have all that they need, when it was
	// asked last.
	complete []nip34.ObjectID
	// exact: nothing is promoted but what these need. What is in the packs was put there
	// by a stranger who was asked for nothing.
	exact bool
}

// Quarantine implements [purgatory.GitFetcher].
func (f *Fetcher) Quarantine(_ context.Context, dir string) (purgatory.Quarantine, error) {
	return f.newQuarantine(dir)
}

func (f *Fetcher) newQuarantine(dir string) (*Quarantine, error) {
	if err := f.sweep(dir); err != nil { // or a crash loop would fill the disk
		return nil, err
	}
	q := &Quarantine{f: f, dir: dir, name: fmt.Sprintf("%s%s-%d", quarantinePrefix, f.epoch, f.names.Add(1))}
	for _, p := range []string{q.path(), q.packs()} {
		if err := f.files.Mkdir(p, 0o700); err != nil {
			return nil, fmt.Errorf("making a quarantine: %w", errors.Join(err, q.Discard()))
		}
	}
	return q, nil
}

func (q *Quarantine) path() string  { return filepath.Join(q.dir, q.name) }
func (q *Quarantine) packs() string { return filepath.Join(q.path(), "pack") }

// content lists the files in a quarantine.
func (q *Quarantine) content() (map[string]bool, error) {
	entries, err := q.f.files.ReadDir(q.packs())
	if err != nil {
		return nil, fmt.Errorf("reading a quarantine: %w", err)
	}
	names := make(map[string]bool)
	for _, e := range entries {
		names[e.Name()] = true
	}
	return names, nil
}

// restore removes everything that came after before was listed: what a pack left
// that was not indexed to its end.
func (q *Quarantine) restore(before map[string]bool) error {
	now, err := q.content()
	errs := []error{err}
	for name := range now {
		if !before[name] {
			errs = append(errs, q.f.files.Remove(filepath.Join(q.packs(), name)))
		}
	}
	return errors.Join(errs...)
}

// sweep removes the quarantines that earlier processes left in a repository.
func (f *Fetcher) sweep(dir string) error {
	entries, err := f.files.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("sweeping quarantines: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), quarantinePrefix) && !strings.HasPrefix(e.Name(), quarantinePrefix+f.epoch) {
			errs = append(errs, f.files.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// Discard implements [purgatory.Quarantine].
func (q *Quarantine) Discard() error {
	if err := q.f.files.RemoveAll(q.path()); err != nil {
		return fmt.Errorf("removing a quarantine: %w", err)
	}
	return nil
}

// objects is the environment in which git writes to the quarantine and sees the
// repository behind it. The paths are those from the repository, so that no name in
// its own path can be taken for a separator of two.
func (q *Quarantine) objects() []string {
	return []string{"GIT_OBJECT_DIRECTORY=" + q.name, "GIT_ALTERNATE_OBJECT_DIRECTORIES=objects"}
}

// oldFaults has git let pass what is the fault of old programs. Every other fault, and an
// object that another one of the pack needs and that is neither in it nor here, is an
// error.
func oldFaults() string { return strings.Join(barerepo.OldFaults(), "=ignore,") + "=ignore" }

// index has git index a pack into the quarantine. The caller has the right to run a
// child.
func (f *Fetcher) index(ctx context.Context, q *Quarantine, pack *spool) error {
	_, err := f.runNow(ctx, child{
		dir: q.dir, extra: q.objects(), stdin: pack.reader(),
		args: []string{"index-pack", "--stdin", "--fix-thin", "--strict=" + oldFaults(), "--threads=1",
			fmt.Sprintf("--max-input-size=%d", f.cfg.MaxPackBytes)},
	})
	var failed *childError
	switch {
	case !errors.As(err, &failed):
	case strings.Contains(failed.stderr, "did not receive expected object"), strings.Contains(failed.stderr, "unresolved delta"):
		return fmt.Errorf("%w: %w", ErrIncomplete, err)
	case failed.outOfMemory():
		return fmt.Errorf("%w: %w", &LimitError{Limit: "memory of git", Most: int64(f.cfg.MaxMemory)}, err)
	case strings.Contains(failed.stderr, "pack exceeds maximum allowed size"):
		return fmt.Errorf("%w: %w", &LimitError{Limit: "pack bytes", Most: f.cfg.MaxPackBytes}, err)
	}
	return err
}

// useful returns ErrUnwanted if what came since before was listed is of no use: nobody
// must fill quarantines with what was not asked for. What is wanted may be incomplete:
// another server may have the rest, and may send no more than that.
func (q *Quarantine) useful(ctx context.Context, before map[string]bool, ids []nip34.ObjectID) error {
	now, err := q.content()
	if err != nil {
		return err
	}
	for name := range now {
		if before[name] || !strings.HasSuffix(name, ".idx") {
			continue
		}
		data, err := q.f.files.ReadFile(filepath.Join(q.packs(), name))
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

// Missing implements [purgatory.Quarantine]. What complete ids need of the repository,
// and no ref has there, is copied: it might be gone when it is promoted.
func (q *Quarantine) Missing(ctx context.Context, ids []nip34.ObjectID) ([]nip34.ObjectID, error) {
	q.complete = nil
	if len(ids) == 0 {
		return nil, nil
	}
	before, err := q.content()
	if err != nil {
		return nil, err
	}
	packs, err := q.f.readIndexes(q.packs(), before, len(ids[0].String())/2)
	if err != nil {
		return nil, err
	}
	missing, unheld, err := q.f.missing(ctx, q.dir, q.objects(), ids, packs)
	if err != nil {
		return nil, err
	}
	q.complete = without(ids, missing)
	if unheld > 0 {
		most, err := q.mostOf(before, true)
		if err == nil {
			_, err = q.pack(ctx, before, most)
		}
		return missing, err
	}
	return missing, nil
}
