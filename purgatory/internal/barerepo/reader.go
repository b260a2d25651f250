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

// ErrAskGit reports that only git can read a repository, because of its configuration or damage.
var ErrAskGit = errors.New("only git can read this")

// Reader reads a repository without running git, about 100 times faster. It is safe for concurrent
// use.
type Reader struct {
	on     Disk
	dir    string
	format nip34.ObjectFormat
}

// configs are the contents of config files. All other settings are arguments of git.
var configs = map[nip34.ObjectFormat]string{
	nip34.SHA1: "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = true\n",
	nip34.SHA256: "[core]\n\trepositoryformatversion = 1\n\tfilemode = true\n\tbare = true\n" +
		"[extensions]\n\tobjectformat = sha256\n",
}

// Config returns the content of the config file for an object format.
func Config(format nip34.ObjectFormat) string { return configs[format] }

// Read returns a Reader for a repository. The error wraps [ErrAskGit] if the config file was
// changed, or if the repository uses alternates, is shallow, or is a linked work tree.
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

// Format returns the object format of the repository.
func (r *Reader) Format() nip34.ObjectFormat { return r.format }

// Refs returns all refs except [HiddenRefs]. The error wraps [ErrAskGit] if a ref does not contain
// an object id of the repository's format.
func (r *Reader) Refs() (map[string]nip34.ObjectID, error) {
	at, err := AllRefs(r.on, r.dir)
	for name, id := range at {
		if id.Format() != r.format || strings.Trim(id.String(), "0") == "" {
			return nil, fmt.Errorf("%w: %s is no object", ErrAskGit, name)
		}
	}
	return at, err
}

// AllRefs returns all refs except [HiddenRefs], with any config file. Refs must not change
// concurrently. They may be packed, because AllRefs reads loose refs before packed-refs. The error
// wraps [ErrAskGit] if a ref does not contain an object id.
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
			continue // temporary file of a writing process
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
			continue // packed concurrently
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

// Kind is the type of an object, with git's numbers.
type Kind uint8

// Object types, and delta types of pack entries.
const (
	Commit Kind = iota + 1
	Tree
	Blob
	Tag
	_
	offsetDelta // base is at an earlier offset in the pack
	idDelta     // base is in the pack, named by id
)

// Kinds returns the kinds of ids that packs contain. The error wraps [ErrAskGit] if an object may
// be elsewhere because loose objects exist, or if packs change concurrently.
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
		return nil, fmt.Errorf("%w: packs changed", ErrAskGit)
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

// indexes returns the sorted names of pack indexes. Git finds a pack by its index.
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

// damaged wraps ErrAskGit around errors about damaged packs. It returns I/O errors unchanged.
func damaged(err error) error {
	for _, reason := range []error{ErrIndex, errEntry, io.EOF, io.ErrUnexpectedEOF} {
		if errors.Is(err, reason) {
			return fmt.Errorf("%w: %w", ErrAskGit, err)
		}
	}
	return err
}

// Null returns git's null id.
func Null(format nip34.ObjectFormat) string {
	if format == nip34.SHA256 {
		return strings.Repeat("0", 64)
	}
	return strings.Repeat("0", 40)
}

type pack struct {
	index *Index
	file  *os.File
}

func (p *pack) close() {
	if p.index != nil {
		p.index.Close()
	}
	if p.file != nil {
		_ = p.file.Close() // read only
	}
}

const packHead = 12

// maxChain is the maximum number of deltas that kind follows. A pusher can create chains of any
// length.
const maxChain = 10_000

// entryHead is the maximum length of the header of a pack entry: kind, size and delta base.
const entryHead = 64

var errEntry = errors.New("not an object in a pack")

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
		kind, rest := entry(head[:read]) // shorter at the end of the pack
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

// entry returns the kind of a pack entry and the bytes after its size, or 0 if the header is
// invalid.
func entry(head []byte) (Kind, []byte) {
	for i, b := range head {
		if b < 0x80 { // last byte of the size
			return Kind(head[0] >> 4 & 7), head[i+1:]
		}
	}
	return 0, nil
}

// distance parses the distance from a delta to its base.
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
