package gitfetch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
)

// CopyObjects implements [gitops.Operations]. It creates hard links to the files of the first
// repository in a quarantine of the other, which uses no disk space and keeps the repositories
// independent. If the packs contain many other objects, it makes one pack of the needed objects.
func (f *Fetcher) CopyObjects(ctx context.Context, from, to string, ids []nip34.ObjectID) error {
	if err := f.adopt(ctx, to, filepath.Join(from, "objects"), ids, false); err != nil {
		return fmt.Errorf("sharing objects: %w", err)
	}
	return nil
}

// ImportPacks implements [gitops.Operations]. The objects were indexed and checked on arrival. Their
// history is walked like after a fetch.
func (f *Fetcher) ImportPacks(ctx context.Context, dir, from string, ids []nip34.ObjectID) error {
	if err := f.adopt(ctx, dir, from, ids, true); err != nil {
		return fmt.Errorf("taking objects: %w", err)
	}
	return nil
}

// adopt imports the ids that are complete in dir together with the object folder from. If exact is
// true, all ids must be complete, and no other object is imported.
func (f *Fetcher) adopt(ctx context.Context, dir, from string, ids []nip34.ObjectID, exact bool) (err error) {
	q, err := f.quarantines.open(dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, q.Discard()) }()
	q.exact = exact
	if err := errors.Join(q.disk.check(dir), q.linkPacks(from), q.linkLoose(from)); err != nil {
		return err
	}
	missing, err := q.Missing(ctx, ids)
	switch {
	case err != nil:
		return err
	case exact && len(missing) > 0:
		return fmt.Errorf("%w: %d of %d", purgatory.ErrNotServed, len(missing), len(ids))
	case len(missing) == len(ids):
		return nil
	}
	return q.Promote(ctx)
}

// linkPacks links packs into the quarantine. Packs may be removed concurrently.
func (q *Quarantine) linkPacks(from string) error {
	entries, err := q.disk.files.ReadDir(filepath.Join(from, "pack"))
	if err != nil {
		return err
	}
	for _, e := range entries {
		base, ok := strings.CutSuffix(e.Name(), ".idx")
		if !ok {
			continue
		}
		for _, ext := range []string{".rev", ".pack", ".idx"} {
			err := link(q.disk.files, filepath.Join(from, "pack", base+ext), filepath.Join(q.packs(), base+ext))
			if errors.Is(err, os.ErrNotExist) && ext != ".rev" {
				break
			}
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
		}
	}
	return nil
}

// linkLoose links loose objects, which an operator's git may create.
func (q *Quarantine) linkLoose(from string) error {
	folders, err := q.disk.files.ReadDir(from)
	if err != nil {
		return err
	}
	for _, folder := range folders {
		if len(folder.Name()) != 2 {
			continue
		}
		entries, err := q.disk.files.ReadDir(filepath.Join(from, folder.Name()))
		if err == nil && len(entries) > 0 {
			err = q.disk.files.Mkdir(filepath.Join(q.path(), folder.Name()), 0o700)
		}
		for _, e := range entries {
			name := filepath.Join(folder.Name(), e.Name())
			if lerr := link(q.disk.files, filepath.Join(from, name), filepath.Join(q.path(), name)); !errors.Is(lerr, os.ErrNotExist) {
				err = errors.Join(err, lerr)
			}
		}
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}
