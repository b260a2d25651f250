package purgatory

import (
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/nip34"
)

// left has those repositories looked at whose maintainer somebody was by an announcement
// that a deletion names by its address. What it names by an id is found by the hourly
// check.
func (e *engine) left(author filters.PubKey, deletion *nostr.Event) {
	_, addresses := nip34.ParseDeletion(deletion)
	for _, a := range addresses {
		if a.Kind == filters.KindAnnouncement && a.PubKey == author {
			ref, _ := a.Repo()
			e.p.touch(ref)
			e.surveys.want(ref.Identifier, causes{owners: map[filters.PubKey]bool{author: false}})
		}
	}
}
