package purgatory

import (
	"slices"
	"sync"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/nip34"
)

// maxFamilies and maxFamilyListings are of how many identifiers families are kept, and how
// many announcements and listings these have together: of those that are looked at now.
const (
	maxFamilies       = 64
	maxFamilyListings = 100_000
)

// families are those that were made lately: all repositories with an identifier are looked at
// with each state, and have the same one. The zero value is ready.
type families struct {
	mu sync.Mutex
	// guarded by mu
	byName   map[string][]knownFamily // the newest last: one with what expired softly, one without
	listings int                      // and announcements, of all
}

type knownFamily struct {
	ids      []filters.EventID // what it is made of, in order
	family   *nip34.Family
	listings int // and announcements
}

// of returns the family of some announcements with an identifier.
func (f *families) of(rule nip34.Membership, identifier string, all []*nip34.Announcement) *nip34.Family {
	k := knownFamily{ids: make([]filters.EventID, len(all)), listings: len(all)}
	for i, a := range all {
		k.ids[i] = a.ID
		k.listings += len(a.Maintainers)
	}
	slices.SortFunc(k.ids, filters.EventID.Compare)
	f.mu.Lock()
	for _, one := range f.byName[identifier] {
		if slices.Equal(one.ids, k.ids) {
			f.mu.Unlock()
			return one.family
		}
	}
	f.mu.Unlock()
	k.family = rule.Family(identifier, all)
	f.mu.Lock()
	defer f.mu.Unlock()
	if same := f.byName[identifier]; len(same) > 1 {
		f.listings -= same[0].listings
		f.byName[identifier] = same[1:]
	}
	if f.byName == nil || len(f.byName) >= maxFamilies || f.listings+k.listings > maxFamilyListings {
		f.byName, f.listings = make(map[string][]knownFamily), 0
	}
	f.byName[identifier] = append(slices.Clone(f.byName[identifier]), k)
	f.listings += k.listings
	return k.family
}
