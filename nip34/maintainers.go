package nip34

import (
	"slices"

	"github.com/graspsync/graspsync/filters"
)

// Membership says who counts as a maintainer. The zero value is what NIP-34 has.
type Membership struct {
	// Reciprocal has a listing count only if it is returned: whoever is listed by a
	// member is one if the newest announcement of their own, with the same identifier,
	// lists that member. Nobody becomes a maintainer by what others say alone.
	Reciprocal bool
}

// MaintainerSet returns who may say what the refs of the repository are: its
// owner, the maintainers that its announcement lists, and recursively those that
// their own announcements with the same identifier list. A listing counts from one
// side: it needs no answer by the one who is listed. Of same, announcements with
// another identifier are passed over, and of one author's the newest counts. The
// set has at most 1 + [MaxMaintainers] members, the nearest to the owner first.
func MaintainerSet(owner filters.RepoRef, same []*Announcement) map[filters.PubKey]struct{} {
	return Membership{}.Set(owner, same)
}

// Maintains reports whether author is in the [MaintainerSet] of at least one of
// the announcements, which have one identifier and different owners.
func Maintains(author filters.PubKey, same []*Announcement) bool {
	return Membership{}.Includes(author, same)
}

// Set is [MaintainerSet] of this membership.
func (rule Membership) Set(owner filters.RepoRef, same []*Announcement) map[filters.PubKey]struct{} {
	lists := make(map[filters.PubKey]*Announcement, len(same))
	for _, a := range same {
		if a.Ref.Identifier != owner.Identifier {
			continue
		}
		if b := lists[a.Ref.Owner]; b == nil || Newer(a.Version(), b.Version()) {
			lists[a.Ref.Owner] = a
		}
	}
	answers := make(map[filters.PubKey]map[filters.PubKey]struct{}) // whom somebody lists
	returned := func(of, by filters.PubKey) bool {
		a := lists[by]
		if a == nil {
			return false
		}
		if answers[by] == nil { // once each: a list may be long, and on many lists
			answers[by] = make(map[filters.PubKey]struct{}, len(a.Maintainers))
			for _, k := range a.Maintainers {
				answers[by][k] = struct{}{}
			}
		}
		_, ok := answers[by][of]
		return ok
	}
	set := map[filters.PubKey]struct{}{owner.Owner: {}}
	for queue := []filters.PubKey{owner.Owner}; len(queue) > 0; queue = queue[1:] {
		a := lists[queue[0]]
		if a == nil {
			continue
		}
		for _, m := range a.Maintainers {
			if _, ok := set[m]; ok || (rule.Reciprocal && !returned(queue[0], m)) {
				continue
			}
			if len(set) > MaxMaintainers {
				return set
			}
			set[m] = struct{}{}
			queue = append(queue, m)
		}
	}
	return set
}

// Includes is [Maintains] of this membership. It takes no recursion: who is in a set
// at all is an owner, or listed by one; and an owner if listings must be returned.
func (rule Membership) Includes(author filters.PubKey, same []*Announcement) bool {
	return slices.ContainsFunc(same, func(a *Announcement) bool {
		return a.Ref.Owner == author || (!rule.Reciprocal && slices.Contains(a.Maintainers, author))
	})
}
