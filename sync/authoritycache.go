package sync

import (
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
)

// recognizedAuthors contains the authors whose events are accepted under one identifier. Each
// result is computed on first use.
type recognizedAuthors struct {
	family     *nip34.AnnouncementSet
	generation Revision // revision of the announcements; set by authorityCache

	speakers func() map[graspsync.PubKey]struct{}
	wanted   func() (of map[graspsync.PubKey]graspsync.PubKey, full bool)
	heard    func() map[graspsync.PubKey]bool
}

// newRecognizedAuthors takes the owners of accepted and of held announcements.
func newRecognizedAuthors(family *nip34.AnnouncementSet, owners, waiting []graspsync.PubKey) *recognizedAuthors {
	k := &recognizedAuthors{family: family}
	k.speakers = sync.OnceValue(func() map[graspsync.PubKey]struct{} { return family.Speakers(slices.Concat(owners, waiting)) })
	k.wanted = sync.OnceValues(func() (map[graspsync.PubKey]graspsync.PubKey, bool) {
		of, full := family.Wanted(owners, nip34.ServedBounds())
		others, crowded := family.Wanted(waiting, nip34.WaitingBounds())
		maps.Copy(of, others)
		return of, full || crowded
	})
	k.heard = sync.OnceValue(func() map[graspsync.PubKey]bool {
		heard := make(map[graspsync.PubKey]bool)
		wanted, _ := k.wanted()
		for who := range wanted {
			heard[who] = false
		}
		for who := range k.speakers() {
			heard[who] = true
		}
		return heard
	})
	return k
}

// speaks reports whether who is a member of the maintainer set of a hosted repository.
func (k *recognizedAuthors) speaks(who graspsync.PubKey) bool {
	if !k.family.Knows(who) {
		return false
	}
	_, has := k.speakers()[who]
	return has
}

const (
	// maxAuthorities is the maximum number of cached results. maxAuthorityListings is the maximum
	// number of their announcements and listings. One result counts for at most half of the
	// listings, because a large identifier needs two results, with and without held announcements.
	maxAuthorities       = 1000
	maxAuthorityListings = 250_000
)

// authorityCache contains recent results. It is safe for concurrent use.
type authorityCache struct {
	mu      sync.Mutex
	entries *limit.Table[authorityKey, *recognizedAuthors] // guarded by mu; nil: empty
}

// authorityKey is an identifier, and whether held announcements are included.
type authorityKey struct {
	identifier string
	waits      bool
}

func (c *authorityCache) get(key authorityKey, generation Revision) *recognizedAuthors {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries == nil {
		return nil
	}
	k, _ := c.entries.Get(key)
	if k == nil || k.generation != generation {
		c.entries.Delete(key)
		return nil
	}
	c.entries.Touch(key)
	return k
}

func (c *authorityCache) put(key authorityKey, k *recognizedAuthors, listings int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries == nil {
		c.entries = limit.NewTable[authorityKey, *recognizedAuthors](maxAuthorities, maxAuthorityListings)
	}
	c.entries.Put(key, limit.Stranger{}, min(int64(listings), maxAuthorityListings/2), k)
}

// of returns the recognized authors of an identifier. It reads the revision before the
// announcements, so that a concurrent change makes the result obsolete. ours reports whether an
// announcement that is not accepted makes a repository hosted. A nil ours means that owners do not
// matter.
func (c *authorityCache) of(rule nip34.Membership, identifier string, view View, ours func(*nip34.Announcement) bool) *recognizedAuthors {
	generation := view.Revision(identifier)
	key := authorityKey{identifier, generation.Waiting != nil}
	if generation.Known {
		if k := c.get(key, generation); k != nil {
			return k
		}
	}
	all := view.Family(identifier)
	var owners, waiting []graspsync.PubKey
	if ours != nil {
		waiting = nip34.Owners(view.Waiting(identifier))
		owners = ownersAmong(all, view.Announcements(identifier), waiting, ours)
	}
	k := newRecognizedAuthors(rule.Family(identifier, all), owners, waiting)
	if generation.Known {
		listings := len(all)
		for _, a := range all {
			listings += len(a.Maintainers)
		}
		key.identifier = strings.Clone(identifier)
		k.generation = generation
		c.put(key, k, listings)
	}
	return k
}

// ownersAmong returns the owners of hosted repositories whose announcements are not held. Their
// announcements are accepted or list this server.
func ownersAmong(all, accepted []*nip34.Announcement, waiting []graspsync.PubKey, ours func(*nip34.Announcement) bool) (owners []graspsync.PubKey) {
	is := make(map[graspsync.PubKey]bool, len(accepted)+len(waiting))
	for _, a := range accepted {
		is[a.Ref.Owner] = true
	}
	for _, owner := range waiting {
		is[owner] = false
	}
	for _, a := range all {
		if yes, known := is[a.Ref.Owner]; yes || !known && ours(a) {
			owners = append(owners, a.Ref.Owner)
		}
	}
	return owners
}
