package gitfetch

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
)

var _ purgatory.Weigher = (*Fetcher)(nil)

// Weigh implements [purgatory.Weigher]: as git says it, which counts a delta as it lies
// there, and no index.
func (f *Fetcher) Weigh(ctx context.Context, dir string, id nip34.ObjectID, but []nip34.ObjectID) (int64, error) {
	var in bytes.Buffer
	fmt.Fprintf(&in, "%s\n", id)
	for _, o := range but {
		fmt.Fprintf(&in, "^%s\n", o)
	}
	out, err := f.run(ctx, child{dir: dir, stdin: &in, long: true, args: []string{"rev-list", "--objects", "--disk-usage", "--stdin"}})
	if err != nil {
		return 0, fmt.Errorf("weighing objects: %w", err)
	}
	n, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("weighing objects: %w", err)
	}
	return n, nil
}
