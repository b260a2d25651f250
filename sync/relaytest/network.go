package relaytest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/graspsync/graspsync"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Errors of a failed dial.
var (
	// ErrNoRelay is returned by [Network.Dial] for a URL without a relay.
	ErrNoRelay = errors.New("no such relay")
	// ErrDown is returned by Dial for a relay that is down.
	ErrDown = errors.New("relay is down")
)

var _ relaysync.Transport = (*Network)(nil)

// Network is a set of relays by URL. It implements [relaysync.Transport].
type Network struct {
	mu     sync.Mutex
	relays map[graspsync.RelayURL]*Relay // guarded by mu
	lost   []graspsync.RelayURL          // guarded by mu
}

// NewNetwork returns a network without relays.
func NewNetwork() *Network {
	return &Network{relays: make(map[graspsync.RelayURL]*Relay)}
}

// Add adds a relay. It panics if url is invalid or already has a relay.
func (n *Network) Add(url string, b Behavior) *Relay {
	r := New(url, b)
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.relays[r.url] != nil {
		panic(fmt.Sprintf("relaytest: %s was added twice", r.url))
	}
	n.relays[r.url] = r
	return r
}

// Relay returns the relay with this URL, or nil.
func (n *Network) Relay(url graspsync.RelayURL) *Relay {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.relays[url]
}

// Relays returns all relays, ordered by URL.
func (n *Network) Relays() []*Relay {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.SortedFunc(maps.Values(n.relays), func(a, b *Relay) int { return a.url.Compare(b.url) })
}

// Dial connects to a relay. The error wraps [ErrNoRelay] if url has no relay.
func (n *Network) Dial(ctx context.Context, url graspsync.RelayURL) (relaysync.Conn, error) {
	n.mu.Lock()
	r := n.relays[url]
	if r == nil && len(n.lost) < maxRecords {
		n.lost = append(n.lost, url)
	}
	n.mu.Unlock()
	if r == nil {
		return nil, fmt.Errorf("dial %s: %w", url, ErrNoRelay)
	}
	c, err := r.Dial(ctx)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// Export implements [relaysync.Transport]. It returns nothing.
func (*Network) Export() [][]byte { return nil }

// Import implements [relaysync.Transport].
func (*Network) Import([][]byte) {}

// Misdials returns the dialed URLs without a relay, in order.
func (n *Network) Misdials() []graspsync.RelayURL {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.Clone(n.lost)
}

// Violations returns the violations of the clients of all relays.
func (n *Network) Violations() []Violation {
	var all []Violation
	for _, r := range n.Relays() {
		all = append(all, r.Violations()...)
	}
	return all
}
