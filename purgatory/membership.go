package purgatory

import (
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/nip34"
)

// answered reports whether a repository may have gained or lost a maintainer by what one
// of those that are listed said: they decide themselves where listings must be returned.
func (g *group) answered(ref filters.RepoRef) bool {
	if !g.membership.Reciprocal || len(g.touched) == 0 {
		return false
	}
	listed := nip34.MaintainerSet(ref, g.all)
	for o := range g.touched {
		if _, ok := listed[o.Owner]; ok {
			return true
		}
	}
	return false
}

// left has those repositories looked at whose maintainer somebody was by an announcement
// that a deletion names by its address. What it names by an id is found by the hourly
// check.
func (e *engine) left(author filters.PubKey, deletion *nostr.Event) {
	_, addresses := nip34.ParseDeletion(deletion)
	for _, a := range addresses {
		if a.Kind == filters.KindAnnouncement && a.PubKey == author {
			ref, _ := a.Repo()
			e.p.touch(ref)
			e.look(ref.Identifier, causes{})
		}
	}
}
