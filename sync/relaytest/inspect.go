package relaytest

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/sync/wire"
)

// Dial is one attempt to connect.
type Dial struct {
	At   time.Time
	Took time.Duration
	Err  error // nil if it succeeded
}

// Seen is a message that a client sent.
type Seen struct {
	At   time.Time
	Conn int // 1 is the first connection of the relay
	Size int // bytes of its JSON
	wire.Request
}

// Connections counts the connections of a relay.
type Connections struct {
	Dials  int // attempts, failed ones included
	Failed int
	Open   int // now
}

// Subscription is an open subscription.
type Subscription struct {
	Conn    int
	ID      string
	Filters []nostr.Filter
	Opened  time.Time
	// Stored reports whether stored events, or EOSE, are still to come.
	Stored bool
}

// Traffic counts what went over all connections.
type Traffic struct {
	MessagesSent, MessagesReceived int // from and to the relay
	BytesSent, BytesReceived       int64
	EventsSent                     int
}

// Dials returns all attempts to connect, in the order in which they ended.
func (r *Relay) Dials() []Dial {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.dials)
}

// Requests returns what all clients sent, in order, or only the requests of the
// given types. Filters and events in it must not be changed.
func (r *Relay) Requests(types ...wire.RequestType) []Seen {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := slices.Clone(r.requests)
	if len(types) == 0 {
		return all
	}
	return slices.DeleteFunc(all, func(s Seen) bool { return !slices.Contains(types, s.Type) })
}

// Connections counts the connections until now.
func (r *Relay) Connections() Connections {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := Connections{Dials: len(r.dials), Open: len(r.conns)}
	for _, d := range r.dials {
		if d.Err != nil {
			n.Failed++
		}
	}
	return n
}

// Subscriptions returns the subscriptions that are open, by connection and id.
// NEG sessions are not among them.
func (r *Relay) Subscriptions() []Subscription {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []Subscription
	for _, c := range r.connected() {
		first := len(all)
		for _, s := range c.subs {
			all = append(all, Subscription{Conn: c.id, ID: s.id, Filters: s.filters, Opened: s.opened, Stored: !s.ended})
		}
		slices.SortFunc(all[first:], func(a, b Subscription) int { return strings.Compare(a.ID, b.ID) })
	}
	return all
}

// Traffic returns what went over the connections until now.
func (r *Relay) Traffic() Traffic {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.traffic
}

// Refusals returns what clients were told instead of an answer, the texts of CLOSED,
// NEG-ERR and NOTICE, and how often.
func (r *Relay) Refusals() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return maps.Clone(r.refusals)
}

// Violations returns what clients did wrong, in order.
func (r *Relay) Violations() []Violation {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.violations)
}
