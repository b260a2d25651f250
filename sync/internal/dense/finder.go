package dense

import (
	"hash/maphash"

	"github.com/graspsync/graspsync"
)

// Finder maps ids to numbers. The caller stores the ids and must not change the id of a number in
// the Finder. Make one with [NewFinder].
//
// It is a hash table with chains that grows by one chain at a time (linear hashing). The hash has a
// secret seed because strangers choose the ids.
type Finder struct {
	id    func(number uint32) *graspsync.EventID
	seed  maphash.Seed
	heads Pages[uint32] // first number of each chain plus 1; 0: empty
	next  Pages[uint32] // by number: next number of its chain plus 1
	split uint32        // index of the next chain to split
	size  int
}

// NewFinder returns an empty Finder. id returns the id of a number.
func NewFinder(id func(number uint32) *graspsync.EventID) *Finder {
	f := &Finder{id: id, seed: maphash.MakeSeed()}
	f.heads.Add(0)
	return f
}

// Len returns the number of ids.
func (f *Finder) Len() int { return f.size }

// Find returns the number of an id.
func (f *Finder) Find(id graspsync.EventID) (number uint32, ok bool) {
	for at := *f.chain(&id); at != 0; at = *f.next.At(at - 1) {
		if *f.id(at - 1) == id {
			return at - 1, true
		}
	}
	return 0, false
}

// Add adds a number whose id is not in the Finder.
func (f *Finder) Add(number uint32) {
	for f.next.Len() <= int(number) {
		f.next.Add(0)
	}
	f.link(number)
	if f.size++; f.size > f.heads.Len() {
		f.grow()
	}
}

// Remove removes a number that is in the Finder.
func (f *Finder) Remove(number uint32) {
	at := f.chain(f.id(number))
	for *at != number+1 {
		at = f.next.At(*at - 1)
	}
	*at = *f.next.At(number)
	f.size--
}

func (f *Finder) link(number uint32) {
	head := f.chain(f.id(number))
	*f.next.At(number), *head = *head, number+1
}

// chain returns the head of the chain of an id.
func (f *Finder) chain(id *graspsync.EventID) *uint32 {
	h := uint32(maphash.Bytes(f.seed, id[:])) //nolint:gosec // half of it will do
	// Since the last round of splits began, the number of chains doubles. Chains from split on are
	// not split yet.
	whole := uint32(f.heads.Len()) - f.split //nolint:gosec // there are fewer than numbers
	at := h & (whole - 1)
	if at < f.split {
		at = h & (2*whole - 1)
	}
	return f.heads.At(at)
}

// grow splits one chain.
func (f *Finder) grow() {
	old := f.heads.At(f.split)
	at := *old
	*old = 0
	f.heads.Add(0)
	if f.split++; int(f.split)*2 == f.heads.Len() {
		f.split = 0
	}
	for at != 0 {
		number := at - 1
		at = *f.next.At(number)
		f.link(number)
	}
}
