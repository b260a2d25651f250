package graspsync

import (
	"github.com/nbd-wtf/go-nostr"
)

// EventKey is the creation time and id of an event, by which NIP-77 and the versions of an event
// are ordered.
type EventKey struct {
	CreatedAt nostr.Timestamp // seconds, Unix time
	ID        EventID
}

// Newer reports whether version s of an event replaces version other (NIP-01): the later version
// wins, and in the same second the version with the lower id.
func (k EventKey) Newer(other EventKey) bool {
	if k.CreatedAt != other.CreatedAt {
		return k.CreatedAt > other.CreatedAt
	}
	return k.ID.Compare(other.ID) < 0
}
