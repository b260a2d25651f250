package dense

import (
	"hash/maphash"

	"github.com/graspsync/graspsync"
)

// Finder finds the numbers of ids. The ids themselves are with whoever gave them numbers, and
// stay the same as long as they are in it. Make one with [NewFinder].
//
// It is a hash table of chains that grows by one chain at a time (linear hashing). Strangers
// choose ids, so the hash is one that they can't know.
type Finder struct {
	id    func(number uint32) *graspsync.EventID
	seed  maphash.Seed
	heads Pages[uint32] // of chains: a number and 1; 0: none
	next  Pages[uint32] // by number: the next one in its chain, likewise
	split uint32        // the chain that is split next
	size  int
}

// NewFinder returns an empty Finder. id says which id a number stands for.
func NewFinder(id func(number uint32) *graspsync.EventID) *Finder {
	f := &Finder{id: id, seed: maphash.MakeSeed()}
	f.heads.Add(0)
	return f
}

// Len is how many ids there are.
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

// Add takes in that a number stands for an id, which was not there.
func (f *Finder) Add(number uint32) {
	for f.next.Len() <= int(number) {
		f.next.Add(0)
	}
	f.link(number)
	if f.size++; f.size > f.heads.Len() {
		f.grow()
	}
}

// Remove takes a number out that is there.
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

// chain returns where the chain of an id begins.
func (f *Finder) chain(id *graspsync.EventID) *uint32 {
	h := uint32(maphash.Bytes(f.seed, id[:])) //nolint:gosec // half of it will do
	// There are twice as many chains as there were when the last round of splits began, but for
	// those from split on, which are still to be split.
	whole := uint32(f.heads.Len()) - f.split //nolint:gosec // there are fewer than numbers
	at := h & (whole - 1)
	if at < f.split {
		at = h & (2*whole - 1)
	}
	return f.heads.At(at)
}

// grow splits a chain in two.
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
