package gitfetch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/barerepo"
	"github.com/graspsync/graspsync/purgatory/internal/fsck"
	"github.com/graspsync/graspsync/purgatory/internal/gitrun"
)

func (f *Fetcher) open(dir string) (*Quarantine, error) {
	if err := f.sweep(dir); err != nil { // otherwise a crash loop would fill the disk
		return nil, err
	}
	q := &Quarantine{f: f, dir: dir, name: fmt.Sprintf("%s%s-%d", barerepo.QuarantinePrefix, f.epoch, f.names.Add(1))}
	for _, p := range []string{q.Folder(), q.packs()} {
		if err := f.disk.files.Mkdir(p, 0o700); err != nil {
			return nil, fmt.Errorf("making a quarantine: %w", errors.Join(err, q.Discard()))
		}
	}
	return q, nil
}

// sweep removes the quarantines of earlier processes.
func (f *Fetcher) sweep(dir string) error {
	entries, err := f.disk.files.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("sweeping quarantines: %w", err)
	}
	var errs []error
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), barerepo.QuarantinePrefix) && !strings.HasPrefix(e.Name(), barerepo.QuarantinePrefix+f.epoch) {
			errs = append(errs, f.disk.files.RemoveAll(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(errs...)
}

// Quarantine is a [gitops.Quarantine]: a folder of objects inside the folder of a repository.
type Quarantine struct {
	f    *Fetcher
	dir  string // folder of the repository
	name string // folder of the quarantine, in dir

	// result of the last call of Missing
	complete []nip34.ObjectID
	needed   int    // objects that complete needs and no ref reaches
	refs     string // of the stamp

	// exact means that Promote imports only needed objects, because a client pushed the packs.
	exact bool
}

// Folder implements [gitops.Quarantine].
func (q *Quarantine) Folder() string { return filepath.Join(q.dir, q.name) }

func (q *Quarantine) packs() string { return filepath.Join(q.Folder(), "pack") }

func (q *Quarantine) content() ([]string, error) {
	entries, err := q.f.disk.files.ReadDir(q.packs())
	if err != nil {
		return nil, fmt.Errorf("reading a quarantine: %w", err)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, nil
}

func indexed(names []string) (bases []string) {
	for _, name := range names {
		if base, ok := strings.CutSuffix(name, ".idx"); ok {
			bases = append(bases, base)
		}
	}
	return bases
}

// restore removes files that are not in before, such as an incomplete pack.
func (q *Quarantine) restore(before []string) error {
	now, err := q.content()
	errs := []error{err}
	for _, name := range now {
		if !slices.Contains(before, name) {
			errs = append(errs, q.f.disk.files.Remove(filepath.Join(q.packs(), name)))
		}
	}
	return errors.Join(errs...)
}

// Discard implements [gitops.Quarantine].
func (q *Quarantine) Discard() error {
	if err := q.f.disk.files.RemoveAll(q.Folder()); err != nil {
		return fmt.Errorf("removing a quarantine: %w", err)
	}
	return nil
}

// index indexes a pack by the rules of package fsck. The caller holds a slot for a child.
func (q *Quarantine) index(ctx context.Context, pack *os.File) error {
	return q.f.receiver.faults.Index(fsck.Git{
		Index: func(options ...string) (stderr string, err error) {
			err = q.indexPack(ctx, pack, options...)
			var failed *gitrun.Error
			if isVerdict(err) && !errors.Is(err, ErrIncomplete) && !errors.As(err, new(*LimitError)) && errors.As(err, &failed) {
				stderr = failed.Stderr
			}
			return stderr, err
		},
		Run: func(stdout, stderr io.Writer, args ...string) error {
			_, err := q.f.git.runNow(ctx, gitrun.Child{Dir: q.dir, Env: gitrun.Only(q.name), Stdout: stdout, Stderr: stderr, Args: args})
			return err
		},
	})
}

func (q *Quarantine) indexPack(ctx context.Context, pack *os.File, options ...string) error {
	memory, most := q.f.git.Memory.Part, q.f.receiver.cfg.MaxPackBytes
	_, err := q.f.git.runNow(ctx, gitrun.Child{
		Dir: q.dir, Env: gitrun.Beside(q.name), Stdin: io.NewSectionReader(pack, 0, math.MaxInt64), Limits: gitrun.Limits{Memory: memory},
		Args: append([]string{"index-pack", "--stdin", "--fix-thin", "--threads=1", fmt.Sprintf("--max-input-size=%d", most)}, options...),
	})
	var failed *gitrun.Error
	switch {
	case !errors.As(err, &failed):
	case strings.Contains(failed.Stderr, "did not receive expected object"), strings.Contains(failed.Stderr, "unresolved delta"):
		return fmt.Errorf("%w: %w", ErrIncomplete, err)
	case gitrun.OutOfMemory(failed.Stderr):
		return fmt.Errorf("%w: %w", &LimitError{Limit: "memory of git", Most: memory}, err)
	case strings.Contains(failed.Stderr, "pack exceeds maximum allowed size"):
		return fmt.Errorf("%w: %w", &LimitError{Limit: "pack bytes", Most: most}, err)
	}
	return err
}

// useful returns ErrUnwanted if the files that are not in before contain no wanted object, because
// servers must not fill quarantines.
func (q *Quarantine) useful(ctx context.Context, before []string, ids []nip34.ObjectID) error {
	now, err := q.content()
	if err != nil {
		return err
	}
	now = slices.DeleteFunc(now, func(name string) bool { return slices.Contains(before, name) })
	came, err := q.f.indexes(q.packs(), indexed(now), idLen(ids))
	if err != nil {
		return fmt.Errorf("reading a quarantine: %w", err)
	}
	defer came.close()
	if slices.ContainsFunc(ids, func(id nip34.ObjectID) bool { return came.has([]byte(id.String())) }) {
		return nil
	}
	missing, err := q.Missing(ctx, ids)
	if err == nil && len(missing) == len(ids) {
		err = ErrUnwanted
	}
	return err
}

// Missing implements [gitops.Quarantine]. It copies needed objects that no ref reaches, because the
// repository may lose them.
func (q *Quarantine) Missing(ctx context.Context, ids []nip34.ObjectID) ([]nip34.ObjectID, error) {
	q.complete, q.needed, q.refs = nil, 0, ""
	if len(ids) == 0 {
		return nil, nil
	}
	before, err := q.content()
	if err != nil {
		return nil, err
	}
	packs, err := q.f.indexes(q.packs(), indexed(before), idLen(ids))
	if err != nil {
		return nil, err
	}
	defer packs.close()
	now, err := q.f.stamp(ctx, q.dir)
	if err != nil {
		return nil, err
	}
	found, err := q.f.closure(ctx, q.dir, q.name, ids, packs)
	if err != nil {
		return nil, err
	}
	q.complete, q.needed, q.refs = without(ids, found.missing), found.needed, now.refs
	if found.unheld > 0 {
		_, err = q.pack(ctx, before, true)
	}
	return found.missing, err
}

// Promote implements [gitops.Quarantine]. It moves the packs, or makes one pack of the needed
// objects if there are too many others. The index comes last, after a sync, because git finds packs
// by it, and a power failure must not leave a part.
func (q *Quarantine) Promote(ctx context.Context) error {
	if err := q.promote(ctx); err != nil {
		return fmt.Errorf("promoting: %w", err)
	}
	return q.Discard()
}

func (q *Quarantine) promote(ctx context.Context) error {
	if err := q.trim(ctx); err != nil {
		return fmt.Errorf("removing unneeded objects: %w", err)
	}
	names, err := q.content()
	if err != nil {
		return err
	}
	for _, base := range indexed(names) {
		if !slices.Contains(names, base+".pack") {
			continue
		}
		if err := q.promotePack(base); err != nil {
			return err
		}
	}
	now, err := q.f.stamp(ctx, q.dir)
	if err == nil && now.refs == q.refs { // otherwise objects of an old ref may be unprotected
		q.f.checks.add(q.dir, now, nil, nil, q.complete)
	}
	return err
}

func (q *Quarantine) promotePack(base string) error {
	d, from, to := q.f.disk, filepath.Join(q.packs(), base), filepath.Join(q.dir, "objects", "pack", base)
	folder := filepath.Dir(to)
	if err := d.writeKeep(to + ".keep"); err != nil {
		return err
	}
	// If the pack exists, it is moved anyway, because garbage collection may remove it now.
	for _, ext := range []string{".pack", ".rev"} {
		if err := d.move(from+ext, to+ext); err != nil && (ext != ".rev" || !errors.Is(err, fs.ErrNotExist)) {
			return err
		}
	}
	if err := errors.Join(d.sync(to+".keep"), d.sync(folder)); err != nil {
		return err
	}
	// An index of another git version may differ and still be valid.
	_, err := d.files.Lstat(to + ".idx")
	if errors.Is(err, fs.ErrNotExist) {
		err = d.move(from+".idx", to+".idx")
	}
	return errors.Join(err, d.sync(folder))
}

// Packs may contain maxExtra times the needed objects plus fewExtra, because servers reuse packs.
const (
	maxExtra = 2
	fewExtra = 1000
)

// trim replaces the packs by one pack of the needed objects if they contain many other objects.
func (q *Quarantine) trim(ctx context.Context) error {
	if len(q.complete) == 0 {
		return nil
	}
	before, err := q.content()
	if err != nil {
		return err
	}
	have, err := q.f.indexes(q.packs(), indexed(before), idLen(q.complete))
	if err != nil {
		return err
	}
	have.close()
	most := maxExtra*q.needed + fewExtra
	if have.objects() <= q.needed || have.objects() <= most && !q.exact {
		return nil
	}
	made := ""
	if q.needed > 0 {
		made, err = q.pack(ctx, before, false)
	}
	var limit *LimitError
	switch {
	case errors.As(err, &limit) && have.objects() <= most:
		return nil // the received packs are smaller and contain little else
	case err != nil:
		return err
	}
	for _, name := range before {
		if made != "" && strings.HasPrefix(name, made+".") {
			continue // a received pack was identical
		}
		if err := q.f.disk.files.Remove(filepath.Join(q.packs(), name)); err != nil {
			return err
		}
	}
	return nil
}

// Deltas against objects of refs are written in full, so a few bytes may expand to very many. A new
// pack may be packSlack larger than the received packs, or than maxCopied times these and the
// repository if objects of it are copied.
const (
	packSlack = 64 << 10
	maxCopied = 2
)

// mostOf returns the maximum size of a new pack, and of its index, in bytes.
func (q *Quarantine) mostOf(names []string, copied bool) (most int64, err error) {
	for _, name := range names {
		info, err := q.f.disk.files.Lstat(filepath.Join(q.packs(), name))
		if err != nil {
			return most, err
		}
		most += info.Size()
	}
	if copied {
		there, err := fileBytes(filepath.Join(q.dir, "objects"))
		if err != nil {
			return most, err
		}
		most = maxCopied * (most + there)
	}
	return most + packSlack, nil
}

// pack creates a pack of the needed objects and returns its name. before are all files. copied reports
// whether objects of the repository are needed.
func (q *Quarantine) pack(ctx context.Context, before []string, copied bool) (made string, err error) {
	if err := q.f.disk.check(q.dir, 0); err != nil {
		return "", err
	}
	most, err := q.mostOf(before, copied)
	if err != nil {
		return "", err
	}
	tips, err := q.f.git.run(ctx, gitrun.Child{Dir: q.dir, Args: []string{"rev-parse", "--exclude=" + barerepo.HiddenRefs + "*", "--all"}})
	if err != nil {
		return "", fmt.Errorf("reading refs: %w", err)
	}
	out, err := q.f.git.run(ctx, gitrun.Child{
		Dir: q.dir, Env: gitrun.Beside(q.name), Limits: gitrun.Limits{File: most},
		Stdin: io.MultiReader(lines("", q.complete), strings.NewReader("--not\n"), bytes.NewReader(tips)),
		Args:  []string{"pack-objects", "--revs", "--delta-base-offset", "--window=0", "--threads=1", "--quiet", q.name + "/pack/pack"},
	})
	var failed *gitrun.Error
	if errors.As(err, &failed) && failed.FileTooLarge() {
		err = fmt.Errorf("%w: %w", &LimitError{Limit: "bytes of a new pack", Most: most}, err)
	}
	if err != nil {
		return "", fmt.Errorf("packing needed objects: %w", errors.Join(err, q.restore(before)))
	}
	return "pack-" + strings.TrimSpace(string(out)), nil
}
