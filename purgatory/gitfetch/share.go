package gitfetch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
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
	_, err = f.run(ctx, child{
		dir: from, stdin: &in,
		args: []string{"pack-objects", "--revs", "-q", "--delta-base-offset", "--threads=1", filepath.Join(q.packs(), "pack")},
	})
	if err != nil {
		return errors.Join(fmt.Errorf("sharing objects: %w", err), q.Discard())
	}
	return q.Promote(ctx)
}
