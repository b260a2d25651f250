package nip34

import (
	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/filters"
)

// Version orders the versions of a replaceable event (NIP-01).
type Version struct {
	CreatedAt nostr.Timestamp // seconds, Unix time
	ID        filters.EventID
}

// Newer reports whether a replaces b: it is later, or of the same second with the
// lower id. No version is newer than itself.
func Newer(a, b Version) bool {
	if a.CreatedAt != b.CreatedAt {
		return a.CreatedAt > b.CreatedAt
	}
	return a.ID.Compare(b.ID) < 0
}
