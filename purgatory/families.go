package purgatory

import (
	"crypto/sha256"
	"slices"
	"sync"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
)

// maxFamilies is the maximum number of cached families, maxFamilyListings that of their
// announcements and listed maintainers together. The limits of package nip34 allow one family about
// half of that.
const (
	maxFamilies       = 64
	maxFamilyListings = 500_000
)

// families is a cache of the announcement sets that were used last. All repositories with the same
// identifier share a set, and each state event needs it. The zero value is ready.
type families struct {
	mu   sync.Mutex
	kept *limit.Table[familyKey, *nip34.AnnouncementSet] // guarded by mu
}

type familyKey struct {
	identifier string
	of         [sha256.Size]byte
}

// of returns the set of the announcements in all, which have the given identifier.
func (f *families) of(rule nip34.Membership, identifier string, all []*nip34.Announcement) *nip34.AnnouncementSet {
	ids, listings := make([]graspsync.EventID, len(all)), len(all)
	for i, a := range all {
		ids[i] = a.ID
		listings += len(a.Maintainers)
	}
	slices.SortFunc(ids, graspsync.EventID.Compare)
	sum := sha256.New()
	for _, id := range ids {
		sum.Write(id[:])
	}
	key := familyKey{identifier: identifier}
	sum.Sum(key.of[:0])
	f.mu.Lock()
	if f.kept == nil {
		f.kept = limit.NewTable[familyKey, *nip34.AnnouncementSet](maxFamilies, maxFamilyListings)
	}
	family, known := f.kept.Get(key)
	f.kept.Touch(key)
	f.mu.Unlock()
	if known {
		return family
	}
	family = rule.Family(identifier, all)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kept.Put(key, limit.Stranger{}, int64(listings), family)
	return family
}
