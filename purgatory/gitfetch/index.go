package gitfetch

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sort"
)

// indexFile is the index of a pack of ours, read where it lies: those of large
// repositories do not fit into memory several times. It is for one goroutine.
type indexFile struct {
	file  *os.File
	idLen int
	fan   [256]uint32 // how many ids begin with each byte or one below it
	near  []byte      // ids that has reads at once
}

// nearIDs is how many ids are read at once by who looks for one: that is where it lies, as
// hashes are spread evenly, give or take, among a million in a pack.
const nearIDs = 128

// openIndex opens the index of a pack, version 2.
func openIndex(on files, path string, idLen int) (*indexFile, error) {
	file, err := on.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	x := &indexFile{file: file, idLen: idLen}
	head := make([]byte, indexFanout)
	if _, err = io.ReadFull(file, head); err == nil && string(head[:len(indexMark)]) != indexMark {
		err = errIndex
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), file.Close())
	}
	for i := range x.fan {
		x.fan[i] = binary.BigEndian.Uint32(head[len(indexMark)+4*i:])
	}
	return x, nil
}

func (x *indexFile) close() { _ = x.file.Close() } // it was only read

func (x *indexFile) len() int { return int(x.fan[255]) }

// has looks for an id, as bytes. It begins where the id should be; where they are not
// spread evenly, which somebody may have seen to, it halves what is left.
func (x *indexFile) has(id []byte) (bool, error) {
	lo, hi := 0, int(x.fan[id[0]])
	if id[0] > 0 {
		lo = int(x.fan[id[0]-1])
	}
	guess := lo + int(uint64(max(0, hi-lo))*uint64(binary.BigEndian.Uint32(id[1:]))>>32)
	for lo < hi {
		n := min(nearIDs, hi-lo)
		from := min(max(lo, guess-n/2), hi-n)
		if x.near == nil {
			x.near = make([]byte, nearIDs*x.idLen)
		}
		near := x.near[:n*x.idLen]
		if _, err := x.file.ReadAt(near, int64(indexFanout)+int64(from)*int64(x.idLen)); err != nil {
			return false, err
		}
		at := func(i int) []byte { return near[i*x.idLen : (i+1)*x.idLen] }
		switch {
		case bytes.Compare(id, at(0)) < 0:
			hi = from
		case bytes.Compare(id, at(n-1)) > 0:
			lo = from + n
		default:
			i := sort.Search(n, func(i int) bool { return bytes.Compare(at(i), id) >= 0 })
			return bytes.Equal(at(i), id), nil
		}
		guess = lo + (hi-lo)/2
	}
	return false, nil
}

// openIndexes opens the indexes of packs in a folder; close is to be called in any case.
func openIndexes(on files, folder string, bases []string, idLen int) (indexes []*indexFile, closeAll func(), err error) {
	var open []*indexFile
	closeAll = func() {
		for _, x := range open {
			x.close()
		}
	}
	for _, base := range bases {
		x, err := openIndex(on, filepath.Join(folder, base+".idx"), idLen)
		if err != nil {
			return nil, closeAll, err
		}
		open = append(open, x)
	}
	return open, closeAll, nil
}

// ids reads the ids in order.
func (x *indexFile) ids() io.Reader {
	return bufio.NewReaderSize(io.NewSectionReader(x.file, int64(indexFanout), int64(x.len())*int64(x.idLen)), 64<<10)
}

// covers reports whether all of another index is in this one. Both are in order, so that
// each is read once.
func (x *indexFile) covers(other *indexFile) (bool, error) {
	mine, theirs := x.ids(), other.ids()
	id, want := make([]byte, x.idLen), make([]byte, x.idLen)
	left := x.len()
	for range other.len() {
		if _, err := io.ReadFull(theirs, want); err != nil {
			return false, err
		}
		for {
			c := bytes.Compare(id, want)
			if c == 0 {
				break
			}
			if c > 0 || left == 0 {
				return false, nil
			}
			left--
			if _, err := io.ReadFull(mine, id); err != nil {
				return false, err
			}
		}
	}
	return true, nil
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
