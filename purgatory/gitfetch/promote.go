package gitfetch

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/graspsync/graspsync/purgatory"
)

// Promote implements [purgatory.Quarantine]. What is promoted are the packs as they
// came, unless too much is in them that nothing complete needs: then one pack is
// made of what is needed.
//
// Nobody sees half a pack, and no crash or loss of power leaves half of one: the
// data are synced, then what git does not look for by itself (the mark that keeps
// garbage collection away, the pack, its reverse index) gets its place, then the
// folder is synced, and only then the index appears, by which git finds a pack.
func (q *Quarantine) Promote(ctx context.Context) error {
	if err := q.trim(ctx); err != nil {
		return fmt.Errorf("promoting: %w", err)
	}
	names, err := q.content()
	if err != nil {
		return fmt.Errorf("promoting: %w", err)
	}
	for name := range names {
		base, ok := strings.CutSuffix(name, ".idx")
		if !ok || !names[base+".pack"] {
			continue
		}
		if err := q.promotePack(base); err != nil {
			return fmt.Errorf("promoting: %w", err)
		}
	}
	q.f.took(q.dir, q.complete)
	return q.Discard()
}

// keepNote is in the .keep files that are ours.
const keepNote = "graspsync\n"

func (q *Quarantine) promotePack(base string) error {
	from, to := filepath.Join(q.packs(), base), filepath.Join(q.dir, "objects", "pack", base)
	folder := filepath.Dir(to)
	if err := q.f.writeKeep(to + ".keep"); err != nil {
		return err
	}
	// The same objects may have come before: then all that they lack is the mark. If
	// garbage collection takes the pack at this moment it is ours that stays.
	there, err := q.f.exists(to + ".idx")
	if err != nil {
		return err
	}
	for _, ext := range []string{".pack", ".rev"} {
		if err := q.f.move(from+ext, to+ext); err != nil && (ext != ".rev" || !errors.Is(err, os.ErrNotExist)) {
			return err
		}
	}
	if err := q.f.sync(to + ".keep"); err != nil {
		return err
	}
	if err := q.f.sync(folder); err != nil {
		return err
	}
	if there {
		// An index of another version of git may differ and be right all the same.
		if there, err = q.f.exists(to + ".idx"); err != nil {
			return err
		}
	}
	if !there {
		if err := q.f.move(from+".idx", to+".idx"); err != nil {
			return err
		}
	}
	return q.f.sync(folder)
}

func (f *Fetcher) exists(path string) (bool, error) {
	_, err := f.files.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// writeKeep marks a pack, unless somebody else did.
func (f *Fetcher) writeKeep(path string) error {
	file, err := f.files.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = file.WriteString(keepNote)
	return errors.Join(err, file.Close())
}

// move gives a file its place after its content is on the disk.
func (f *Fetcher) move(from, to string) error {
	if err := f.sync(from); err != nil {
		return err
	}
	if f.placed != nil {
		f.placed(to)
	}
	return f.files.Rename(from, to)
}

// sync has the system write a file or folder to the disk.
func (f *Fetcher) sync(path string) error {
	if f.synced != nil {
		f.synced(path)
	}
	return f.files.Sync(path)
}

func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}

// What is in the packs may be twice what is needed, and some more, before they are
// made anew: that a server sends a whole pack that it has at hand is its right.
const (
	maxExtra = 2
	fewExtra = 1000
)

// trim makes one pack of what the complete ids need and no ref has, if the packs
// have much more than that, or less: what they lack is in the repository then, but
// no ref holds it there.
func (q *Quarantine) trim(ctx context.Context) error {
	if len(q.complete) == 0 {
		return nil
	}
	before, err := q.content()
	if err != nil {
		return err
	}
	have, err := q.f.readIndexes(q.packs(), before, len(q.complete[0].String())/2)
	if err != nil {
		return err
	}
	needed, lacking := 0, 0
	err = q.f.walk(ctx, q.dir, q.objects(), q.complete, func(line []byte) {
		needed++
		if !have.has(line) {
			lacking++
		}
	})
	if err != nil {
		return fmt.Errorf("finding out what is needed: %w", err)
	}
	most := maxExtra*needed + fewExtra
	if q.exact {
		most = needed
	}
	if lacking == 0 && have.objects() <= most {
		return nil
	}
	err = q.repack(ctx, before, needed, lacking)
	var limit *LimitError
	if errors.As(err, &limit) && lacking == 0 && have.objects() <= maxExtra*needed+fewExtra {
		return nil // as they came the packs are smaller, and little else is in them
	}
	return err
}

// repack makes one pack of what the complete ids need, and removes the others.
func (q *Quarantine) repack(ctx context.Context, before map[string]bool, needed, lacking int) error {
	made := ""
	if needed > 0 {
		most, err := q.mostOf(before, lacking > 0)
		if err != nil {
			return err
		}
		if made, err = q.pack(ctx, before, most); err != nil {
			return err
		}
	}
	for name := range before {
		if made != "" && strings.HasPrefix(name, made+".") {
			continue // one of those that came was just that
		}
		if err := q.f.files.Remove(filepath.Join(q.packs(), name)); err != nil {
			return err
		}
	}
	return nil
}

