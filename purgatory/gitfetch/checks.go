package gitfetch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
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
// repository runs no git. It is safe for concurrent use.
type checks struct {
	mu sync.Mutex
	of *limit.Table[string, *checked] // by folder; guarded by mu
}

// checked holds while the stamp of its repository is unchanged.
type checked struct {
	at       stamp
	kinds    map[nip34.ObjectID]refplan.Kind // zero: missing
	complete []nip34.ObjectID                // objects with all objects that they need
}

// stamp is a hash of the refs, where walks end, and of the object files. refs is "" if only git can
// read them. Then the stamp equals no other.
type stamp struct{ refs, objects string }

func newChecks() *checks {
	return &checks{of: limit.NewTable[string, *checked](maxChecked, maxCheckedBytes)}
}

// at returns what is known. The caller holds mu.
func (c *checks) at(dir string, now stamp) *checked {
	if of, ok := c.of.Get(dir); ok && now.refs != "" && of.at == now {
		return of
	}
	return &checked{at: now, kinds: make(map[nip34.ObjectID]refplan.Kind)}
}

func (c *checks) kinds(dir string, now stamp, ids []nip34.ObjectID) (kinds map[nip34.ObjectID]refplan.Kind, unknown []nip34.ObjectID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	known := c.at(dir, now).kinds
	kinds = make(map[nip34.ObjectID]refplan.Kind, len(ids))
	for _, id := range ids {
		if kind, ok := known[id]; !ok {
			unknown = append(unknown, id)
		} else if kind != 0 {
			kinds[id] = kind
		}
	}
	return kinds, unknown
}

func (c *checks) unproven(dir string, now stamp, ids []nip34.ObjectID) []nip34.ObjectID {
	c.mu.Lock()
	defer c.mu.Unlock()
	return without(ids, c.at(dir, now).complete)
}

// complete returns at most n complete ids, the latest first.
func (c *checks) complete(dir string, now stamp, n int) []nip34.ObjectID {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := slices.Clone(c.at(dir, now).complete)
	slices.Reverse(all)
	return all[:min(n, len(all))]
}

// add records the kinds of ids and complete objects.
func (c *checks) add(dir string, now stamp, ids []nip34.ObjectID, kinds map[nip34.ObjectID]refplan.Kind, complete []nip34.ObjectID) {
	if now.refs == "" {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	of := c.at(dir, now)
	for _, id := range ids {
		of.kinds[id] = kinds[id]
	}
	of.complete = append(of.complete, without(complete, of.complete)...)
	c.of.Put(dir, limit.Stranger{ID: ownerOf(dir)}, checkedID*int64(1+len(of.kinds)+len(of.complete)), of)
}

func (f *Fetcher) stamp(ctx context.Context, dir string) (s stamp, err error) {
	if ctx.Err() != nil {
		return s, context.Cause(ctx)
	}
	refs, err := barerepo.AllRefs(f.disk.files, dir)
	if errors.Is(err, barerepo.ErrAskGit) {
		return s, nil
	}
	if err != nil {
		return s, fmt.Errorf("reading refs: %w", err)
	}
	head, err := f.disk.files.ReadFile(filepath.Join(dir, "HEAD"))
	if err != nil {
		return s, fmt.Errorf("reading HEAD: %w", err)
	}
	sum := sha256.New()
	fmt.Fprintf(sum, "%q\n", head)
	for _, name := range slices.Sorted(maps.Keys(refs)) {
		fmt.Fprintf(sum, "%s %s\n", refs[name], name)
	}
	s.refs = hex.EncodeToString(sum.Sum(nil))
	s.objects, err = objectStamp(f.disk.files, filepath.Join(dir, "objects"))
	return s, err
}

// objectStamp returns a hash that changes when an object is added or removed.
func objectStamp(on files, objects string) (string, error) {
	sum := sha256.New()
	for _, folder := range []string{objects, filepath.Join(objects, "pack")} {
		entries, err := on.ReadDir(folder)
		if err != nil {
			return "", err
		}
		for _, e := range entries {
			if folder == objects && len(e.Name()) != 2 { // not a folder of loose objects
				continue
			}
			info, err := e.Info()
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return "", err
			}
			fmt.Fprintf(sum, "%s %d %d\n", e.Name(), info.Size(), info.ModTime().UnixNano())
		}
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}
