package barerepo

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
)

// Index is an open index of a pack. It reads from the file, because indexes may be large. It is not
// safe for concurrent use.
type Index struct {
	file  *os.File
	idLen int
	fan   [256]uint32 // numbers of ids whose first byte is at most i
	near  []byte      // read buffer of Has
}

// The header of a pack index, version 2: signature, version, and 256 cumulative counts of ids by
// first byte (gitformat-pack).
const (
	IndexMark   = "\xfftOc\x00\x00\x00\x02"
	IndexFanout = len(IndexMark) + 256*4
)

// ErrIndex reports an invalid pack index.
var ErrIndex = errors.New("not the index of a pack")

// NearIDs is the number of ids per read.
const NearIDs = 128

// OpenIndex opens a pack index, version 2.
func OpenIndex(on Disk, path string, idLen int) (*Index, error) {
	file, err := on.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	x := &Index{file: file, idLen: idLen, near: make([]byte, NearIDs*idLen)}
	head := make([]byte, IndexFanout)
	if _, err = io.ReadFull(file, head); err == nil && string(head[:len(IndexMark)]) != IndexMark {
		err = ErrIndex
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", path, err), file.Close())
	}
	for i := range x.fan {
		x.fan[i] = binary.BigEndian.Uint32(head[len(IndexMark)+4*i:])
	}
	return x, nil
}

// Close closes the file.
func (x *Index) Close() { _ = x.file.Close() } // read only

// Len returns the number of ids.
func (x *Index) Len() int { return int(x.fan[255]) }

// Has reports whether the index contains an id in hex. It begins at the expected position, and
// bisects, because a pusher can choose unevenly distributed ids.
func (x *Index) Has(hexID []byte) (bool, error) {
	var buf [32]byte
	n, err := hex.Decode(buf[:], hexID[:min(len(hexID), 2*len(buf))])
	if err != nil || n != x.idLen {
		return false, err
	}
	id := buf[:n]
	lo, hi := 0, int(x.fan[id[0]])
	if id[0] > 0 {
		lo = int(x.fan[id[0]-1])
	}
	guess := lo + int(uint64(max(0, hi-lo))*uint64(binary.BigEndian.Uint32(id[1:]))>>32)
	for lo < hi {
		n := min(NearIDs, hi-lo)
		from := min(max(lo, guess-n/2), hi-n)
		near := x.near[:n*x.idLen]
		if _, err := x.file.ReadAt(near, int64(IndexFanout)+int64(from)*int64(x.idLen)); err != nil {
			return false, err
		}
		at := func(i int) []byte { return near[i*x.idLen : (i+1)*x.idLen] }
		switch {
		case bytes.Compare(id, at(0)) < 0:
			hi = from
		case bytes.Compare(id, at(n-1)) > 0:
			lo = from + n
		default:
			return bytes.Equal(at(sort.Search(n, func(i int) bool { return bytes.Compare(at(i), id) >= 0 })), id), nil
		}
		guess = lo + (hi-lo)/2
	}
	return false, nil
}
