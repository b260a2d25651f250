package gitfetch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
)

var _ purgatory.Taker = (*Fetcher)(nil)

// Take implements [purgatory.Taker]. What lies there was indexed and checked when it
// came; what it needs is walked as after a fetch.
func (f *Fetcher) Take(ctx context.Context, dir, from string, ids []nip34.ObjectID) error {
	q, err := f.newQuarantine(dir)
	if err != nil {
		return err
	}
	q.exact = true
	if err := q.take(ctx, from, ids); err != nil {
		return errors.Join(fmt.Errorf("taking objects: %w", err), q.Discard())
	}
	if err := q.Promote(ctx); err != nil {
		return errors.Join(fmt.Errorf("taking objects: %w", err), q.Discard())
	}
	return nil
}

// take has the packs of a folder in the quarantine, if they have all that ids need.
func (q *Quarantine) take(ctx context.Context, from string, ids []nip34.ObjectID) error {
	if err := q.f.checkDisk(q.dir); err != nil {
		return err
	}
	packs := filepath.Join(from, "pack")
	entries, err := q.f.files.ReadDir(packs)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := link(q.f.files, filepath.Join(packs, e.Name()), filepath.Join(q.packs(), e.Name())); err != nil {
			return err
		}
	}
	missing, err := q.Missing(ctx, ids)
	if err == nil && len(missing) > 0 {
		err = fmt.Errorf("%w: %d of %d", purgatory.ErrNotServed, len(missing), len(ids))
	}
	return err
}

// link gives a file a second name, or copies it where the other name is on another disk.
func link(on files, from, to string) error {
	err := on.Link(from, to)
	if err == nil || errors.Is(err, os.ErrNotExist) {
		return err
	}
	in, err := on.OpenFile(from, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	out, err := on.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return errors.Join(err, in.Close())
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close(), in.Close())
}
