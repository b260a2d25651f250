// Package limit shares bounded resources among strangers.
//
// A stranger is a relay host, a client address, or a repository owner. Each bounded resource gives a
// stranger at most a fixed part, serves waiting strangers round-robin, and evicts the oldest entry of
// the stranger who has most. Keys are free and merit can be faked, so nothing here depends on either.
//
//   - [Table] is for things that are kept: records, connections, pending events.
//   - [Slots] is for things that are used for a while: processes, memory, places.
//   - [Rate] is for things per second: requests, events, bytes. [Daily] counts what came in a day.
package limit

import (
	"iter"
	"net/netip"
)

// GroupParts is the number of parts that a group of strangers has together.
const GroupParts = 4

// Stranger is somebody a resource is shared with. The zero value is a caller of unknown origin, such
// as a client behind a proxy that does not name it: only the total of a resource bounds it.
type Stranger struct {
	ID string // relay host, client address, or public key of a repository owner
	// Group is the network of ID, or empty. Strangers of one group have at most [GroupParts] parts
	// together and take their turns as one, because addresses within a network are free.
	Group string
}

// Client returns the stranger behind a client address: an IPv4 address in its /24, or the /64 of an
// IPv6 address in its /48. It returns the zero Stranger for the zero Addr.
func Client(addr netip.Addr) Stranger {
	addr = addr.Unmap().WithZone("")
	switch {
	case addr.Is4():
		return Stranger{addr.String(), netip.PrefixFrom(addr, 24).Masked().String()}
	case addr.Is6():
		return Stranger{netip.PrefixFrom(addr, 64).Masked().String(), netip.PrefixFrom(addr, 48).Masked().String()}
	default:
		return Stranger{}
	}
}

// turn returns the name under which a stranger takes turns.
func (s Stranger) turn() string {
	if s.Group != "" {
		return s.Group
	}
	return s.ID
}

// ownerKey is the name of a stranger or of a group.
type ownerKey struct {
	name  string
	group bool
}

// keys yields the stranger and its group, as far as they are known, each with the number of its parts.
func (s Stranger) keys() iter.Seq2[ownerKey, int64] {
	return func(yield func(ownerKey, int64) bool) {
		if s.ID != "" && !yield(ownerKey{s.ID, false}, 1) {
			return
		}
		if s.Group != "" {
			yield(ownerKey{s.Group, true}, GroupParts)
		}
	}
}
