package egress

import (
	"net/netip"
	"slices"
	"time"

	"github.com/graspsync/graspsync"
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

// ProvenHost is a proven host with its addresses.
type ProvenHost struct {
	Host      string         `json:"host"`
	Addresses []netip.Prefix `json:"addresses,omitempty"`
}

// Export returns the records that must survive a restart. Current connections count as failed, because
// they may crash the process.
func (b *Budget) Export() BudgetState {
	b.mu.Lock()
	defer b.mu.Unlock()
	var s BudgetState
	underWay := make(map[netip.Prefix]int)
	for _, tickets := range b.open {
		for _, t := range tickets {
			if !t.second && !t.fine {
				underWay[t.to]++
			}
		}
	}
	for to, known := range b.accounts.All() {
		a := *known
		for range underWay[to] {
			b.fail(&a)
		}
		s.Addresses = append(s.Addresses, AddressRecord{Address: to, Record: a.Record, Shared: a.shared})
	}
	for host, proven := range b.hosts.All() {
		s.Hosts = append(s.Hosts, ProvenHost{Host: host, Addresses: slices.Clone(*proven)})
	}
	return s
}

// Import sets the records of an earlier process, before the first dial.
func (b *Budget) Import(s BudgetState) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, r := range s.Addresses {
		if r.Address == budgetPrefix(r.Address.Addr()) && r.Address.IsValid() {
			b.put(r.Address, b.imported(r, time.Now()))
		}
	}
	for _, h := range s.Hosts {
		if canonical, err := (graspsync.HostPort{Host: h.Host}).Canonical(); err != nil || canonical.Host != h.Host {
			continue
		}
		for _, at := range h.Addresses {
			b.proveAt(h.Host, at)
		}
	}
}

func (b *Budget) imported(s AddressRecord, now time.Time) *account {
	a := &account{shared: s.Shared, Record: s.Believed(now)}
	if a.Failures > 0 && a.Untold() {
		a.FailingSince, a.LastFailure = now, now
		a.NextAttempt = backoff.Later(a.NextAttempt, now.Add(backoff.Max))
	}
	rules := rulesOf(a)
	a.Record = rules.Restart(a.Record, b.cfg.fixed.Rand())
	a.NextAttempt = backoff.Earlier(a.NextAttempt, now.Add(rules.LongestWait(a.Record)))
	return a
}

func (b *Budget) proveAt(host string, at netip.Prefix) {
	proven, ok := b.hosts.Get(host)
	if !ok {
		proven = new([]netip.Prefix)
	}
	if !slices.Contains(*proven, at) {
		*proven = append((*proven)[max(0, len(*proven)-mostProofs+1):], at)
	}
	b.hosts.Put(host, limit.Stranger{}, 0, proven)
}
