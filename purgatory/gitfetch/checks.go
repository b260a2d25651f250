package gitfetch

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/barerepo"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

const (
	maxChecked      = 20_000   // repositories
	maxCheckedBytes = 64 << 20 // of all repositories
	checkedID       = 200      // bytes per id
)

// checks remembers the objects found in repositories, so that the hourly check of an unchanged
// repository runs no git.
type checks struct {
	mu sync.Mutex
	of *limit.Table[string, checked] // by folder; guarded by mu
}

// checked holds while the stamp of its repository is unchanged. It is immutable.
type checked struct {
	at       stamp
	kinds    map[nip34.ObjectID]refplan.Kind // zero: missing
	complete []nip34.ObjectID                // objects with all objects that they need, the latest last
}

// stamp contains a hash of the refs, where walks end, and of the list of packs.
type stamp struct{ refs, objects string }

func newChecks() *checks {
	return &checks{of: limit.NewTable[string, checked](maxChecked, maxCheckedBytes)}
}

func (c *checks) known(dir string, now stamp) checked {
	c.mu.Lock()
	defer c.mu.Unlock()
	if of, ok := c.of.Get(dir); ok && of.at == now {
		return of
	}
	return checked{at: now}
}

// add records the kinds of ids and complete objects. Of two concurrent calls one may be lost.
func (c *checks) add(dir string, now stamp, ids []nip34.ObjectID, kinds map[nip34.ObjectID]refplan.Kind, complete []nip34.ObjectID) {
	of := c.known(dir, now)
	if len(ids) > 0 {
		all := make(map[nip34.ObjectID]refplan.Kind, len(of.kinds)+len(ids))
		maps.Copy(all, of.kinds)
		for _, id := range ids {
			all[id] = kinds[id]
		}
		of.kinds = all
	}
	of.complete = slices.Concat(of.complete, without(complete, of.complete))
	c.mu.Lock()
	defer c.mu.Unlock()
	c.of.Put(dir, limit.Stranger{ID: ownerOf(dir)}, checkedID*int64(1+len(of.kinds)+len(of.complete)), of)
}

func (f *Fetcher) stamp(ctx context.Context, dir string) (s stamp, err error) {
	if ctx.Err() != nil {
		return s, context.Cause(ctx)
	}
	refs, err := barerepo.AllRefs(f.disk.files, dir)
	if err != nil {
		return s, fmt.Errorf("reading refs: %w", err)
	}
	sum := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(refs)) {
		fmt.Fprintf(sum, "%s %s\n", refs[name], name)
	}
	s.refs = string(sum.Sum(nil))
	entries, err := f.disk.files.ReadDir(filepath.Join(dir, "objects", "pack"))
	if err != nil {
		return s, fmt.Errorf("listing packs: %w", err)
	}
	sum.Reset()
	for _, e := range entries {
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return s, err
		}
		fmt.Fprintf(sum, "%s %d %d\n", e.Name(), info.Size(), info.ModTime().UnixNano())
	}
	s.objects = string(sum.Sum(nil))
	return s, nil
}
