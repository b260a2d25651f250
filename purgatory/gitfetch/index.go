package gitfetch

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// indexFile is the index of a pack of ours, read where it lies: those of large
// repositories do not fit into memory several times.
type indexFile struct {
	file  *os.File
	idLen int
	fan   [256]uint32 // how many ids begin with each byte or one below it
}

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

// has looks for an id, as bytes.
func (x *indexFile) has(id []byte) (bool, error) {
	lo, hi := 0, int(x.fan[id[0]])
	if id[0] > 0 {
		lo = int(x.fan[id[0]-1])
	}
	at := make([]byte, x.idLen)
	for lo < hi {
		mid := lo + (hi-lo)/2
		if _, err := x.file.ReadAt(at, int64(indexFanout)+int64(mid)*int64(x.idLen)); err != nil {
			return false, err
		}
		switch c := bytes.Compare(at, id); {
		case c == 0:
			return true, nil
		case c < 0:
			lo = mid + 1
		default:
			hi = mid
		}
	}
	return false, nil
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
