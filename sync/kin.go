package sync

import (
	"maps"
	"slices"
	"sync"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/nip34"
)

// kin is what follows from the announcements with an identifier, each when it is asked for.
type kin struct {
	family *nip34.Family

	speakers func() map[filters.PubKey]struct{}
	want     func() want
	heard    func() map[filters.PubKey]bool
}

type want struct {
	of   map[filters.PubKey]filters.PubKey
	full bool
}

// newKin is for the owners of repositories that are served, and of those that wait.
func newKin(family *nip34.Family, owners, waiting []filters.PubKey) *kin {
	k := &kin{family: family}
	k.speakers = sync.OnceValue(func() map[filters.PubKey]struct{} { return family.Speakers(slices.Concat(owners, waiting)) })
	k.want = sync.OnceValue(func() want {
		of, full := family.Wanted(owners, nip34.ServedBounds())
		others, crowded := family.Wanted(waiting, nip34.WaitingBounds())
		maps.Copy(of, others)
		return want{of, full || crowded}
	})
	k.heard = sync.OnceValue(func() map[filters.PubKey]bool {
		heard := make(map[filters.PubKey]bool)
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
func (k *kin) speaks(who filters.PubKey) bool {
	if !k.family.Knows(who) {
		return false
	}
	_, has := k.speakers()[who]
	return has
}

func (k *kin) wanted() (of map[filters.PubKey]filters.PubKey, full bool) {
	w := k.want()
	return w.of, w.full
}

// maxKin is of how many identifiers it is kept what follows from their announcements: of
// those that are judged now.
const maxKin = 16

// kinCache is what was worked out lately, the oldest first. The zero value is ready.
type kinCache struct {
	mu sync.Mutex
	// guarded by mu
	recent []kinEntry
}

type kinEntry struct {
	identifier string
	generation Generation
	kin        *kin
}

func (c *kinCache) get(identifier string, generation Generation) *kin {
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, e := range slices.Backward(c.recent) {
		if e.identifier == identifier && e.generation == generation {
			c.recent = append(slices.Delete(c.recent, i, i+1), e)
			return e.kin
		}
	}
	return nil
}

func (c *kinCache) put(e kinEntry) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.recent) >= maxKin {
		c.recent = slices.Delete(c.recent, 0, 1)
	}
	c.recent = append(c.recent, e)
}

// of returns what follows from the announcements with an identifier. What they are is asked
// after their generation: what comes between makes it another one. ours says which of them
// make a repository ours besides those that are accepted; nil: it is of no interest.
func (c *kinCache) of(rule nip34.Membership, identifier string, view View, ours func(*nip34.Announcement) bool) *kin {
	generation := view.Generation(identifier)
	if generation.Known {
		if k := c.get(identifier, generation); k != nil {
			return k
		}
	}
	all := view.Family(identifier)
	var owners, waiting []filters.PubKey
	if ours != nil {
		waiting = nip34.Owners(view.Waiting(identifier))
		owners = ownersAmong(all, view.Announcements(identifier), waiting, ours)
	}
	k := newKin(rule.Family(identifier, all), owners, waiting)
	if generation.Known {
		c.put(kinEntry{identifier, generation, k})
	}
	return k
}

// ownersAmong returns whose repositories are ours, but for those that wait: those of accepted
// announcements, and of others that list us, too.
func ownersAmong(all, accepted []*nip34.Announcement, waiting []filters.PubKey, ours func(*nip34.Announcement) bool) (owners []filters.PubKey) {
	is := make(map[filters.PubKey]bool, len(accepted)+len(waiting))
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

func (p *GRASPPolicy) kinOf(identifier string, view View) *kin {
	return p.kin.of(p.Membership, identifier, view, p.identity.Lists)
}
