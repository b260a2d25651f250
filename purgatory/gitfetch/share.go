package gitfetch

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/barerepo"
)

// sharer gives a repository what another one of ours has. It is safe for concurrent use.
type sharer struct {
	// set by New, read-only
	git         *program
	disk        *storage
	objects     *objectReader
	quarantines *quarantines
	copied      *limit.Daily[string] // bytes, by owner; of all under the empty name
	log         *slog.Logger
}

// share does what [Fetcher.Share] says.
func (s *sharer) share(ctx context.Context, from, to string, ids []nip34.ObjectID) error {
	there, _, err := s.objects.present(ctx, from, "", ids)
	if err != nil {
		return err
	}
	incomplete, err := s.objects.incomplete(ctx, from, "", there, func([]byte) {})
	if err != nil {
		return err
	}
	ids = without(there, incomplete)
	if len(ids) == 0 {
		return nil
	}
	tips, _, err := s.objects.tips(ctx, to)
	if err != nil {
		return err
	}
	var both []nip34.ObjectID
	if len(tips) > 0 {
		if both, _, err = s.objects.present(ctx, from, "", tips); err != nil {
			return err
		}
	}
	if err := s.disk.check(to); err != nil {
		return err
	}
	var in bytes.Buffer
	for _, id := range ids {
		fmt.Fprintf(&in, "%s\n", id)
	}
	for _, id := range both {
		fmt.Fprintf(&in, "^%s\n", id)
	}
	packs, loose, err := s.packsOf(ctx, from, in.Bytes(), len(ids[0].String())/2)
	if err != nil {
		return fmt.Errorf("sharing objects: %w", err)
	}
	all, err := s.linkPacks(from, to, packs)
	if err != nil {
		return fmt.Errorf("sharing objects: %w", err)
	}
	loose = loose || !all
	if !loose {
		return nil
	}
	return s.shareCopy(ctx, from, to, in.Bytes())
}

// packsOf returns the packs that have what revisions name, if they have little else, and
// whether anything of it is not in them.
func (s *sharer) packsOf(ctx context.Context, dir string, revisions []byte, idLen int) (bases []string, loose bool, err error) {
	folder := filepath.Join(dir, "objects", "pack")
	entries, err := s.disk.files.ReadDir(folder)
	if err != nil {
		return nil, false, err
	}
	var names []string
	for _, e := range entries {
		if base, ok := strings.CutSuffix(e.Name(), ".idx"); ok {
			names = append(names, base)
		}
	}
	all, closeAll, err := barerepo.OpenIndexes(s.disk.files, folder, names, idLen)
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
	_, err = s.git.run(ctx, child{
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
				has, err := all[i].Has(id[:idLen])
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
			brought += x.Len()
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
func (s *sharer) linkPacks(from, to string, bases []string) (all bool, err error) {
	if len(bases) == 0 {
		return true, nil
	}
	here, there := filepath.Join(from, "objects", "pack"), filepath.Join(to, "objects", "pack")
	all = true
	var came []string
	for _, base := range bases {
		err := s.linkPack(filepath.Join(here, base), filepath.Join(there, base))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			s.log.Debug("a pack can't have a second name", "error", err)
			all = false
			break
		}
		came = append(came, base)
	}
	if err := s.disk.sync(there); err != nil {
		return all, err
	}
	for _, base := range came {
		err := s.disk.files.Link(filepath.Join(here, base+".idx"), filepath.Join(there, base+".idx"))
		if err != nil && !errors.Is(err, os.ErrExist) && !errors.Is(err, os.ErrNotExist) {
			return all, err
		}
	}
	return all, s.disk.sync(there)
}

// linkPack gives a pack a second name, by which nobody finds it yet.
func (s *sharer) linkPack(from, to string) error {
	if err := s.disk.writeKeep(to + ".keep"); err != nil {
		return err
	}
	for _, ext := range []string{".pack", ".rev"} {
		err := s.disk.files.Link(from+ext, to+ext)
		if err != nil && !errors.Is(err, os.ErrExist) && (ext != ".rev" || !errors.Is(err, os.ErrNotExist)) {
			return errors.Join(err, s.disk.files.Remove(to+".keep"))
		}
	}
	return s.disk.sync(to + ".keep")
}

const (
	// maxCopies is the number of bytes that are copied in a day, of which one owner has a part. Keys are free,
	// and each may say that it needs what another repository has.
	maxCopies   = 4 << 30
	copiesShare = 8
	// maxGrowth: a delta whose base is not copied is written out in full. A copy may have so
	// many times the bytes that its objects have in their repository.
	maxGrowth = 4
)

var errCopies = errors.New("too much was copied between repositories today")

// shareCopy copies what revisions name, if its owner may have so much more today.
func (s *sharer) shareCopy(ctx context.Context, from, to string, revisions []byte) error {
	out, err := s.git.run(ctx, child{
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
	owner := ownerOf(to)
	if s.copied.Today(owner).Units+size > maxCopies/copiesShare || s.copied.Today("").Units+size > maxCopies {
		return fmt.Errorf("sharing objects: %w", errCopies)
	}
	q, err := s.quarantines.open(to)
	if err != nil {
		return err
	}
	made, err := s.copyObjects(ctx, from, q, bytes.NewReader(revisions), maxGrowth*size+packSlack)
	for _, who := range []string{owner, ""} {
		s.copied.Add(who, max(made, size))
	}
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
func (s *sharer) copyObjects(ctx context.Context, from string, q *Quarantine, revisions io.Reader, most int64) (made int64, err error) {
	file, err := s.disk.files.OpenFile(filepath.Join(q.path(), "shared"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return made, err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if _, err := s.git.run(ctx, child{
		dir: from, stdin: revisions, out: file, long: true, file: most,
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
	_, err = s.git.run(ctx, child{
		dir: q.dir, extra: inside(q.name), stdin: io.NopCloser(file), long: true,
		args: []string{"index-pack", "--stdin", "--threads=1"},
	})
	return info.Size(), err
}
