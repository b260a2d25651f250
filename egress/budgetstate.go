package egress

import (
	"net/netip"
	"time"

	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/limit"
)

// BudgetState contains the records of a [Budget] that survive a restart, as JSON.
type BudgetState struct {
	Addresses []AddressRecord `json:"addresses,omitempty"` // least recently used first
	Hosts     []ProvenHost    `json:"hosts,omitempty"`     // least recently used first
}

// AddressRecord is the record of an address for unproven hosts.
type AddressRecord struct {
	Address netip.Prefix `json:"address"`
	backoff.Record
	Shared bool `json:"shared,omitempty"` // a host was proven at this address
}

// ProvenHost is a host that is proven at an address.
type ProvenHost struct {
	Host    string       `json:"host"`
	Address netip.Prefix `json:"address"`
}

// Export returns the records that must survive a restart.
func (b *Budget) Export() BudgetState {
	b.mu.Lock()
	defer b.mu.Unlock()
	var s BudgetState
	for _, a := range b.addresses.All() {
		s.Addresses = append(s.Addresses, a.AddressRecord)
	}
	for h := range b.hosts.All() {
		s.Hosts = append(s.Hosts, h)
	}
	return s
}

// Import sets the records of an earlier process, before the first dial.
func (b *Budget) Import(s BudgetState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range s.Addresses {
		b.put(b.restored(r, time.Now()))
	}
	for _, h := range s.Hosts {
		b.hosts.Put(h, limit.Stranger{}, 0, struct{}{})
	}
}

func (b *Budget) restored(saved AddressRecord, now time.Time) *addressEntry {
	a := &addressEntry{AddressRecord: saved}
	a.Record = saved.Sanitize(now)
	if a.Failures > 0 {
		b.delayNextAttempt(a, a.LastFailure)
	}
	rules := backoffRules(a)
	a.Record = rules.Restart(a.Record, b.cfg.fixed.Rand())
	a.NextAttempt = backoff.Earlier(a.NextAttempt, now.Add(rules.LongestWait(a.Record)))
	return a
}
