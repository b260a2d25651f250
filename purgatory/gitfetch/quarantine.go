package gitfetch

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/internal/barerepo"
	"github.com/graspsync/graspsync/purgatory/internal/gitrun"
)

func (f *Fetcher) open(dir string) (*Quarantine, error) {
	if err := f.sweep(dir); err != nil { // otherwise a crash loop would fill the disk
		return nil, err
	}
	q := &Quarantine{f: f, dir: dir, name: fmt.Sprintf("%s%s-%d", barerepo.QuarantinePrefix, f.epoch, f.names.Add(1)), share: maxExtra, extra: fewExtra}
	for _, p := range []string{q.Folder(), q.packs()} {
		if err := f.disk.files.Mkdir(p, 0o700); err != nil {
			return nil, fmt.Errorf("making a quarantine: %w", errors.Join(err, q.Discard()))
		}
	}
	return q, nil
}

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
	tips     []nip34.ObjectID // of refs
	refs     string           // of the stamp
	have     int              // objects in the packs
	needed   int              // objects that complete needs and no ref reaches; have if these are few

	// Packs with more objects than share times the needed objects plus extra are replaced by Promote.
	share, extra int
}

// Folder implements [gitops.Quarantine].
func (q *Quarantine) Folder() string { return filepath.Join(q.dir, q.name) }

func (q *Quarantine) packs() string { return filepath.Join(q.Folder(), "pack") }

func (q *Quarantine) content() ([]string, error) {
	names, err := list(q.f.disk.files, q.packs())
	if err != nil {
		return nil, fmt.Errorf("reading a quarantine: %w", err)
	}
	return names, nil
}

func list(on files, folder string) ([]string, error) {
	entries, err := on.ReadDir(folder)
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, err
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

// Missing implements [gitops.Quarantine]. It copies needed objects that no ref reaches, because the
// repository may lose them.
func (q *Quarantine) Missing(ctx context.Context, ids []nip34.ObjectID) ([]nip34.ObjectID, error) {
	now, err := q.f.stamp(ctx, q.dir)
	if err != nil {
		return nil, err
	}
	q.refs = now.refs
	missing, _, err := q.find(ctx, ids)
	if err == nil {
		q.have, q.needed, err = q.count(ctx)
	}
	return missing, err
}

// find returns the ids that are absent or incomplete. It packs the objects that the other ids need,
// except those of refs and of packs in the quarantine. made is the name of the pack, or "" without
// such objects.
func (q *Quarantine) find(ctx context.Context, ids []nip34.ObjectID) (missing []nip34.ObjectID, made string, err error) {
	q.complete = nil
	names, err := q.content()
	if err != nil {
		return nil, "", err
	}
	var options []string
	for _, base := range indexed(names) {
		options = append(options, "--keep-pack="+base+".pack")
	}
	refs, err := q.f.Refs(ctx, q.dir)
	if err != nil {
		return nil, "", err
	}
	tips := slices.Collect(maps.Values(refs.At))
	kinds, err := q.f.kinds(ctx, q.dir, gitrun.Beside(q.name), slices.Concat(ids, tips))
	if err != nil {
		return nil, "", err
	}
	q.tips, _ = divide(tips, kinds)
	complete, missing := divide(ids, kinds)
	made, err = q.pack(ctx, complete, true, options...)
	if isVerdict(err) {
		var incomplete []nip34.ObjectID
		if incomplete, err = q.f.incomplete(ctx, q.dir, gitrun.Beside(q.name), complete); err == nil {
			complete, missing = without(complete, incomplete), append(missing, incomplete...)
			made, err = q.pack(ctx, complete, true, options...)
		}
	}
	if err != nil {
		return nil, "", err
	}
	q.complete = complete
	return missing, made, nil
}

// Promote implements [gitops.Quarantine]. It moves the packs, or makes one pack of the needed
// objects if there are too many others.
func (q *Quarantine) Promote(ctx context.Context) error {
	if err := q.trim(ctx); err != nil {
		return fmt.Errorf("removing unneeded objects: %w", err)
	}
	names, err := q.content()
	if err != nil {
		return err
	}
	for _, base := range indexed(names) {
		if err := q.promotePack(base); err != nil {
			return fmt.Errorf("promoting: %w", err)
		}
	}
	now, err := q.f.stamp(ctx, q.dir)
	if err == nil && now.refs == q.refs { // otherwise objects of an old ref may be unprotected
		q.f.checks.add(q.dir, now, nil, nil, q.complete)
	}
	return errors.Join(err, q.Discard())
}

// promotePack moves a pack into the repository under a new name. The index comes last, after a sync,
// because git finds packs by it, and a power failure must not leave a part.
func (q *Quarantine) promotePack(base string) error {
	folder := filepath.Join(q.dir, "objects", "pack")
	d, from, to := q.f.disk, filepath.Join(q.packs(), base), filepath.Join(folder, barerepo.NewPackName())
	if err := d.writeKeep(to + ".keep"); err != nil {
		return err
	}
	err := d.move(from+".pack", to+".pack")
	if err == nil {
		err = errors.Join(d.sync(to+".keep"), d.sync(folder))
	}
	if err == nil {
		err = errors.Join(d.move(from+".idx", to+".idx"), d.sync(folder))
	}
	return err
}

// CopyObjects implements [gitops.Operations]. It creates hard links to the packs, which use no disk
// space, unless they contain many other objects.
func (f *Fetcher) CopyObjects(ctx context.Context, from, to string, ids []nip34.ObjectID) error {
	if err := f.adopt(ctx, to, filepath.Join(from, "objects", "pack"), ids, maxExtra); err != nil {
		return fmt.Errorf("sharing objects: %w", err)
	}
	return nil
}

// ImportPacks implements [gitops.Operations]. The objects were checked on arrival.
func (f *Fetcher) ImportPacks(ctx context.Context, dir, from string, ids []nip34.ObjectID) error {
	if err := f.adopt(ctx, dir, filepath.Join(from, "pack"), ids, 1); err != nil {
		return fmt.Errorf("taking objects: %w", err)
	}
	return nil
}

// adopt imports the ids that are complete in dir together with the packs in from, and at most share
// times the needed objects. If share is 1, all ids must be complete.
func (f *Fetcher) adopt(ctx context.Context, dir, from string, ids []nip34.ObjectID, share int) (err error) {
	q, err := f.open(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, q.Discard()) }()
	q.share, q.extra = share, 0
	names, err := list(f.disk.files, from)
	if err := errors.Join(err, f.disk.check(dir, 0), q.link(from, indexed(names))); err != nil {
		return err
	}
	missing, err := q.Missing(ctx, ids)
	switch {
	case err != nil:
		return err
	case share == 1 && len(missing) > 0:
		return fmt.Errorf("%w: %d of %d", purgatory.ErrNotServed, len(missing), len(ids))
	case len(missing) == len(ids):
		return nil
	}
	return q.Promote(ctx)
}

