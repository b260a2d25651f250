package gitfetch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
)

var _ purgatory.Sharer = (*Fetcher)(nil)

// Share implements [purgatory.Sharer]. What both repositories have is not copied, as
// far as the refs of the second one tell.
func (f *Fetcher) Share(ctx context.Context, from, to string, ids []nip34.ObjectID) error {
	tips, _, err := f.tips(ctx, to)
	if err != nil {
		return err
	}
	both, _, err := f.present(ctx, from, nil, tips)
	if len(tips) > 0 && err != nil {
		return err
	}
	if err := f.checkDisk(to); err != nil {
		return err
	}
	q, err := f.newQuarantine(to)
	if err != nil {
		return err
	}
	var in bytes.Buffer
	for _, id := range ids {
		fmt.Fprintf(&in, "%s\n", id)
	}
	for _, id := range both {
		fmt.Fprintf(&in, "^%s\n", id)
	}
	if err := f.copyObjects(ctx, from, q, &in); err != nil {
		return errors.Join(fmt.Errorf("sharing objects: %w", err), q.Discard())
	}
	return q.Promote(ctx)
}

// copyObjects packs what revisions name in one repository into a quarantine of another
// one. The pack goes through a file of ours: the path of neither may be an argument, and
// two children at once might wait for each other.
func (f *Fetcher) copyObjects(ctx context.Context, from string, q *Quarantine, revisions io.Reader) (err error) {
	file, err := os.OpenFile(filepath.Join(q.path(), "shared"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err := f.run(ctx, child{
		dir: from, stdin: revisions, stdout: file, long: true,
		args: []string{"pack-objects", "--revs", "-q", "--stdout", "--delta-base-offset", "--threads=1"},
	}); err != nil {
		return err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	// What is in it was checked when it came.
	_, err = f.run(ctx, child{
		dir: q.dir, extra: q.objects(), stdin: io.NopCloser(file), long: true,
		args: []string{"index-pack", "--stdin", "--threads=1"},
	})
	return err
}
