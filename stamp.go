package graspsync

import (
	"github.com/nbd-wtf/go-nostr"
)

// EventKey is the creation time and id of an event. Reconciliation (NIP-77) compares stamps, and they
// order the versions of an event.
type EventKey struct {
	CreatedAt nostr.Timestamp // seconds, Unix time
	ID        EventID
}

// Newer reports whether version s of a replaceable or addressable event replaces version other
// (NIP-01). The later version wins, and in the same second the version with the lower id. A stamp is
// not newer than itself.
func (s EventKey) Newer(other EventKey) bool {
	if s.CreatedAt != other.CreatedAt {
		return s.CreatedAt > other.CreatedAt
	}
	return s.ID.Compare(other.ID) < 0
}
