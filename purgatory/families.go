package purgatory

import (
	"slices"
	"sync"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// maxFamilies and maxFamilyListings are of how many identifiers families are kept, and how
// many announcements and listings these have together: as many as can wait with the default of
// Limits.MaxBytes. Those of the last one are kept however many they have: else each look at
// it would have them made.
const (
	maxFamilies       = 64
	maxFamilyListings = 250_000
)

// families are those that were made lately: all repositories with an identifier are looked at
// with each state, and have the same one. The zero value is ready.
type families struct {
	mu sync.Mutex
	// guarded by mu
	byName   map[string][]knownFamily // the newest last: one with what expired softly, one without
	recent   []string                 // the identifiers, the one that was asked for last at the end
	listings int                      // and announcements, of all
}

type knownFamily struct {
	ids      []graspsync.EventID // what it is made of, in order
	family   *nip34.Family
	listings int // and announcements
}

// of returns the family of some announcements with an identifier.
func (f *families) of(rule nip34.Membership, identifier string, all []*nip34.Announcement) *nip34.Family {
	k := knownFamily{ids: make([]graspsync.EventID, len(all)), listings: len(all)}
	for i, a := range all {
		k.ids[i] = a.ID
		k.listings += len(a.Maintainers)
	}
	slices.SortFunc(k.ids, graspsync.EventID.Compare)
	if one := f.known(identifier, k.ids); one != nil {
		return one
	}
	k.family = rule.Family(identifier, all)
	f.mu.Lock()
	defer f.mu.Unlock()
	same := f.byName[identifier]
	if len(same) > 1 {
		f.listings -= same[0].listings
		same = same[1:]
	}
	if f.byName == nil {
		f.byName = make(map[string][]knownFamily)
	}
	f.byName[identifier] = append(slices.Clone(same), k)
	f.listings += k.listings
	f.used(identifier)
	for len(f.recent) > 1 && (len(f.recent) > maxFamilies || f.listings > maxFamilyListings) {
		for _, one := range f.byName[f.recent[0]] {
			f.listings -= one.listings
		}
		delete(f.byName, f.recent[0])
		f.recent = f.recent[1:]
	}
	return k.family
}

// known returns the family of these announcements; nil if it is not kept.
func (f *families) known(identifier string, ids []graspsync.EventID) *nip34.Family {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, one := range f.byName[identifier] {
		if slices.Equal(one.ids, ids) {
			f.used(identifier)
			return one.family
		}
	}
	return nil
}

// used has an identifier be the last that goes. It is called with mu held.
func (f *families) used(identifier string) {
	if i := slices.Index(f.recent, identifier); i >= 0 {
		f.recent = slices.Delete(f.recent, i, i+1)
	}
	f.recent = append(f.recent, identifier)
}
