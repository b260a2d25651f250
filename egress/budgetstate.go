package egress

import (
	"net/netip"
	"slices"
	"time"

	"github.com/graspsync/graspsync"
)

// BudgetState is what a [Budget] keeps over a restart. It is JSON; the names of its
// fields never change their meaning.
type BudgetState struct {
	Addresses []AddressBudget `json:"addresses,omitempty"` // heard of longest ago first
	Hosts     []ProvenHost    `json:"hosts,omitempty"`     // heard of longest ago first
}

// AddressBudget is how an address fared with hosts that were unproven there.
type AddressBudget struct {
	Address netip.Prefix `json:"address"`
	// Moved: it is about hosts that were proven elsewhere.
	Moved    bool `json:"moved,omitempty"`
	Failures int  `json:"failures,omitempty"` // in a row
	// Elsewhere are those of them that were at other addresses of a name since the last
	// attempt here: a few count, and no more after a restart.
	Elsewhere    int       `json:"elsewhere,omitempty"`
	FailingSince time.Time `json:"failing_since,omitzero"`
	LastFailure  time.Time `json:"last_failure,omitzero"`
	LastAttempt  time.Time `json:"last_attempt,omitzero"`
	NextAttempt  time.Time `json:"next_attempt,omitzero"`
	// Shared: some host was proven here.
	Shared bool `json:"shared,omitempty"`
}

// ProvenHost is a host that was proven, and where.
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
	for e := l.accounts.order.Back(); e != nil; e = e.Prev() {
		item := e.Value.(entry[accountKey, *account])
		a := *item.value
		for range underWay[item.key] {
			l.fail(&a, now)
		}
		s.Addresses = append(s.Addresses, AddressBudget{
			Address: item.key.prefix, Moved: item.key.moved, Failures: a.failures, Elsewhere: a.elsewhere, Shared: a.shared,
			FailingSince: saved(a.failingSince), LastFailure: saved(a.lastFailure),
			LastAttempt: saved(a.lastAttempt), NextAttempt: saved(a.next),
		})
	}
	for e := l.hosts.order.Back(); e != nil; e = e.Prev() {
		item := e.Value.(entry[string, *provenHost])
		s.Hosts = append(s.Hosts, ProvenHost{Host: item.key, Addresses: slices.Clone(item.value.at)})
	}
	return s
}

// saved drops the reading of the monotonic clock, which means nothing to another
// process.
func saved(t time.Time) time.Time { return t.Round(0).UTC() }

func (l *ledger) restore(s BudgetState, now time.Time) {
	for _, r := range s.Addresses {
		if r.Address != budgetPrefix(r.Address.Addr()) || !r.Address.IsValid() {
			continue
		}
		key := accountKey{r.Address, r.Moved}
		a := l.sanitised(r, now)
		if known, ok := l.accounts.get(key); ok {
			known.next = latest(known.next, a.next)
			known.shared = known.shared && a.shared
			known.elsewhere = max(known.elsewhere, a.elsewhere)
			if a.failures > known.failures {
				a.open, a.next, a.shared, a.elsewhere = known.open, known.next, known.shared, known.elsewhere
			} else {
				a = known
			}
		}
		l.accounts.set(key, a)
	}
	for _, h := range s.Hosts {
		if canonical, err := (graspsync.HostPort{Host: h.Host}).Canonical(); err != nil || canonical.Host != h.Host {
			continue
		}
		p, ok := l.hosts.get(h.Host)
		if !ok {
			p = &provenHost{}
		}
		for _, at := range h.Addresses {
			p.add(at)
		}
		l.hosts.set(h.Host, p)
	}
}

// sanitised forces a record, which may come from a broken file or be of a wrong
// clock, into what the rules can have made of it by now.
func (l *ledger) sanitised(r AddressBudget, now time.Time) *account {
	const mostFailures = 1 << 30 // room to count on
	past := func(t time.Time) time.Time {
		if t.After(now) {
			return now
		}
		return t
	}
	a := &account{
		failures:     min(max(r.Failures, 0), mostFailures),
		failingSince: past(r.FailingSince), lastFailure: past(r.LastFailure), lastAttempt: past(r.LastAttempt),
		next: r.NextAttempt, shared: r.Shared,
	}
	a.elsewhere = min(max(r.Elsewhere, 0), a.failures, mostElsewhere)
	if a.failures > a.elsewhere && (a.failingSince.IsZero() || a.lastFailure.IsZero()) {
		a.failingSince, a.lastFailure = now, now
		a.next = latest(a.next, now.Add(l.cfg.MaxBackoff))
	}
	if !a.lastAttempt.IsZero() {
		a.next = latest(a.next, a.lastAttempt.Add(l.lengthen(l.cfg.RestartPause)))
	}
	longest := max(l.cfg.MaxBackoff, l.cfg.RestartPause)
	if l.dead(a) {
		longest = max(longest, l.cfg.DeadInterval)
	}
	longest += time.Duration(l.cfg.Jitter * float64(longest))
	if most := now.Add(longest); a.next.After(most) {
		a.next = most
	}
	return a
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
