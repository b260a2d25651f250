package purgatory

import (
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// left has those repositories looked at whose maintainer somebody was by an announcement
// that a deletion names by its address. What it names by an id is found by the hourly
// check.
func (e *engine) left(author graspsync.PubKey, deletion *nostr.Event) {
	_, addresses := nip34.ParseDeletion(deletion)
	for _, a := range addresses {
		if ref, ok := a.Repo(); ok && a.Kind == graspsync.KindAnnouncement && a.Author == author {
			e.p.touch(ref)
			e.surveys.want(ref.Identifier, causes{owners: map[graspsync.PubKey]bool{author: false}})
		}
	}
}
