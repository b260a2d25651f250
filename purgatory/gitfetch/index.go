package gitfetch

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"slices"
	"sort"

	"github.com/graspsync/graspsync/purgatory/internal/barerepo"
)

// packIndex has the ids of the objects of a pack, sorted, one after the other.
type packIndex struct {
	ids   []byte
	idLen int
}

// readIndex reads the index of a pack. It keeps data.
func readIndex(data []byte, idLen int) (packIndex, error) {
	if len(data) < barerepo.IndexFanout || string(data[:len(barerepo.IndexMark)]) != barerepo.IndexMark {
		return packIndex{}, barerepo.ErrIndex
	}
	n := int64(binary.BigEndian.Uint32(data[barerepo.IndexFanout-4:]))
	data = data[barerepo.IndexFanout:]
	if n > int64(len(data)/idLen) {
		return packIndex{}, barerepo.ErrIndex
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
