package nip34

import (
	"hash/maphash"

	"github.com/graspsync/graspsync"
)

// Known counts who has an announcement under an identifier, or is listed in one, as
// announcements come and go: who does neither has no say there and is wanted by nobody, and
// that is told without looking at any of them. It keeps a few bytes for each, and may take one
// in 2^60 or so for somebody else. Make one with [NewKnown]. It is not safe for concurrent use.
type Known struct {
	seed  maphash.Seed
	times map[uint64]uint32
}

// NewKnown returns a Known of nobody.
func NewKnown() *Known { return &Known{maphash.MakeSeed(), make(map[uint64]uint32)} }

type acquaintance struct {
	identifier string
	who        graspsync.PubKey
}

func (k *Known) key(identifier string, who graspsync.PubKey) uint64 {
	return maphash.Comparable(k.seed, acquaintance{identifier, who})
}

// Add counts an announcement. One that is nil counts for nothing.
func (k *Known) Add(a *Announcement) {
	k.each(a, func(key uint64) { k.times[key]++ })
}

// Remove takes back an Add.
func (k *Known) Remove(a *Announcement) {
	k.each(a, func(key uint64) {
		if k.times[key]--; k.times[key] == 0 {
			delete(k.times, key)
		}
	})
}

func (k *Known) each(a *Announcement, do func(key uint64)) {
	if a == nil {
		return
	}
	do(k.key(a.Ref.Identifier, a.Ref.Owner))
	for _, m := range a.Maintainers {
		do(k.key(a.Ref.Identifier, m))
	}
}

// Has reports whether somebody is known under an identifier.
func (k *Known) Has(identifier string, who graspsync.PubKey) bool {
	return k.times[k.key(identifier, who)] > 0
}