// A delta on what refs have is written out in full, and a few bytes of a stranger may
// stand for very many. So a pack that is made anew may be as large as those that came, and
// a little more; what is copied from the repository may take as much again as both, twice.
const (
	packSlack = 64 << 10
	maxCopied = 2
)

// mostOf is how large a pack may be that is made of others, in bytes. It holds for its index
// as well, so those that came count.
func (q *Quarantine) mostOf(names map[string]bool, copied bool) (most int64, err error) {
	for name := range names {
		info, err := q.f.files.Stat(filepath.Join(q.packs(), name))
		if err != nil {
			return most, err
		}
		most += info.Size()
	}
	if copied {
		there, err := objectBytes(q.f.files, filepath.Join(q.dir, "objects"))
		if err != nil {
			return most, err
		}
		most = maxCopied * (most + there)
	}
	return most + packSlack, nil
}

// objectBytes is what the objects of a repository take up. Those that go meanwhile do not
// count.
func objectBytes(on files, dir string) (sum int64, err error) {
	err = walk(on, dir, func(_ string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err == nil {
			sum += info.Size()
		}
		return err
	})
	return sum, err
}

// pack adds a pack of what the complete ids need and no ref has, of at most so many bytes,
// and returns its name without extension.
func (q *Quarantine) pack(ctx context.Context, before map[string]bool, most int64) (made string, err error) {
	if err := q.f.checkDisk(q.dir); err != nil {
		return "", err
	}
	tips, err := q.f.run(ctx, child{dir: q.dir, args: []string{"for-each-ref", "--format=%(objectname)"}})
	if err != nil {
		return "", fmt.Errorf("reading refs: %w", err)
	}
	stdin := io.MultiReader(lines(q.complete), strings.NewReader("--not\n"), bytes.NewReader(tips))
	out, err := q.f.run(ctx, child{
		dir: q.dir, extra: q.objects(), stdin: stdin, long: true, file: most,
		args: []string{"pack-objects", "--revs", "--delta-base-offset", "--window=0", "--threads=1", "--quiet", q.name + "/pack/pack"},
	})
	var failed *childError
	if errors.As(err, &failed) && failed.fileTooLarge() {
		err = fmt.Errorf("%w: %w: %w", purgatory.ErrLimit, &LimitError{Limit: "bytes of a pack made anew", Most: most}, err)
	}
	if err != nil {
		return "", fmt.Errorf("packing what is needed: %w", errors.Join(err, q.restore(before)))
	}
	return "pack-" + strings.TrimSpace(string(out)), nil
}

// readIndexes reads which objects are in the packs of a folder.
func (f *Fetcher) readIndexes(folder string, names map[string]bool, idLen int) (packs packIndexes, err error) {
	for name := range names {
		if !strings.HasSuffix(name, ".idx") {
			continue
		}
		data, err := f.files.ReadFile(filepath.Join(folder, name))
		if err != nil {
			return nil, err
		}
		index, err := readIndex(data, idLen)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		packs = append(packs, index)
	}
	return packs, nil
}

// packIndex has the ids of the objects of a pack, sorted, one after the other.
type packIndex struct {
	ids   []byte
	idLen int
}

// The head of a pack's index, version 2: a mark and a version, and how many ids
// begin with each byte or one below it (gitformat-pack).
const (
	indexMark   = "\xfftOc\x00\x00\x00\x02"
	indexFanout = len(indexMark) + 256*4
)

var errIndex = errors.New("not the index of a pack")

// readIndex reads the index of a pack. It keeps data.
func readIndex(data []byte, idLen int) (packIndex, error) {
	if len(data) < indexFanout || string(data[:len(indexMark)]) != indexMark {
		return packIndex{}, errIndex
	}
	n := int64(binary.BigEndian.Uint32(data[indexFanout-4:]))
	data = data[indexFanout:]
	if n > int64(len(data)/idLen) {
		return packIndex{}, errIndex
	}
	return packIndex{ids: data[:n*int64(idLen)], idLen: idLen}, nil
}

func (x packIndex) len() int { return len(x.ids) / x.idLen }

func (x packIndex) has(id []byte) bool {
	at := func(i int) []byte { return x.ids[i*x.idLen : (i+1)*x.idLen] }
	i := sort.Search(x.len(), func(i int) bool { return bytes.Compare(at(i), id) >= 0 })
	return i < x.len() && bytes.Equal(at(i), id)
}

type packIndexes []packIndex

// objects counts what is in more than one pack more than once: it is too much, too.
func (xs packIndexes) objects() (n int) {
	for _, x := range xs {
		n += x.len()
	}
	return n
}

// has looks for an id in hex.
func (xs packIndexes) has(hexID []byte) bool {
	var id [32]byte
	n, err := hex.Decode(id[:], hexID[:min(len(hexID), 2*len(id))])
	return err == nil && slices.ContainsFunc(xs, func(x packIndex) bool { return x.idLen == n && x.has(id[:n]) })
}
