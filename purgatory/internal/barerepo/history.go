package barerepo

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sort"
	"strings"

	"github.com/graspsync/graspsync/nip34"
)

// Small bounds the repositories whose histories are walked without git.
type Small struct {
	Packs    int64 // bytes, those of their indexes included: they are read into memory
	Unpacked int64 // bytes of commits, tags, folders, and of what these are deltas on
}

// Needed is an object that something needs: its id, and how many bytes it takes up in its pack.
type Needed struct {
	ID    string // in hex
	Bytes int64
}

// maxLinks bounds how many deltas are followed from one to the next; git makes 50.
const maxLinks = 100

// errUnusual is what a walk comes across that git is to judge.
var errUnusual = fmt.Errorf("%w: not a small history, or not a whole one", ErrAskGit)

// Needs returns the objects that can be reached from some and not from others, as git rev-list
// does: what the folders have of the commits at which it ends is left out, and not what was in
// older ones. (Where commits are dated before their parents git may leave out more.) It says nothing but of histories that are whole: the error wraps [ErrAskGit]
// where anything is missing, or is not as git writes it, has a file of its own, or is more than
// small allows. Packs in a folder beside, below the repository, are read as well; it may be
// empty. All of them were checked by git when they came.
func (r *Reader) Needs(beside string, from, but []nip34.ObjectID, small Small) ([]Needed, error) {
	h := &history{reader: r, left: small.Unpacked, idLen: len(Null(r.format)) / 2, without: make(map[string]bool), seen: make(map[string]bool), unpacked: make(map[place][]byte)}
	folders := []string{"objects/pack"}
	if beside != "" {
		folders = append(folders, path.Join(beside, "pack"))
	}
	room := small.Packs
	for _, folder := range folders {
		if err := h.load(folder, &room); err != nil {
			return nil, err
		}
	}
	return h.needs(from, but)
}

// history is one walk. Ids are raw bytes.
type history struct {
	reader *Reader
	idLen  int
	packs  []*loaded
	left   int64 // bytes that may still be unpacked
	// unpacked has what was: deltas are on what is read beside them.
	unpacked map[place][]byte

	inflater io.ReadCloser
	without  map[string]bool // what is not needed, or was found before
	seen     map[string]bool // commits at which it ends, and their ancestors
	out      []Needed
}

// loaded is a pack that is in memory.
type loaded struct {
	pack, index []byte
	n           int
	ends        []int64 // where objects begin, in order, and where the last ends
}

// load reads the packs of a folder.
func (h *history) load(folder string, room *int64) error {
	entries, err := h.reader.list(folder)
	if err != nil {
		return err
	}
	for _, name := range names(entries) {
		at := filepath.Join(h.reader.dir, filepath.FromSlash(folder), name)
		p := &loaded{}
		if p.index, err = h.reader.small(at, room); err != nil {
			return err
		}
		if p.pack, err = h.reader.small(strings.TrimSuffix(at, ".idx")+".pack", room); err != nil {
			return err
		}
		if err := p.check(h.idLen); err != nil {
			return err
		}
		h.packs = append(h.packs, p)
	}
	return nil
}

// small reads a file for which there is room.
func (r *Reader) small(at string, room *int64) (data []byte, err error) {
	file, err := r.on.OpenFile(at, os.O_RDONLY, 0)
	if errors.Is(err, os.ErrNotExist) { // packs come and go
		return nil, errUnusual
	}
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it was only read
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if *room -= info.Size(); *room < 0 || !info.Mode().IsRegular() {
		return nil, errUnusual
	}
	data = make([]byte, info.Size())
	if _, err = io.ReadFull(file, data); err != nil {
		return nil, damaged(err)
	}
	return data, nil
}

// check reports whether index and pack belong together, and are as long as they should be.
func (p *loaded) check(idLen int) error {
	if len(p.index) < IndexFanout+2*idLen || string(p.index[:len(IndexMark)]) != IndexMark || len(p.pack) < packHead+idLen {
		return errUnusual
	}
	p.n = int(binary.BigEndian.Uint32(p.index[IndexFanout-4:]))
	head := append([]byte("PACK\x00\x00\x00\x02"), p.index[IndexFanout-4:IndexFanout]...)
	hash := p.index[len(p.index)-2*idLen : len(p.index)-idLen]
	if len(p.index) != IndexFanout+p.n*(idLen+8)+2*idLen || !bytes.HasPrefix(p.pack, head) || !bytes.HasSuffix(p.pack, hash) {
		return errUnusual
	}
	p.ends = make([]int64, p.n, p.n+1)
	for i := range p.n {
		p.ends[i] = p.offset(i, idLen)
	}
	slices.Sort(p.ends)
	p.ends = append(p.ends, int64(len(p.pack)-idLen))
	if p.ends[0] < packHead || p.n > 0 && p.ends[p.n-1] >= p.ends[p.n] {
		return errUnusual
	}
	return nil
}

