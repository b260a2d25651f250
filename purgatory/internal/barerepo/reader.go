package barerepo

import (
	"bytes"
	"compress/zlib"
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

// Refs returns all refs but [HiddenRefs]. Nobody may change them meanwhile, but they may be packed: files are
// read before that into which they go.
func (r *Reader) Refs() (map[string]nip34.ObjectID, error) {
	loose := make(map[string]nip34.ObjectID)
	if err := r.looseRefs("refs", loose); err != nil {
		return nil, err
	}
	at, err := packedRefs(r.on, r.dir)
	if err != nil {
		return nil, err
	}
	maps.Copy(at, loose)
	maps.DeleteFunc(at, func(name string, _ nip34.ObjectID) bool { return strings.HasPrefix(name, HiddenRefs) })
	for name, id := range at {
		if id.Format() != r.format || strings.Trim(id.String(), "0") == "" {
			return nil, fmt.Errorf("%w: %s is no object", ErrAskGit, name)
		}
	}
	return at, nil
}

// looseRefs reads the refs that have files of their own, below a folder.
func (r *Reader) looseRefs(folder string, into map[string]nip34.ObjectID) error {
	entries, err := r.list(folder)
	if err != nil {
		return err
	}
	for _, e := range entries {
		name := path.Join(folder, e.Name())
		switch {
		case e.Name()[0] == '.' || strings.HasSuffix(name, ".lock"):
			continue // of somebody who writes
		case e.IsDir():
			if err := r.looseRefs(name, into); err != nil {
				return err
			}
			continue
		case !e.Type().IsRegular():
			return fmt.Errorf("%w: %s is no file", ErrAskGit, name)
		}
		text, err := r.on.ReadFile(filepath.Join(r.dir, filepath.FromSlash(name)))
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

// list lists a folder; one that is not there has nothing in it.
func (r *Reader) list(folder string) ([]fs.DirEntry, error) {
	file, err := r.on.OpenFile(filepath.Join(r.dir, filepath.FromSlash(folder)), os.O_RDONLY, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case errors.Is(err, syscall.ENOTDIR): // a folder above it became a ref
		return nil, fmt.Errorf("%w: %s is below a ref", ErrAskGit, folder)
	case err != nil:
		return nil, err
	}
	entries, err := file.ReadDir(-1)
	closed := file.Close()
	switch {
	case errors.Is(err, fs.ErrNotExist): // it went meanwhile: its last ref was packed, or deleted
		return nil, closed
	case errors.Is(err, syscall.ENOTDIR):
		return nil, fmt.Errorf("%w: %s became a ref", ErrAskGit, folder)
	}
	return entries, errors.Join(err, closed)
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

var kindNames = map[string]Kind{"commit": Commit, "tree": Tree, "blob": Blob, "tag": Tag}

// kindsTries is how often it is looked for objects while packs come and go.
const kindsTries = 5

// Kinds returns what those of ids are that are there. Packs may come and go meanwhile: what is
// in one of them all the time is found.
func (r *Reader) Kinds(ids []nip34.ObjectID) (map[nip34.ObjectID]Kind, error) {
	packs, err := r.list("objects/pack")
	for range kindsTries {
		if err != nil {
			return nil, err
		}
		found := make(map[nip34.ObjectID]Kind, len(ids))
		if err := r.find(packs, ids, found); err != nil {
			return nil, err
		}
		var now []fs.DirEntry
		if now, err = r.list("objects/pack"); err == nil && slices.Equal(names(now), names(packs)) {
			return found, nil
		}
		packs = now
	}
	return nil, fmt.Errorf("%w: packs come and go", ErrAskGit)
}

// names are those that matter, in order: a pack is there when its index is.
func names(packs []fs.DirEntry) (out []string) {
	for _, e := range packs {
		if path.Ext(e.Name()) == ".idx" {
			out = append(out, e.Name())
		}
	}
	slices.Sort(out)
	return out
}

// find looks for objects in packs, and then for those that have a file of their own.
func (r *Reader) find(packs []fs.DirEntry, ids []nip34.ObjectID, found map[nip34.ObjectID]Kind) error {
	left := make(map[nip34.ObjectID]struct{}, len(ids))
	for _, id := range ids {
		if id.Format() == r.format {
			left[id] = struct{}{}
		}
	}
	for _, name := range names(packs) {
		if len(left) == 0 {
			return nil
		}
		if err := r.findIn(strings.TrimSuffix(name, ".idx"), left, found); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	loose, err := r.loose(left)
	if err != nil {
		return err
	}
	for _, id := range loose {
		kind, err := r.looseKind(id)
		if err != nil {
			return err
		}
		if kind != 0 {
			found[id] = kind
			delete(left, id)
		}
	}
	if len(left) > 0 && slices.ContainsFunc(packs, func(e fs.DirEntry) bool { return e.Name() == "multi-pack-index" }) {
		return fmt.Errorf("%w: an index of many packs", ErrAskGit) // packs need none of their own then
	}
	return nil
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
				err = p.open(r.on, at+".pack")
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
	for _, reason := range []error{ErrIndex, errPack, errEntry, io.EOF, io.ErrUnexpectedEOF} {
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

// looseAtOnce is how many objects are looked for one by one: there are no more folders of them.
const looseAtOnce = 256

// loose returns those of some objects that may be loose. Of very many, of which most are not
// there, the folders are listed.
func (r *Reader) loose(some map[nip34.ObjectID]struct{}) ([]nip34.ObjectID, error) {
	if len(some) <= looseAtOnce {
		return slices.Collect(maps.Keys(some)), nil
	}
	by := make(map[string]map[string]nip34.ObjectID)
	for id := range some {
		hex := id.String()
		if by[hex[:2]] == nil {
			by[hex[:2]] = make(map[string]nip34.ObjectID)
		}
		by[hex[:2]][hex[2:]] = id
	}
	var out []nip34.ObjectID
	for folder, ids := range by {
		entries, err := r.list("objects/" + folder)
		if err != nil {
			return nil, err
		}
		for _, e := range entries {
			if id, is := ids[e.Name()]; is {
				out = append(out, id)
			}
		}
	}
	return out, nil
}

// looseKind returns what an object is that has a file of its own; 0 if there is none.
func (r *Reader) looseKind(id nip34.ObjectID) (Kind, error) {
	hex := id.String()
	file, err := r.on.OpenFile(filepath.Join(r.dir, "objects", hex[:2], hex[2:]), os.O_RDONLY, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	defer func() { _ = file.Close() }() // it was only read
	var head [maxKindName]byte
	unpacked, err := zlib.NewReader(file)
	n := 0
	if err == nil {
		n, err = io.ReadFull(unpacked, head[:])
	}
	if errors.Is(err, io.ErrUnexpectedEOF) && n > 0 { // a small object
		err = nil
	}
	name, _, ok := bytes.Cut(head[:n], []byte{' '})
	kind := kindNames[string(name)]
	if err != nil || !ok || kind == 0 {
		return 0, fmt.Errorf("%w: %s can't be read: %w", ErrAskGit, id, err)
	}
	return kind, nil
}

// maxKindName is the longest name of a kind, and a space.
const maxKindName = len("commit ")

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

// packHead is how long what is before the objects of a pack is: its name, its version and how
// many there are.
const packHead = 12

var errPack = errors.New("not the pack of this index")

// open opens the pack, which must be the one that the index is of.
func (p *pack) open(on Disk, path string) error {
	file, err := on.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	p.file = file
	var head [packHead]byte
	if _, err := file.ReadAt(head[:], 0); err != nil {
		return err
	}
	n := p.index.Len()
	if string(head[:8]) != "PACK\x00\x00\x00\x02" || !bytes.Equal(head[8:], []byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}) {
		return errPack
	}
	want, err := p.index.packHash()
	if err != nil {
		return err
	}
	info, err := file.Stat()
	if err != nil {
		return err
	}
	has := make([]byte, len(want))
	if _, err = file.ReadAt(has, max(0, info.Size()-int64(len(has)))); err == nil && !bytes.Equal(has, want) {
		err = errPack
	}
	return err
}

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
