package negentropy

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"math"
	"math/bits"
	"slices"
	"sort"
)

// infinity is the timestamp that the protocol reserves for the end of the last range.
const infinity = math.MaxUint64

// stride is the number of ids between two stored sums. Adding them costs less than a SHA-256.
const stride = 8

// Item is one element of a set, an event's id and created_at in seconds. Peers built with go-nostr
// panic from 2^56 on, so omit items with times that no honest event has.
type Item struct {
	CreatedAt uint64
	ID        [32]byte
}

func (it Item) compare(other Item) int {
	if c := cmp.Compare(it.CreatedAt, other.CreatedAt); c != 0 {
		return c
	}
	return bytes.Compare(it.ID[:], other.ID[:])
}

// Set is an immutable, ordered set of items. It is safe for concurrent use and takes about 44 bytes
// per item.
type Set struct {
	times []uint64
	ids   [][32]byte
	sums  []sum // sums[k] is the sum of ids[:k*stride]
}

// NewSet returns the set of items, without duplicates. Items with the timestamp 2^64-1 are omitted.
// Sorted items take a fraction of the time.
func NewSet(items []Item) *Set {
	s := &Set{
		times: make([]uint64, 0, len(items)), ids: make([][32]byte, 0, len(items)), sums: make([]sum, 1, len(items)/stride+1),
	}
	if !slices.IsSortedFunc(items, Item.compare) {
		items = slices.SortedFunc(slices.Values(items), Item.compare)
	}
	for i := range items {
		s.append(items[i].CreatedAt, &items[i].ID)
	}
	return s
}

func (s *Set) append(at uint64, id *[32]byte) {
	n := len(s.ids)
	if at == infinity || (n > 0 && s.times[n-1] == at && s.ids[n-1] == *id) {
		return
	}
	s.times = append(s.times, at)
	s.ids = append(s.ids, *id)
	if n++; n%stride == 0 {
		total := s.sums[len(s.sums)-1]
		for i := n - stride; i < n; i++ {
			total.add(&s.ids[i])
		}
		s.sums = append(s.sums, total)
	}
}

// Len returns the number of items.
func (s *Set) Len() int { return len(s.ids) }

// search returns the first index in [from, Len] whose item is not below b.
func (s *Set) search(from int, b *bound) int {
	if b.time == infinity {
		return s.Len()
	}
	return from + sort.Search(s.Len()-from, func(i int) bool { return !s.below(from+i, b) })
}

func (s *Set) below(i int, b *bound) bool {
	if s.times[i] != b.time {
		return s.times[i] < b.time
	}
	return bytes.Compare(s.ids[i][:], b.id[:]) < 0
}

// boundAt returns the shortest bound that separates item i from item i-1.
func (s *Set) boundAt(i int) bound {
	b := bound{time: s.times[i]}
	if s.times[i-1] != s.times[i] {
		return b
	}
	prev, cur := &s.ids[i-1], &s.ids[i]
	for b.size < 32 {
		k := b.size
		b.id[k] = cur[k]
		b.size++
		if prev[k] != cur[k] {
			break
		}
	}
	return b
}

func (s *Set) fingerprint(lo, hi int) (fp [fingerprintSize]byte) {
	total, before := s.sumTo(hi), s.sumTo(lo)
	total.sub(&before)

	var buf [32 + maxVarint]byte
	for i, word := range total {
		binary.LittleEndian.PutUint64(buf[8*i:], word)
	}
	digest := sha256.Sum256(appendVarint(buf[:32], uint64(hi-lo)))
	copy(fp[:], digest[:])
	return fp
}

func (s *Set) sumTo(n int) sum {
	total := s.sums[n/stride]
	for i := n - n%stride; i < n; i++ {
		total.add(&s.ids[i])
	}
	return total
}

// sum is a number modulo 2^256, least significant word first.
type sum [4]uint64

func (a *sum) add(id *[32]byte) {
	var carry uint64
	for i := range a {
		a[i], carry = bits.Add64(a[i], binary.LittleEndian.Uint64(id[8*i:]), carry)
	}
}

func (a *sum) sub(b *sum) {
	var borrow uint64
	for i := range a {
		a[i], borrow = bits.Sub64(a[i], b[i], borrow)
	}
}