func (p *loaded) offset(i, idLen int) int64 {
	return int64(binary.BigEndian.Uint32(p.index[IndexFanout+p.n*(idLen+4)+4*i:])) // a small pack has no others
}

// find says where in the pack an object is.
func (p *loaded) find(id string) (at int64, found bool) {
	ids := func(i int) []byte { return p.index[IndexFanout+i*len(id):][:len(id)] }
	i := sort.Search(p.n, func(i int) bool { return string(ids(i)) >= id })
	if i == p.n || string(ids(i)) != id {
		return 0, false
	}
	return p.offset(i, len(id)), true
}

// packed is what lies in a pack from some place on to the next.
func (p *loaded) packed(at int64) ([]byte, error) {
	i, found := slices.BinarySearch(p.ends[:p.n], at)
	if !found {
		return nil, errUnusual
	}
	return p.pack[at:p.ends[i+1]], nil
}

// place is where an object is.
type place struct {
	in *loaded
	at int64
}

func (h *history) find(id string) (place, error) {
	for _, p := range h.packs {
		if at, found := p.find(id); found {
			return place{p, at}, nil
		}
	}
	return place{}, errUnusual
}

// chain follows deltas to what they are on: its kind, and where it and they are, the object that
// was asked for first.
func (h *history) chain(at place) (kind Kind, links []place, err error) {
	for range maxLinks {
		raw, err := at.in.packed(at.at)
		if err != nil {
			return 0, nil, err
		}
		links = append(links, at)
		kind, rest := entry(raw)
		switch kind {
		case Commit, Tree, Blob, Tag:
			return kind, links, nil
		case offsetDelta:
			back, ok := distance(rest)
			if !ok || back <= 0 {
				return 0, nil, errUnusual
			}
			at.at -= back
		case idDelta:
			if len(rest) < h.idLen {
				return 0, nil, errUnusual
			}
			base, found := at.in.find(string(rest[:h.idLen]))
			if !found {
				return 0, nil, errUnusual
			}
			at.at = base
		default:
			return 0, nil, errUnusual
		}
	}
	return 0, nil, errUnusual
}

// read unpacks an object, which must be of a kind.
func (h *history) read(id string, want Kind) ([]byte, error) {
	at, err := h.find(id)
	if err != nil {
		return nil, err
	}
	kind, links, err := h.chain(at)
	if err != nil {
		return nil, err
	}
	if kind != want {
		return nil, errUnusual
	}
	first := 0
	for first < len(links)-1 && h.unpacked[links[first]] == nil {
		first++
	}
	data := h.unpacked[links[first]]
	for i := first; i >= 0; i-- {
		if i == first && data != nil {
			continue
		}
		raw, err := links[i].in.packed(links[i].at)
		if err != nil {
			return nil, err
		}
		unpacked, err := h.inflate(raw)
		if err == nil && i < len(links)-1 {
			unpacked, err = h.patch(data, unpacked)
		}
		if err != nil {
			return nil, err
		}
		data = unpacked
		h.unpacked[links[i]] = data
	}
	return data, nil
}

