// Package limit shares bounded resources among strangers.
//
// A stranger is a relay host, a client address, or a repository owner. Each bounded resource gives
// a stranger at most a fixed part, serves waiting strangers round-robin, and evicts the oldest
// entry of the stranger who has most. Nothing depends on the key or past behavior of an author,
// because keys are free and good behavior can be faked.
//
//   - [Table] is for stored things: records, connections, pending events.
//   - [Slots] is for things in temporary use: processes, memory, slots.
//   - [Rate] is for things per second: requests, events, bytes. [Daily] counts things per day.
package limit

import (
	"iter"
	"net/netip"
)

// GroupParts is the number of parts of a group of strangers.
const GroupParts = 4

// Stranger is a party that shares a resource. The zero value is a caller of unknown origin, whom
// only the total of a resource limits.
type Stranger struct {
	ID string // relay host, client address, or public key of a repository owner
	// Group is the network of ID, or "". Its strangers have at most [GroupParts] parts together and
	// share one turn, because addresses within a network are free.
	Group string
}

// Client returns the stranger for a client address: an IPv4 address in its /24, or the /64 of an
// IPv6 address in its /48.
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

func (s Stranger) queueName() string {
	if s.Group != "" {
		return s.Group
	}
	return s.ID
}

type ownerKey struct {
	name  string
	group bool
}

// keys yields the stranger and its group with their numbers of parts.
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
