package graspsync

import (
	"github.com/nbd-wtf/go-nostr"
)

// Stamp is an event as reconciliation (NIP-77) knows it, and as versions of it are ordered.
type Stamp struct {
	CreatedAt nostr.Timestamp // seconds, Unix time
	ID        EventID
}

// Newer reports whether s replaces other where both are versions of a replaceable or addressable
// event (NIP-01): it is later, or of the same second with the lower id. None is newer than itself.
func (s Stamp) Newer(other Stamp) bool {
	if s.CreatedAt != other.CreatedAt {
		return s.CreatedAt > other.CreatedAt
	}
	return s.ID.Compare(other.ID) < 0
}
