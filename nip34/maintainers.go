package nip34

import (
	"slices"

	"github.com/graspsync/graspsync/filters"
)

// MaintainerSet returns who may say what the refs of the repository are: its
// owner, the maintainers that its announcement lists, and recursively those that
// their own announcements with the same identifier list. A listing counts from one
// side: it needs no answer by the one who is listed. Of same, announcements with
// another identifier are passed over, and of one author's the newest counts. The
// set has at most 1 + [MaxMaintainers] members, the nearest to the owner first.
func MaintainerSet(owner filters.RepoRef, same []*Announcement) map[filters.PubKey]struct{} {
	lists := make(map[filters.PubKey]*Announcement, len(same))
	for _, a := range same {
		if a.Ref.Identifier != owner.Identifier {
			continue
		}
		if b := lists[a.Ref.Owner]; b == nil || Newer(a.Version(), b.Version()) {
			lists[a.Ref.Owner] = a
		}
	}
	set := map[filters.PubKey]struct{}{owner.Owner: {}}
	for queue := []filters.PubKey{owner.Owner}; len(queue) > 0; queue = queue[1:] {
		a := lists[queue[0]]
		if a == nil {
			continue
		}
		for _, m := range a.Maintainers {
			if _, ok := set[m]; ok {
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

// Maintains reports whether author is in the [MaintainerSet] of at least one of
// the announcements, which have one identifier and different owners. It takes no
// recursion: who is in a set at all is an owner, or listed by one.
func Maintains(author filters.PubKey, same []*Announcement) bool {
	return slices.ContainsFunc(same, func(a *Announcement) bool {
		return a.Ref.Owner == author || slices.Contains(a.Maintainers, author)
	})
}
