package barerepo

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/graspsync/graspsync/nip34"
)

// ErrAskGit is wrapped by what a [Reader] says of what only git can read: what somebody has
// configured, or what is damaged.
var ErrAskGit = errors.New("only git can say")

// Reader reads a repository as git does, without running it: that takes a hundredth of the
// time. It may be used concurrently.
type Reader struct {
	on     Disk
	dir    string
	format nip34.ObjectFormat
}

// configs are what the config of a repository says; all else is given to git when it
// runs.
var configs = map[nip34.ObjectFormat]string{
	nip34.SHA1: "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n",
	nip34.SHA256: "[core]\n\trepositoryformatversion = 1\n\tfilemode = true\n\tbare = true\n" +
		"[extensions]\n\tobjectformat = sha256\n",
}

// Config is the config of a repository, by how it hashes its objects.
func Config(format nip34.ObjectFormat) string { return configs[format] }

// Read returns a Reader for a repository. The error wraps [ErrAskGit] unless its config is as
// we write it, and its objects and histories end in it.
func Read(on Disk, dir string) (*Reader, error) {
	config, err := on.ReadFile(filepath.Join(dir, "config"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for format, text := range configs {
		if string(config) != text {
			continue
		}
		for _, elsewhere := range []string{"objects/info/alternates", "shallow", "commondir"} {
			_, err := on.ReadFile(filepath.Join(dir, filepath.FromSlash(elsewhere)))
			if err == nil {
				return nil, fmt.Errorf("%w: there is %s", ErrAskGit, elsewhere)
			}
			if !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
		}
		return &Reader{on: on, dir: dir, format: format}, nil
	}
	return nil, fmt.Errorf("%w: the config is not ours", ErrAskGit)
}

// Format is how the repository hashes its objects.
func (r *Reader) Format() nip34.ObjectFormat { return r.format }

// Refs returns all refs but [HiddenRefs]. The error wraps [ErrAskGit] if one of them is no object of this format.
func (r *Reader) Refs() (map[string]nip34.ObjectID, error) {
	at, err := AllRefs(r.on, r.dir)
	for name, id := range at {
		if id.Format() != r.format || strings.Trim(id.String(), "0") == "" {
			return nil, fmt.Errorf("%w: %s is no object", ErrAskGit, name)
		}
	}
	return at, err
}

// AllRefs returns all refs of a repository but [HiddenRefs], whatever its config is. Nobody may change them
// meanwhile, but they may be packed, because loose refs are read before packed-refs, to which they go. The error
// wraps [ErrAskGit] if a ref is not the id of an object.
func AllRefs(on Disk, dir string) (map[string]nip34.ObjectID, error) {
	loose := make(map[string]nip34.ObjectID)
	if err := looseRefs(on, dir, "refs", loose); err != nil {
		return nil, err
	}
	at, err := packedRefs(on, dir)
	if err != nil {
		return nil, err
	}
	maps.Copy(at, loose)
	maps.DeleteFunc(at, func(name string, _ nip34.ObjectID) bool { return strings.HasPrefix(name, HiddenRefs) })
	return at, nil
}

// looseRefs reads the refs that have files of their own, below a folder.
func looseRefs(on Disk, dir, folder string, into map[string]nip34.ObjectID) error {
	entries, err := list(on, filepath.Join(dir, filepath.FromSlash(folder)))
	if errors.Is(err, syscall.ENOTDIR) {
		return fmt.Errorf("%w: %s became a ref, or is below one", ErrAskGit, folder)
	}
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := path.Join(folder, e.Name())
		switch {
		case e.Name()[0] == '.' || strings.HasSuffix(name, ".lock"):
			continue // of a process that writes
		case e.IsDir():
			if err := looseRefs(on, dir, name, into); err != nil {
				return err
			}
			continue
		case !e.Type().IsRegular():
			return fmt.Errorf("%w: %s is no file", ErrAskGit, name)
		}
		text, err := on.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
		if errors.Is(err, fs.ErrNotExist) {
			continue // it was packed since
		}
		if errors.Is(err, syscall.EISDIR) || errors.Is(err, syscall.ENOTDIR) {
			return fmt.Errorf("%w: %s became a folder", ErrAskGit, name)
		}
		if err != nil {
			return err
		}
		if into[name], err = nip34.ParseObjectID(strings.TrimSuffix(string(text), "\n")); err != nil {
			return fmt.Errorf("%w: %s names no object", ErrAskGit, name)
		}
	}
	return nil
}

// Kind is what an object is, by git's numbers.
type Kind uint8

// The kinds, and what is no object by itself but says how another one becomes one.
const (
	Commit Kind = iota + 1
	Tree
	Blob
	Tag
	_
	offsetDelta // on an object before it in the pack
	idDelta     // on one of the same pack, by its id
)

// Kinds returns the kinds of those of ids that are in packs. The error wraps [ErrAskGit] if an object may be
// elsewhere, because the repository has loose objects, or if packs come or go meanwhile.
func (r *Reader) Kinds(ids []nip34.ObjectID) (map[nip34.ObjectID]Kind, error) {
	left := make(map[nip34.ObjectID]struct{}, len(ids))
	for _, id := range ids {
		if id.Format() == r.format {
			left[id] = struct{}{}
		}
	}
	packs, err := r.indexes()
	if err != nil {
		return nil, err
	}
	found := make(map[nip34.ObjectID]Kind, len(ids))
	for _, name := range packs {
		if len(left) == 0 {
			break
		}
		if err := r.findIn(strings.TrimSuffix(name, ".idx"), left, found); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
	}
	now, err := r.indexes()
	switch {
	case err != nil:
		return nil, err
	case !slices.Equal(now, packs):
		return nil, fmt.Errorf("%w: packs come and go", ErrAskGit)
	case len(left) == 0:
		return found, nil
	}
	folders, err := list(r.on, filepath.Join(r.dir, "objects"))
	for _, e := range folders {
		if len(e.Name()) == len("00") {
			return nil, fmt.Errorf("%w: loose objects", ErrAskGit)
		}
	}
	return found, err
}

// indexes returns the names of the indexes of packs, in order. Git finds a pack by its index.
func (r *Reader) indexes() (out []string, err error) {
	entries, err := list(r.on, filepath.Join(r.dir, "objects", "pack"))
	for _, e := range entries {
		if path.Ext(e.Name()) == ".idx" {
			out = append(out, e.Name())
		}
	}
	slices.Sort(out)
	return out, err
}

// findIn looks for objects in a pack.
func (r *Reader) findIn(base string, left map[nip34.ObjectID]struct{}, found map[nip34.ObjectID]Kind) error {
	at := filepath.Join(r.dir, "objects", "pack", base)
	p := pack{}
	defer p.close()
	var err error
	if p.index, err = OpenIndex(r.on, at+".idx", len(Null(r.format))/2); err != nil {
		return damaged(err)
	}
	for id := range left {
		raw, err := hex.DecodeString(id.String())
		if err != nil {
			return err
		}
		n, has, err := p.index.Find(raw)
		if err == nil && has {
			if p.file == nil {
				p.file, err = r.on.OpenFile(at+".pack", os.O_RDONLY, 0)
			}
			if err == nil {
				found[id], err = p.kind(n)
			}
		}
		if err != nil {
			delete(found, id)
			return damaged(fmt.Errorf("%s: %w", base, err))
		}
		if has {
			delete(left, id)
		}
	}
	return nil
}

// damaged has git say what is in a pack that is not one: but for what the disk does not give.
func damaged(err error) error {
	for _, reason := range []error{ErrIndex, errEntry, io.EOF, io.ErrUnexpectedEOF} {
		if errors.Is(err, reason) {
			return fmt.Errorf("%w: %w", ErrAskGit, err)
		}
	}
	return err
}

// Null is git's null id, as it is written.
func Null(format nip34.ObjectFormat) string {
	if format == nip34.SHA256 {
		return strings.Repeat("0", 64)
	}
	return strings.Repeat("0", 40)
}

// pack is a pack that is read.
type pack struct {
	index *Index
	file  *os.File
}

func (p *pack) close() {
	if p.index != nil {
		p.index.Close()
	}
	if p.file != nil {
		_ = p.file.Close() // it was only read
	}
}

// packHead is the length of the head of a pack.
const packHead = 12

// maxChain bounds how many deltas are followed from one to the next. Whoever pushed a pack has
// made them as long as they like.
const maxChain = 10_000

// entryHead is how much there is at most before what is packed of an object: its kind and size,
// and what it is a delta on.
const entryHead = 64

var errEntry = errors.New("not an object in a pack")

// kind returns what the n-th object of the index is.
func (p *pack) kind(n int) (Kind, error) {
	at, err := p.index.offset(n)
	if err != nil {
		return 0, err
	}
	for range maxChain {
		if at < packHead {
			return 0, errEntry
		}
		var head [entryHead]byte
		read, err := p.file.ReadAt(head[:], at)
		if err != nil && !errors.Is(err, io.EOF) {
			return 0, err
		}
		kind, rest := entry(head[:read]) // at the end of a pack there is less
		switch kind {
		case Commit, Tree, Blob, Tag:
			return kind, nil
		case offsetDelta:
			back, ok := distance(rest)
			if !ok || back <= 0 {
				return 0, errEntry
			}
			at -= back
		case idDelta:
			id := rest[:min(len(rest), p.index.idLen)]
			if len(id) < p.index.idLen {
				return 0, errEntry
			}
			n, has, err := p.index.Find(id)
			if err != nil || !has {
				return 0, errors.Join(errEntry, err)
			}
			if at, err = p.index.offset(n); err != nil {
				return 0, err
			}
		default:
			return 0, errEntry
		}
	}
	return 0, fmt.Errorf("%w: too many deltas", errEntry)
}

// entry reads the kind of an object in a pack and returns what follows its size; no kind if
// there is no such thing.
func entry(head []byte) (Kind, []byte) {
	for i, b := range head {
		if b < 0x80 { // the size ends
			return Kind(head[0] >> 4 & 7), head[i+1:]
		}
	}
	return 0, nil
}

// distance reads how far before a delta what it is on is.
func distance(b []byte) (back int64, ok bool) {
	for i, c := range b {
		if i > 0 {
			back++
		}
		if back > 1<<55 {
			return 0, false
		}
		back = back<<7 | int64(c&0x7f)
		if c < 0x80 {
			return back, true
		}
	}
	return 0, false
}
