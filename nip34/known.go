package nip34

import (
	"hash/maphash"

	"github.com/graspsync/graspsync"
)

// AuthorIndex is the set of keys that have an announcement under an identifier or are listed in
// one. It stores hashes, so a lookup is wrong with a probability of about 1 in 2^60. It is not safe
// for concurrent use.
type AuthorIndex struct {
	seed  maphash.Seed
	times map[uint64]uint32
}

// NewAuthorIndex returns an empty set.
func NewAuthorIndex() *AuthorIndex { return &AuthorIndex{maphash.MakeSeed(), make(map[uint64]uint32)} }

type acquaintance struct {
	identifier string
	who        graspsync.PubKey
}

func (k *AuthorIndex) key(identifier string, who graspsync.PubKey) uint64 {
	return maphash.Comparable(k.seed, acquaintance{identifier, who})
}

// Add adds the keys of an announcement. It does nothing for nil.
func (k *AuthorIndex) Add(a *Announcement) {
	k.each(a, func(key uint64) { k.times[key]++ })
}

// Remove reverts an Add of the same announcement.
func (k *AuthorIndex) Remove(a *Announcement) {
	k.each(a, func(key uint64) {
		if k.times[key]--; k.times[key] == 0 {
			delete(k.times, key)
		}
	})
}

func (k *AuthorIndex) each(a *Announcement, do func(key uint64)) {
	if a == nil {
		return
	}
	do(k.key(a.Ref.Identifier, a.Ref.Owner))
	for _, m := range a.Maintainers {
		do(k.key(a.Ref.Identifier, m))
	}
}

// Has reports whether a key is in the set under an identifier.
func (k *AuthorIndex) Has(identifier string, who graspsync.PubKey) bool {
	return k.times[k.key(identifier, who)] > 0
}
