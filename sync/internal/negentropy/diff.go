package negentropy

import (
	"bytes"
	"encoding/binary"
)

// compare compares the peer's complete list for a range with our items [lo, hi).
func (s *Session) compare(theirs []byte, lo, hi int) error {
	if hi-lo <= 64 {
		return s.compareFew(theirs, lo, hi)
	}
	// The size depends on the list of the peer, not on ours.
	listed := make(map[[idSize]byte]bool, len(theirs)/idSize)
	for p := theirs; len(p) > 0; p = p[idSize:] {
		listed[[idSize]byte(p)] = false
	}
	for i := lo; i < hi; i++ {
		if _, ok := listed[s.set.ids[i]]; ok {
			listed[s.set.ids[i]] = true
		} else {
			s.have.add(i)
		}
	}
	for p := theirs; len(p) > 0; p = p[idSize:] {
		if id := [idSize]byte(p); !listed[id] {
			if err := s.need.add(id); err != nil {
				return err
			}
		}
	}
	return nil
}

// compareFew searches our ids from the last match on. Both lists usually have the same order, so
// the next id nearly always matches.
func (s *Session) compareFew(theirs []byte, lo, hi int) error {
	ours := s.set.ids[lo:hi]
	var found uint64
	for next := 0; len(theirs) > 0; theirs = theirs[idSize:] {
		id := theirs[:idSize]
		i := indexFrom(ours, next, id)
		if i < 0 {
			if err := s.need.add([idSize]byte(id)); err != nil {
				return err
			}
			continue
		}
		found |= 1 << i
		next = i + 1
	}
	for i := range ours {
		if found&(1<<i) == 0 {
			s.have.add(lo + i)
		}
	}
	return nil
}

// indexFrom returns the index of id, searching from start to the end and then from the beginning,
// or -1.
func indexFrom(ids [][idSize]byte, start int, id []byte) int {
	head := binary.NativeEndian.Uint64(id)
	for k := range ids {
		i := start + k
		if i >= len(ids) {
			i -= len(ids)
		}
		if binary.NativeEndian.Uint64(ids[i][:]) == head && bytes.Equal(ids[i][:], id) {
			return i
		}
	}
	return -1
}
