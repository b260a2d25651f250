package health

import (
	"net/netip"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/limit"
)

// host is the record of a host, made from the events of all its relay URLs as if they were one
// relay. When one URL has held a connection for a minute, each URL has only its own backoff.
type host struct {
	Record
	by graspsync.RelayURL // of the current attempt or connection
}

// Host returns the host of a relay, as a name or address without port. It returns "" for localhost
// and for loopback, private and link-local addresses, because many relays of an operator may run on
// them.
func Host(u graspsync.RelayURL) string {
	name := u.HostPort().Host
	if name == "localhost" {
		return ""
	}
	if a, err := netip.ParseAddr(name); err == nil &&
		(a.IsLoopback() || a.IsPrivate() || a.IsLinkLocalUnicast()) {
		return ""
	}
	return name
}

// applyToHost applies an event of a URL to the record of its host. The caller holds mu, as for all
// methods without their own lock.
func (t *RelayHealthTracker) applyToHost(u graspsync.RelayURL, e event, now time.Time, jitter float64) {
	name := Host(u)
	h, ok := t.hosts.Get(name)
	switch {
	case name == "" || e.kind == rateLimited || h.Proven:
		return
	case e.kind == forgiven:
		if ok && !h.inUse() { // otherwise an attempt at another URL will decide
			h.NextAttempt = time.Time{}
			t.setHost(name, h)
		}
		return
	case h.inUse() && h.by != u && e.kind != attempt && e.kind != hostile:
		return // the attempt was already counted when another attempt began
	case !ok && e.kind.endsOnly():
		return
	case e.kind == attempt || e.kind == connected:
		h.by = u
	}
	e.text = "" // the record of the relay contains the text
	h.Record = t.config.step(h.Record, e, now, jitter)
	t.setHost(name, h)
}

func (k kind) endsOnly() bool {
	return k == lost || k == hung || k == closed || k == stopped || k == forgiven
}

func (t *RelayHealthTracker) setHost(name string, h host) {
	t.hosts.PutKeeping(name, limit.Stranger{}, 0, h, func(name string) bool {
		h, _ := t.hosts.Get(name)
		return h.inUse()
	})
}

func (t *RelayHealthTracker) prove(u graspsync.RelayURL) {
	name := Host(u)
	if h, _ := t.hosts.Get(name); name != "" && !h.Proven {
		t.setHost(name, host{Record: Record{Proven: true, LastAttempt: h.LastAttempt}})
	}
}

// restoredToHost updates a host from the saved record of a URL, if no record of the host was saved.
func (t *RelayHealthTracker) restoredToHost(u graspsync.RelayURL, r Record) {
	name := Host(u)
	if r.Proven {
		t.prove(u)
		return
	}
	h, ok := t.hosts.Get(name)
	if name == "" || h.Proven || ok && h.Failures >= r.Failures {
		return
	}
	r.NextAttempt = backoff.Later(r.NextAttempt, h.NextAttempt)
	t.setHost(name, host{Record: r})
}

// secondTurn is the additional wait of a host's other URLs.
const secondTurn = 2 * time.Second

// nextOfHost returns the earliest time at which the host's record allows an attempt at u. r is the
// record of u.
func (t *RelayHealthTracker) nextOfHost(u graspsync.RelayURL, r Record, now time.Time) time.Time {
	h, _ := t.hosts.Get(Host(u)) // the name "" has no record
	switch h.Record = h.settle(now); {
	case h.Proven:
		return time.Time{}
	case h.inUse() && h.by != u:
		// The current attempt shows by then whether the host is a relay.
		return backoff.Later(h.NextAttempt, backoff.Later(h.LastAttempt, h.ConnectedAt).Add(heldFor))
	}
	// Invented paths must not take all attempts of the root path, which most relays use.
	if others := h.Failures - r.Failures; others > 0 && (u.Path() != "" || others < r.Failures) {
		return h.NextAttempt.Add(secondTurn)
	}
	return h.NextAttempt
}

// ExportHost returns the record of a [Host] for saving, or false.
func (t *RelayHealthTracker) ExportHost(name string) (Record, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	h, ok := t.hosts.Get(name)
	return h.settle(now).countTo(now).saved(), ok
}

// ImportHost restores a host's record of an earlier process, with the rules of Import, before or
// after Import. The stricter record wins.
func (t *RelayHealthTracker) ImportHost(name string, r Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	known, ok := t.hosts.Get(name)
	if name == "" || known.Proven || known.inUse() {
		return
	}
	r = t.config.restore(r, time.Now(), t.random())
	if ok && !r.Proven && known.Failures > r.Failures {
		known.NextAttempt = backoff.Later(known.NextAttempt, r.NextAttempt)
		r = known.Record
	}
	t.setHost(name, host{Record: r})
}
