package egress

import (
	"net/netip"
	"slices"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/limit"
)

// BudgetState contains the records of a [Budget] that survive a restart, as JSON. The meaning of
// its field names never changes.
type BudgetState struct {
	Addresses []AddressRecord `json:"addresses,omitempty"` // least recently used first
	Hosts     []ProvenHost    `json:"hosts,omitempty"`     // least recently used first
}

// AddressRecord is the record of an address for unproven hosts.
type AddressRecord struct {
	Address netip.Prefix `json:"address"`
	// Moved marks the record for hosts that were proven at other addresses.
	Moved        bool      `json:"moved,omitempty"`
	Failures     int       `json:"failures,omitempty"` // consecutive failures
	FailingSince time.Time `json:"failing_since,omitzero"`
	LastFailure  time.Time `json:"last_failure,omitzero"`
	LastAttempt  time.Time `json:"last_attempt,omitzero"`
	NextAttempt  time.Time `json:"next_attempt,omitzero"`
	// Shared reports whether some host was proven at this address.
	Shared bool `json:"shared,omitempty"`
}

// ProvenHost is a proven host with its addresses.
type ProvenHost struct {
	Host      string         `json:"host"`
	Addresses []netip.Prefix `json:"addresses,omitempty"`
}

func (l *ledger) export(now time.Time) BudgetState {
	var s BudgetState
	underWay := make(map[accountKey]int)
	for _, tickets := range l.open {
		for _, t := range tickets {
			if !t.second && !t.fine {
				underWay[t.key]++
			}
		}
	}
	for key, known := range l.accounts.All() {
		a := *known
		for range underWay[key] {
			l.fail(&a, now)
		}
		s.Addresses = append(s.Addresses, AddressRecord{
			Address: key.prefix, Moved: key.moved, Failures: a.Failures, Shared: a.shared,
			FailingSince: backoff.Saved(a.FailingSince), LastFailure: backoff.Saved(a.LastFailure),
			LastAttempt: backoff.Saved(a.LastAttempt), NextAttempt: backoff.Saved(a.Next),
		})
	}
	for host, proven := range l.hosts.All() {
		s.Hosts = append(s.Hosts, ProvenHost{Host: host, Addresses: slices.Clone(proven.at)})
	}
	return s
}

func (l *ledger) restore(s BudgetState, now time.Time) {
	for _, r := range s.Addresses {
		if r.Address != budgetPrefix(r.Address.Addr()) || !r.Address.IsValid() {
			continue
		}
		key := accountKey{r.Address, r.Moved}
		a := l.sanitised(r, now)
		if known, ok := l.accounts.Get(key); ok {
			known.Next = backoff.Later(known.Next, a.Next)
			known.shared = known.shared && a.shared
			if a.Failures > known.Failures {
				a.open, a.Next, a.shared = known.open, known.Next, known.shared
			} else {
				a = known
			}
		}
		l.put(key, a, now)
	}
	for _, h := range s.Hosts {
		if canonical, err := (graspsync.HostPort{Host: h.Host}).Canonical(); err != nil || canonical.Host != h.Host {
			continue
		}
		p, ok := l.hosts.Get(h.Host)
		if !ok {
			p = &provenHost{}
		}
		for _, at := range h.Addresses {
			p.add(at)
		}
		l.hosts.Put(h.Host, limit.Stranger{}, 0, p)
	}
}

// sanitised forces a record, which may come from a broken file or be of a wrong
// clock, into what the rules can have made of it by now.
func (l *ledger) sanitised(s AddressRecord, now time.Time) *account {
	a := &account{shared: s.Shared, Record: backoff.Record{
		Failures: s.Failures, FailingSince: s.FailingSince, LastFailure: s.LastFailure,
		LastAttempt: s.LastAttempt, Next: s.NextAttempt,
	}.Believed(now)}
	if a.Failures > 0 && a.Untold() {
		a.FailingSince, a.LastFailure = now, now
		a.Next = backoff.Later(a.Next, now.Add(backoff.Max))
	}
	rules := l.rules(a)
	if !a.LastAttempt.IsZero() {
		a.Record = rules.Restart(a.Record, l.random())
	}
	a.Next = backoff.Earlier(a.Next, now.Add(rules.LongestWait(a.Record)))
	return a
}
