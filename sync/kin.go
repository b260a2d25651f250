package sync

import (
	"container/list"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/lazy"
)

// kin is what follows from the announcements with an identifier, each when it is asked for.
type kin struct {
	family *nip34.Family

	speakers func() map[graspsync.PubKey]struct{}
	want     func() want
	heard    func() map[graspsync.PubKey]bool
}

type want struct {
	of   map[graspsync.PubKey]graspsync.PubKey
	full bool
}

// newKin is for the owners of repositories that are served, and of those that wait.
func newKin(family *nip34.Family, owners, waiting []graspsync.PubKey) *kin {
	k := &kin{family: family}
	k.speakers = sync.OnceValue(func() map[graspsync.PubKey]struct{} { return family.Speakers(slices.Concat(owners, waiting)) })
	k.want = sync.OnceValue(func() want {
		of, full := family.Wanted(owners, nip34.ServedBounds())
		others, crowded := family.Wanted(waiting, nip34.WaitingBounds())
		maps.Copy(of, others)
		return want{of, full || crowded}
	})
	k.heard = sync.OnceValue(func() map[graspsync.PubKey]bool {
		heard := make(map[graspsync.PubKey]bool)
		for who := range k.want().of {
			heard[who] = false
		}
		for who := range k.speakers() {
			heard[who] = true
		}
		return heard
	})
	return k
}

// speaks reports whether somebody has a say in a repository of ours.
func (k *kin) speaks(who graspsync.PubKey) bool {
	if !k.family.Knows(who) {
		return false
	}
	_, has := k.speakers()[who]
	return has
}

func (k *kin) wanted() (of map[graspsync.PubKey]graspsync.PubKey, full bool) {
	w := k.want()
	return w.of, w.full
}

// The bounds of what is kept of what follows from announcements: for how many identifiers, and
// how many announcements and listings these have together. The last two are kept however many
// they have, of one identifier with and without what waits: else each event of it would have
// them worked out.
const (
	maxKin         = 1000
	maxKinListings = 250_000
	leastKin       = 2
)

// kinCache is what was worked out lately. The zero value is ready.
type kinCache struct {
	mu sync.Mutex
	// guarded by mu
	recent   list.List // of kinEntry, the oldest first
	entries  map[kinKey]*list.Element
	listings int // and announcements, of all
}

// kinKey is an identifier, and whether it is with what waits: some are asked for either.
type kinKey struct {
	identifier string
	waits      bool
}

type kinEntry struct {
	key        kinKey
	generation Generation
	kin        *kin
	listings   int // and announcements
}

func (c *kinCache) get(key kinKey, generation Generation) *kin {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.entries[key]
	if at == nil {
		return nil
	}
	e := at.Value.(kinEntry)
	if e.generation != generation { // it was before, and is of no more use
		c.drop(at)
		return nil
	}
	c.recent.MoveToBack(at)
	return e.kin
}

func (c *kinCache) put(e kinEntry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at := c.entries[e.key]; at != nil {
		c.drop(at)
	}
	lazy.Put(&c.entries, e.key, c.recent.PushBack(e))
	c.listings += e.listings
	for c.recent.Len() > leastKin && (c.recent.Len() > maxKin || c.listings > maxKinListings) {
		c.drop(c.recent.Front())
	}
}

func (c *kinCache) drop(at *list.Element) {
	e := c.recent.Remove(at).(kinEntry)
	delete(c.entries, e.key)
	c.listings -= e.listings
}

// of returns what follows from the announcements with an identifier. What they are is asked
// after their generation: what comes between makes it another one. ours says which of them
// make a repository ours besides those that are accepted; nil: it is of no interest.
func (c *kinCache) of(rule nip34.Membership, identifier string, view View, ours func(*nip34.Announcement) bool) *kin {
	generation := view.Generation(identifier)
	key := kinKey{identifier, generation.Waiting != nil}
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
	k := newKin(rule.Family(identifier, all), owners, waiting)
	if generation.Known {
		listings := len(all)
		for _, a := range all {
			listings += len(a.Maintainers)
		}
		key.identifier = strings.Clone(identifier)
		c.put(kinEntry{key, generation, k, listings})
	}
	return k
}

// ownersAmong returns whose repositories are ours, but for those that wait: those of accepted
// announcements, and of others that list us, too.
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