// link links packs into the quarantine. Packs may be removed concurrently.
func (q *Quarantine) link(from string, bases []string) error {
	for _, base := range bases {
		for _, ext := range []string{".pack", ".idx"} {
			err := link(q.f.disk.files, filepath.Join(from, base+ext), filepath.Join(q.packs(), base+ext))
			if errors.Is(err, fs.ErrNotExist) {
				break
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// Received packs may contain maxExtra times the needed objects plus fewExtra, because servers reuse
// packs.
const (
	maxExtra = 2
	fewExtra = 1000
)

// trim replaces the packs by one pack of the needed objects if they contain many other objects.
func (q *Quarantine) trim(ctx context.Context) error {
	before, err := q.content()
	if err != nil || q.have <= q.share*q.needed+q.extra {
		return err
	}
	made, err := q.pack(ctx, q.complete, false)
	var limit *LimitError
	switch {
	case errors.As(err, &limit) && q.have <= maxExtra*q.needed+fewExtra:
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

// count returns have and needed. It finds the number of objects by the sizes of the indexes
// (gitformat-pack, version 2). Duplicates count, because they are excess data too.
func (q *Quarantine) count(ctx context.Context) (have, needed int, err error) {
	names, err := q.content()
	if err != nil || len(q.complete) == 0 {
		return 0, 0, err
	}
	id := int64(len(q.complete[0].String()) / 2)
	for _, base := range indexed(names) {
		info, err := q.f.disk.files.Lstat(filepath.Join(q.packs(), base+".idx"))
		if err != nil {
			return 0, 0, err
		}
		have += int((info.Size() - indexHead - 2*id) / (id + indexEach))
	}
	if have <= q.extra {
		return have, have, nil
	}
	needed, err = q.f.walk(ctx, q.dir, gitrun.Beside(q.name), q.complete)
	return have, needed, err
}

const (
	indexHead = 8 + 256*4 // bytes before the ids; two checksums follow
	indexEach = 4 + 4     // checksum and offset of an object, beside its id
)

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

// pack creates a pack of the objects that ids need and no ref reaches. It returns its name, or ""
// without such objects. copied reports whether objects of the repository may be among them.
func (q *Quarantine) pack(ctx context.Context, ids []nip34.ObjectID, copied bool, options ...string) (made string, err error) {
	before, err := q.content()
	if err != nil || len(ids) == 0 {
		return "", err
	}
	most, err := q.mostOf(before, copied)
	if err != nil {
		return "", err
	}
	full := q.f.disk.check(q.dir, 0)
	if full != nil {
		most = 1
	}
	out, err := q.f.git.run(ctx, gitrun.Child{
		Dir: q.dir, Env: gitrun.Beside(q.name), Limits: gitrun.Limits{File: most}, Stdin: io.MultiReader(lines("", ids), lines("^", q.tips)),
		Args: append([]string{
			"pack-objects", "--revs", "--non-empty", "--delta-base-offset", "--window=0", "--threads=1", "--quiet", q.name + "/pack/pack",
		}, options...),
	})
	var failed *gitrun.Error
	if errors.As(err, &failed) && failed.FileTooLarge() {
		err = fmt.Errorf("%w: %w", cmp.Or[error](full, &LimitError{Limit: "bytes of a new pack", Most: most}), err)
	}
	if err != nil {
		return "", fmt.Errorf("packing needed objects: %w", errors.Join(err, q.restore(before)))
	}
	if name := strings.TrimSpace(string(out)); name != "" {
		made = "pack-" + name
	}
	return made, nil
}
