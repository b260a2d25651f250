package gitfetch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
)

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