// inflate unpacks what lies in a pack.
func (h *history) inflate(raw []byte) ([]byte, error) {
	kind, rest := entry(raw)
	size, ok := entrySize(raw)
	switch kind {
	case offsetDelta:
		rest = rest[slices.IndexFunc(rest, func(b byte) bool { return b < 0x80 })+1:] // distance has seen that there is one
	case idDelta:
		rest = rest[h.idLen:]
	}
	if h.left -= size; !ok || h.left < 0 {
		return nil, errUnusual
	}
	source := bytes.NewReader(rest)
	var err error
	if h.inflater == nil {
		h.inflater, err = zlib.NewReader(source)
	} else {
		err = h.inflater.(zlib.Resetter).Reset(source, nil)
	}
	if err != nil {
		return nil, errUnusual
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(h.inflater, data); err != nil {
		return nil, errUnusual
	}
	if n, err := h.inflater.Read(make([]byte, 1)); n > 0 || !errors.Is(err, io.EOF) { // its checksum is read with the end
		return nil, errUnusual
	}
	return data, nil
}

// entrySize is how large something in a pack is when it is unpacked.
func entrySize(raw []byte) (size int64, ok bool) {
	if len(raw) == 0 {
		return 0, false
	}
	size = int64(raw[0] & 15)
	for i, shift := 0, 4; raw[i] >= 0x80; shift += 7 {
		if i++; i == len(raw) || shift > 32 {
			return 0, false
		}
		size |= int64(raw[i]&0x7f) << shift
	}
	return size, true
}

// patch applies a delta.
func (h *history) patch(base, delta []byte) ([]byte, error) {
	from, n := binary.Uvarint(delta) // in pieces of 7 bits, the lowest first, as git has it
	if n <= 0 || from != uint64(len(base)) {
		return nil, errUnusual
	}
	delta = delta[n:]
	size, n := binary.Uvarint(delta)
	if n <= 0 || size > uint64(h.left) {
		return nil, errUnusual
	}
	delta = delta[n:]
	h.left -= int64(size)
	out := make([]byte, 0, size)
	for len(delta) > 0 {
		op := delta[0]
		delta = delta[1:]
		var piece []byte
		if op < 0x80 { // what follows is new
			if op == 0 || int(op) > len(delta) {
				return nil, errUnusual
			}
			piece, delta = delta[:op], delta[op:]
		} else { // a part of the base: four bytes of where, three of how much, zeros left out
			var args [7]byte
			for i := range args {
				if op&(1<<i) != 0 {
					if len(delta) == 0 {
						return nil, errUnusual
					}
					args[i], delta = delta[0], delta[1:]
				}
			}
			at := int64(binary.LittleEndian.Uint32(args[:]))
			long := int64(args[4]) | int64(args[5])<<8 | int64(args[6])<<16
			if long == 0 {
				long = 0x10000
			}
			if at+long > int64(len(base)) {
				return nil, errUnusual
			}
			piece = base[at : at+long]
		}
		if len(out)+len(piece) > int(size) {
			return nil, errUnusual
		}
		out = append(out, piece...)
	}
	if len(out) != int(size) {
		return nil, errUnusual
	}
	return out, nil
}

// needs walks. First all commits, so that it is known where it ends; then folders.
func (h *history) needs(from, but []nip34.ObjectID) ([]Needed, error) {
	end, err := h.named(but, func(id string) error { h.without[id] = true; return nil })
	if err != nil {
		return nil, err
	}
	if err := h.each(end, h.seen, func(string, commit) error { return nil }); err != nil {
		return nil, err
	}
	begin, err := h.named(from, h.take)
	if err != nil {
		return nil, err
	}
	begin = slices.DeleteFunc(begin, func(id string) bool { return h.seen[id] })
	var all []commit
	err = h.each(begin, make(map[string]bool), func(id string, c commit) error {
		all = append(all, c)
		return h.take(id)
	})
	if err != nil {
		return nil, err
	}
	for _, c := range all { // where it ends
		for _, parent := range c.parents {
			if !h.seen[parent] {
				continue
			}
			at, err := h.commit(parent)
			if err == nil {
				err = h.folders(at.tree, func(id string) error { h.without[id] = true; return nil })
			}
			if err != nil {
				return nil, err
			}
		}
	}
	for _, c := range all {
		if err := h.folders(c.tree, h.take); err != nil {
			return nil, err
		}
	}
	return h.out, nil
}

// take notes an object that is needed.
func (h *history) take(id string) error {
	if h.without[id] {
		return nil
	}
	h.without[id] = true
	at, err := h.find(id)
	if err != nil {
		return err
	}
	raw, err := at.in.packed(at.at)
	if err != nil {
		return err
	}
	h.out = append(h.out, Needed{ID: hex.EncodeToString([]byte(id)), Bytes: int64(len(raw))})
	return nil
}

// named returns the commits that ids are of, or tags are of that they name, and calls found for
// tags. What is neither is for git: nobody has that, or nearly.
func (h *history) named(ids []nip34.ObjectID, found func(id string) error) (commits []string, err error) {
	for _, named := range ids {
		raw, err := hex.DecodeString(named.String())
		if err != nil || len(raw) != h.idLen {
			return nil, errUnusual
		}
		id := string(raw)
		for range maxLinks {
			at, err := h.find(id)
			if err != nil {
				return nil, err
			}
			kind, _, err := h.chain(at)
			if err != nil {
				return nil, err
			}
			if kind == Commit {
				commits = append(commits, id)
				break
			}
			if kind != Tag {
				return nil, errUnusual
			}
			if err := found(id); err != nil {
				return nil, err
			}
			if id, err = h.target(id); err != nil {
				return nil, err
			}
		}
	}
	return commits, nil
}

// target is what a tag is of.
func (h *history) target(tag string) (id string, err error) {
	data, err := h.read(tag, Tag)
	if err != nil {
		return "", err
	}
	id, _, err = h.header(data, "object ")
	return id, err
}

// header reads a line of a commit or tag that names an object.
func (h *history) header(data []byte, name string) (id string, rest []byte, err error) {
	line, rest, ok := bytes.Cut(data, []byte{'\n'})
	text, named := bytes.CutPrefix(line, []byte(name))
	raw := make([]byte, h.idLen)
	if !ok || !named || len(text) != 2*h.idLen {
		return "", nil, errUnusual
	}
	if _, err := hex.Decode(raw, text); err != nil {
		return "", nil, errUnusual
	}
	return string(raw), rest, nil
}

// commit is what one needs.
type commit struct {
	tree    string
	parents []string
}

func (h *history) commit(id string) (c commit, err error) {
	data, err := h.read(id, Commit)
	if err != nil {
		return c, err
	}
	c.tree, data, err = h.header(data, "tree ")
	for err == nil && bytes.HasPrefix(data, []byte("parent ")) {
		var parent string
		parent, data, err = h.header(data, "parent ")
		c.parents = append(c.parents, parent)
	}
	return c, err
}

// each calls do for commits and their ancestors that are not among those at which it ends, once.
func (h *history) each(commits []string, seen map[string]bool, do func(id string, c commit) error) error {
	for todo := slices.Clone(commits); len(todo) > 0; {
		id := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if seen[id] {
			continue
		}
		seen[id] = true
		c, err := h.commit(id)
		if err == nil {
			err = do(id, c)
		}
		if err != nil {
			return err
		}
		for _, parent := range c.parents {
			if !seen[parent] && !h.seen[parent] {
				todo = append(todo, parent)
			}
		}
	}
	return nil
}

// What a folder has, by its mode.
const (
	modeKind   = 0o170000
	modeFile   = 0o100000
	modeLink   = 0o120000
	modeFolder = 0o040000
	modeModule = 0o160000 // a commit of another repository
)

// folders calls do for a folder and all that is in it, but what do has been called for, or need
// not be.
func (h *history) folders(root string, do func(id string) error) error {
	for todo := []string{root}; len(todo) > 0; {
		id := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if h.without[id] {
			continue
		}
		data, err := h.read(id, Tree)
		if err != nil {
			return err
		}
		if err := do(id); err != nil {
			return err
		}
		for len(data) > 0 {
			zero := bytes.IndexByte(data, 0)
			text, _, ok := bytes.Cut(data[:max(0, zero)], []byte{' '})
			if !ok || len(data) < zero+1+h.idLen {
				return errUnusual
			}
			mode := 0
			for _, digit := range text {
				if digit < '0' || digit > '7' || len(text) > len("0100644") {
					return errUnusual
				}
				mode = mode<<3 | int(digit-'0')
			}
			entry := string(data[zero+1 : zero+1+h.idLen])
			data = data[zero+1+h.idLen:]
			switch {
			case mode&modeKind == modeModule:
			case h.without[entry]:
			case mode&modeKind == modeFolder:
				todo = append(todo, entry)
			case mode&modeKind == modeFile || mode&modeKind == modeLink:
				if err := h.file(entry, do); err != nil {
					return err
				}
			default:
				return errUnusual
			}
		}
	}
	return nil
}

// file calls do for what must be a file.
func (h *history) file(id string, do func(id string) error) error {
	at, err := h.find(id)
	if err != nil {
		return err
	}
	kind, _, err := h.chain(at)
	if err != nil {
		return err
	}
	if kind != Blob {
		return errUnusual
	}
	return do(id)
}
