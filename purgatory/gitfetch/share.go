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
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// Share implements [purgatory.GitFetcher]. The packs of the first repository get a second name
// in the other one: that takes no room on the disk, whoever asks for it and how often, and
// neither repository needs the other afterwards. What both have is left out, as far as
// the refs of the second one tell. Where packs would bring much that is not needed, or
// can't have two names, what is needed is copied, so many bytes a day.
func (f *Fetcher) Share(ctx context.Context, from, to string, ids []nip34.ObjectID) error {
	there, _, err := f.objects.present(ctx, from, nil, ids)
	if err != nil {
		return err
	}
	incomplete, err := f.objects.incomplete(ctx, from, nil, there, func([]byte) {})
	if err != nil {
		return err
	}
	ids = without(there, incomplete)
	if len(ids) == 0 {
		return nil
	}
	tips, _, err := f.objects.tips(ctx, to)
	if err != nil {
		return err
	}
	var both []nip34.ObjectID
	if len(tips) > 0 {
		if both, _, err = f.objects.present(ctx, from, nil, tips); err != nil {
			return err
		}
	}
	if err := f.disk.check(to); err != nil {
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
	if err := noteLinked(f.disk.files, to, packs); err != nil {
		return fmt.Errorf("sharing objects: %w", err)
	}
	all, err := f.linkPacks(from, to, packs)
	if err != nil {
		return fmt.Errorf("sharing objects: %w", err)
	}
	loose = loose || !all
	if !loose {
		return nil
	}
	return f.shareCopy(ctx, from, to, in.Bytes())
}

// packsOf returns the packs that have what revisions name, if they have little else, and
// whether anything of it is not in them.
func (f *Fetcher) packsOf(ctx context.Context, dir string, revisions []byte, idLen int) (bases []string, loose bool, err error) {
	folder := filepath.Join(dir, "objects", "pack")
	entries, err := f.disk.files.ReadDir(folder)
	if err != nil {
		return nil, false, err
	}
	var names []string
	for _, e := range entries {
		if base, ok := strings.CutSuffix(e.Name(), ".idx"); ok {
			names = append(names, base)
		}
	}
	all, closeAll, err := openIndexes(f.disk.files, folder, names, idLen)
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
	_, err = f.git.run(ctx, child{
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

// linkPacks gives packs a second name in another repository, in the order of promotePack:
// all are there before the first can be found. It reports whether they can have one; those
// that go at this moment do not count: what they had is missing still.
func (f *Fetcher) linkPacks(from, to string, bases []string) (all bool, err error) {
	if len(bases) == 0 {
		return true, nil
	}
	here, there := filepath.Join(from, "objects", "pack"), filepath.Join(to, "objects", "pack")
	all = true
	var came []string
	for _, base := range bases {
		err := f.linkPack(filepath.Join(here, base), filepath.Join(there, base))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			f.cfg.Logger.Debug("a pack can't have a second name", "error", err)
			all = false
			break
		}
		came = append(came, base)
	}
	if err := f.disk.sync(there); err != nil {
		return all, err
	}
	for _, base := range came {
		err := f.disk.files.Link(filepath.Join(here, base+".idx"), filepath.Join(there, base+".idx"))
		if err != nil && !errors.Is(err, os.ErrExist) && !errors.Is(err, os.ErrNotExist) {
			return all, err
		}
	}
	return all, f.disk.sync(there)
}

// linkPack gives a pack a second name, by which nobody finds it yet.
func (f *Fetcher) linkPack(from, to string) error {
	if err := f.disk.writeKeep(to + ".keep"); err != nil {
		return err
	}
	for _, ext := range []string{".pack", ".rev"} {
		err := f.disk.files.Link(from+ext, to+ext)
		if err != nil && !errors.Is(err, os.ErrExist) && (ext != ".rev" || !errors.Is(err, os.ErrNotExist)) {
			return errors.Join(err, f.disk.files.Remove(to+".keep"))
		}
	}
	return f.disk.sync(to + ".keep")
}

// linkedName is of the file beside a repository that lists the packs which came to it by a
// second name. To lose it costs room on the disk at most.
const linkedName = "graspsync-linked"

// linked reads that list, but for packs that have gone.
func linked(on files, dir string) (map[string]bool, error) {
	data, err := on.ReadFile(filepath.Join(dir, linkedName))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	bases := make(map[string]bool)
	for base := range strings.FieldsSeq(string(data)) {
		_, err := on.Lstat(filepath.Join(dir, "objects", "pack", filepath.Base(base)+".pack"))
		switch {
		case err == nil:
			bases[base] = true
		case !errors.Is(err, os.ErrNotExist):
			return nil, err
		}
	}
	return bases, nil
}

// noteLinked adds packs to the list that are about to come, under the lock of the repository.
// Those that are there already are its own.
func noteLinked(on files, dir string, bases []string) error {
	all, err := linked(on, dir)
	if err != nil {
		return err
	}
	for _, base := range bases {
		_, err := on.Lstat(filepath.Join(dir, "objects", "pack", base+".pack"))
		switch {
		case errors.Is(err, os.ErrNotExist):
			all[base] = true
		case err != nil:
			return err
		}
	}
	var text strings.Builder
	for base := range all {
		fmt.Fprintln(&text, base)
	}
	path := filepath.Join(dir, linkedName)
	if err := on.WriteFile(path+".new", []byte(text.String()), 0o600); err != nil {
		return err
	}
	return on.Rename(path+".new", path)
}

// shareCopy copies what revisions name. It is paid for before anything is packed: who may
// have no more has no work done for him either.
func (f *Fetcher) shareCopy(ctx context.Context, from, to string, revisions []byte) error {
	out, err := f.git.run(ctx, child{
		dir: from, stdin: bytes.NewReader(revisions), long: true,
		args: []string{"rev-list", "--objects", "--disk-usage", "--stdin"},
	})
	if err != nil {
		return fmt.Errorf("sharing objects: %w", err)
	}
	size, err := strconv.ParseInt(strings.TrimSpace(string(out)), 10, 64)
	if err != nil {
		return fmt.Errorf("sharing objects: git says %s", graspsync.Printable(string(out)))
	}
	who, err := f.payer(ctx, to)
	if err != nil {
		return fmt.Errorf("sharing objects: %w", err)
	}
	more, err := f.copies.spend(time.Now(), who, size)
	if err != nil {
		return fmt.Errorf("sharing objects: %w", err)
	}
	q, err := f.newQuarantine(to)
	if err != nil {
		return err
	}
	made, err := f.copyObjects(ctx, from, q, bytes.NewReader(revisions), maxGrowth*size+packSlack)
	more(made - size)
	if err == nil {
		err = q.Promote(ctx)
	}
	if err != nil { // or each try would leave a copy
		return errors.Join(fmt.Errorf("sharing objects: %w", err), q.Discard())
	}
	return nil
}

// copyObjects packs what revisions name in one repository into a quarantine of another
// one. The pack goes through a file of ours: the path of neither may be an argument, and
// two children at once might wait for each other. It may have so many bytes, and has those
// that are returned.
func (f *Fetcher) copyObjects(ctx context.Context, from string, q *Quarantine, revisions io.Reader, most int64) (made int64, err error) {
	file, err := f.disk.files.OpenFile(filepath.Join(q.path(), "shared"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return made, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err := f.git.run(ctx, child{
		dir: from, stdin: revisions, stdout: file, long: true, file: most,
		args: []string{"pack-objects", "--revs", "-q", "--stdout", "--delta-base-offset", "--threads=1"},
	}); err != nil {
		return made, err
	}
	info, err := file.Stat()
	if err != nil {
		return made, err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return made, err
	}
	// What is in it was checked when it came.
	_, err = f.git.run(ctx, child{
		dir: q.dir, extra: q.objects(), stdin: io.NopCloser(file), long: true,
		args: []string{"index-pack", "--stdin", "--threads=1"},
	})
	return info.Size(), err
}

// copies bounds what is copied between repositories in a day: keys are free, and each may
// say that it needs what another repository has. Half of it is for repositories that have
// served something for a day: who makes keys by the hundred takes none of that.
type copies struct {
	most int64 // bytes a day
	mu   sync.Mutex
	// guarded by mu
	since   time.Time
	pools   [2]pool // for everybody, and for who has served
	refused uint64
}

// pool is what there is of something to be shared by owners.
type pool struct {
	spent int64
	by    map[string]int64
}

// payer is whom a copy is charged to.
type payer struct {
	owner  string
	served bool // his repository has served something for a day
}

const (
	// maxCopies is how much is copied in a day, in bytes.
	maxCopies = 4 << 30
	// maxGrowth: a delta whose base is not copied is written out in full. A copy may have so
	// many times the bytes that its objects have where they are.
	maxGrowth = 4
	// copiesShare: one owner may have this part of what the others have left.
	copiesShare = 8
	// servedAfter is how old a repository must be to be one that has served.
	servedAfter = 24 * time.Hour
)

var errCopies = errors.New("too much was copied between repositories today")

// payer says for whom a repository is given a copy.
func (f *Fetcher) payer(ctx context.Context, dir string) (payer, error) {
	who := payer{owner: filepath.Dir(dir)}
	info, err := f.disk.files.Stat(filepath.Join(dir, "config")) // nothing of ours writes it anew
	if err != nil || time.Since(info.ModTime()) < servedAfter {
		return who, err
	}
	out, err := f.git.run(ctx, child{dir: dir, args: []string{"for-each-ref", "--count=1", "--format=%(refname)", "refs/heads", "refs/tags"}})
	who.served = len(out) > 0
	return who, err
}

// spend charges somebody with a copy. The first may have more of a pool than those who come
// later, but nobody's coming empties it. Should it be larger in the end, more is called.
func (c *copies) spend(now time.Time, who payer, bytes int64) (more func(bytes int64), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if now.Sub(c.since) >= 24*time.Hour {
		c.since, c.pools = now, [2]pool{}
	}
	for i := range c.pools {
		if p := &c.pools[i]; (i == 0 || who.served) && p.left(c.most/2, who.owner) >= bytes {
			p.take(who.owner, bytes)
			return func(bytes int64) {
				c.mu.Lock()
				defer c.mu.Unlock()
				if bytes > 0 {
					c.pools[i].take(who.owner, bytes)
				}
			}, nil
		}
	}
	c.refused++
	return nil, errCopies
}

func (p *pool) take(owner string, bytes int64) {
	if p.by == nil {
		p.by = make(map[string]int64)
	}
	p.spent += bytes
	p.by[owner] += bytes
}

// left is how much one owner may still have of so many bytes.
func (p *pool) left(of int64, owner string) int64 {
	own := p.by[owner]
	return (of-p.spent+own)/copiesShare - own
}
