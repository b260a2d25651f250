package gitfetch

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
)

var _ purgatory.Sharer = (*Fetcher)(nil)

// Share implements [purgatory.Sharer]. The packs of the first repository get a second name
// in the other one: that takes no room on the disk, whoever asks for it and how often, and
// neither repository needs the other afterwards. What both have is left out, as far as
// the refs of the second one tell. Where packs would bring much that is not needed, or
// can't have two names, what is needed is copied, so many bytes a day.
func (f *Fetcher) Share(ctx context.Context, from, to string, ids []nip34.ObjectID) error {
	there, _, err := f.present(ctx, from, nil, ids)
	if err != nil {
		return err
	}
	incomplete, err := f.incomplete(ctx, from, nil, there, func([]byte) {})
	if err != nil {
		return err
	}
	ids = without(there, incomplete)
	if len(ids) == 0 {
		return nil
	}
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
	var in bytes.Buffer
	for _, id := range ids {
		fmt.Fprintf(&in, "%s\n", id)
	}
	for _, id := range both {
		fmt.Fprintf(&in, "^%s\n", id)
	}
	packs, loose, err := f.packsOf(ctx, from, in.Bytes(), len(ids[0].String())/2)
	if err != nil {
		return fmt.Errorf("sharing objects: %w", err)
	}
	for _, base := range packs {
		err := f.linkPack(filepath.Join(from, "objects", "pack", base), to)
		if errors.Is(err, os.ErrNotExist) || err == nil {
			continue // somebody removes it at this moment: what it had is missing still
		}
		f.cfg.Logger.Debug("a pack can't have a second name", "error", err)
		loose = true
		break
	}
	if !loose {
		return nil
	}
	return f.shareCopy(ctx, from, to, in.Bytes())
}

// packsOf returns the packs that have what revisions name, if they have little else, and
// whether anything of it is not in them.
func (f *Fetcher) packsOf(ctx context.Context, dir string, revisions []byte, idLen int) (bases []string, loose bool, err error) {
	folder := filepath.Join(dir, "objects", "pack")
	entries, err := f.files.ReadDir(folder)
	if err != nil {
		return nil, false, err
	}
	var names []string
	for _, e := range entries {
		if base, ok := strings.CutSuffix(e.Name(), ".idx"); ok {
			names = append(names, base)
		}
	}
	all, closeAll, err := openIndexes(folder, names, idLen)
	defer closeAll()
	if err != nil {
		return nil, false, err
	}
	used, needed := make([]bool, len(all)), 0
	order := make([]int, len(all)) // in which they are looked into: the last that had one first
	for i := range order {
		order[i] = i
	}
	var failed error
	_, err = f.run(ctx, child{
		dir: dir, stdin: bytes.NewReader(revisions), long: true,
		args: []string{"rev-list", "--objects", "--no-object-names", "--stdin"},
		each: func(line []byte) {
			needed++
			var id [32]byte
			if _, err := hex.Decode(id[:], line[:min(len(line), 2*len(id))]); err != nil {
				loose = true
				return
			}
			for n, i := range order {
				has, err := all[i].has(id[:idLen])
				if err != nil {
					failed = err
					return
				}
				if has {
					used[i] = true
					copy(order[1:n+1], order[:n])
					order[0] = i
					return
				}
			}
			loose = true
		},
	})
	if err = errors.Join(err, failed); err != nil {
		return nil, false, err
	}
	brought := 0
	for i, x := range all {
		if used[i] {
			bases = append(bases, names[i])
			brought += x.len()
		}
	}
	if brought > maxExtra*needed+fewExtra {
		return nil, true, nil
	}
	return bases, loose, nil
}

// linkPack gives a pack a second name in another repository, in the order of promotePack.
func (f *Fetcher) linkPack(from, to string) error {
	folder := filepath.Join(to, "objects", "pack")
	at := filepath.Join(folder, filepath.Base(from))
	if err := f.writeKeep(at + ".keep"); err != nil {
		return err
	}
	for _, ext := range []string{".pack", ".rev"} {
		err := f.files.Link(from+ext, at+ext)
		if err != nil && !errors.Is(err, os.ErrExist) && (ext != ".rev" || !errors.Is(err, os.ErrNotExist)) {
			return errors.Join(err, f.files.Remove(at+".keep"))
		}
	}
	if err := f.sync(at + ".keep"); err != nil {
		return err
	}
	if err := f.sync(folder); err != nil {
		return err
	}
	if err := f.files.Link(from+".idx", at+".idx"); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return f.sync(folder)
}

// shareCopy copies what revisions name.
func (f *Fetcher) shareCopy(ctx context.Context, from, to string, revisions []byte) error {
	q, err := f.newQuarantine(to)
	if err != nil {
		return err
	}
	if err := f.copyObjects(ctx, from, q, bytes.NewReader(revisions)); err != nil {
		return errors.Join(fmt.Errorf("sharing objects: %w", err), q.Discard())
	}
	return q.Promote(ctx)
}

// copyObjects packs what revisions name in one repository into a quarantine of another
// one. The pack goes through a file of ours: the path of neither may be an argument, and
// two children at once might wait for each other.
func (f *Fetcher) copyObjects(ctx context.Context, from string, q *Quarantine, revisions io.Reader) (err error) {
	file, err := f.files.OpenFile(filepath.Join(q.path(), "shared"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
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
	info, err := file.Stat()
	if err != nil {
		return err
	}
	if err := f.copies.spend(time.Now(), filepath.Dir(q.dir), info.Size()); err != nil {
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

// copies bounds what is copied between repositories in a day: keys are free, and each may
// say that it needs what another repository has.
type copies struct {
	mu sync.Mutex
	// guarded by mu
	since time.Time
	all   int64
	by    map[string]int64 // by owner
}

// Those of one owner may be copied an eighth of what is copied in all, in bytes a day.
const (
	maxCopies      = 4 << 30
	maxCopiesOwner = maxCopies / 8
)

var errCopies = errors.New("too much was copied between repositories today")

func (c *copies) spend(now time.Time, owner string, bytes int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.since) >= 24*time.Hour {
		c.since, c.all, c.by = now, 0, make(map[string]int64)
	}
	if c.all+bytes > maxCopies || c.by[owner]+bytes > maxCopiesOwner {
		return errCopies
	}
	c.all += bytes
	c.by[owner] += bytes
	return nil
}
