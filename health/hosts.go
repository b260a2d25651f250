package health

import (
	"net/netip"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
)

// hosts contains a record for each host, made from the events of all its relay URLs as if they were
// one relay. A user who lists a thousand paths and ports of a host thus causes the attempts of one.
// When one URL has held a connection for a minute, the host is proven. Then each URL has only its
// own backoff.
//
// The zero value is not usable, see newHosts.
type hosts struct {
	table table[string]
	// by is the URL of the current attempt or connection of a host.
	by map[string]graspsync.RelayURL
}

func newHosts(most int) hosts {
	return hosts{table: newTable[string](most), by: make(map[string]graspsync.RelayURL)}
}

// Host returns the host of a relay, as a name or address without port, for ExportHost. It returns
// "" for localhost and for loopback, private and link-local addresses. Only an operator can allow
// these addresses, and many relays may run on them, so they share no backoff.
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

// apply applies an event of a URL to the record of its host.
func (h *hosts) apply(c Config, u graspsync.RelayURL, e event, now time.Time, jitter float64) {
	name := Host(u)
	r, ok := h.table.get(name)
	if name == "" || e.kind == rateLimited || ok && r.Proven {
		return
	}
	if e.kind == forgiven {
		if ok && !r.inUse() { // otherwise an attempt at another URL will decide
			r.NextAttempt = time.Time{}
			h.set(name, r)
		}
		return
	}
	if r.inUse() && h.by[name] != u && e.kind != attempt && e.kind != hostile {
		// The attempt was already counted when another attempt began.
		return
	}
	if !ok && (e.kind == lost || e.kind == hung || e.kind == closed || e.kind == stopped) {
		return
	}
	switch e.kind {
	case attempt, connected:
		h.by[name] = u
	}
	e.text = "" // the record of the relay contains the text
	r = c.step(r, e, now, jitter)
	if !r.inUse() {
		delete(h.by, name)
	}
	h.set(name, r)
}

// set stores a record and removes data of an evicted host.
func (h *hosts) set(name string, r Record) {
	if gone, ok := h.table.set(name, r); ok {
		delete(h.by, gone)
	}
}

// prove marks the host of a URL as proven.
func (h *hosts) prove(u graspsync.RelayURL) {
	name := Host(u)
	r, _ := h.table.get(name)
	if name == "" || r.Proven {
		return
	}
	delete(h.by, name)
	h.set(name, Record{Proven: true, LastAttempt: r.LastAttempt})
}

// restored updates a host from the saved record of a URL, if no record of the host was saved.
func (h *hosts) restored(u graspsync.RelayURL, r Record) {
	name := Host(u)
	if r.Proven {
		h.prove(u)
		return
	}
	host, ok := h.table.get(name)
	if name == "" || host.Proven || ok && host.Failures >= r.Failures {
		return
	}
	r.NextAttempt = backoff.Later(r.NextAttempt, host.NextAttempt)
	h.set(name, r)
}

// secondTurn is the additional wait of a host's other URLs.
const secondTurn = 2 * time.Second

// next returns the earliest time at which the host's record allows an attempt at u. r is the record
// of u.
func (h *hosts) next(c Config, u graspsync.RelayURL, r Record, now time.Time) time.Time {
	name := Host(u)
	host, _ := h.table.get(name) // the name "" has no record
	if by := h.by[name]; host.inUse() && by != u {
		if host = c.settle(host, now); !host.Proven {
			// The current attempt shows by then whether the host is a relay.
			return backoff.Later(host.NextAttempt, backoff.Later(host.LastAttempt, host.ConnectedAt).Add(c.fixed.HeldFor))
		}
	}
	if host.Proven {
		return time.Time{}
	}
	// Invented paths must not take all attempts of the root path, which most relays use.
	if others := host.Failures - r.Failures; others > 0 && (u.Path() != "" || others < r.Failures) {
		return host.NextAttempt.Add(secondTurn)
	}
	return host.NextAttempt
}

// ExportHost returns the record of a host, named by [Host], for saving. It returns false if none
// exists. The record changes with the records of its relays until the host is proven.
func (t *RelayHealthTracker) ExportHost(host string) (Record, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	r, ok := t.hosts.table.get(host)
	return t.config.settle(r, now).countTo(now).saved(), ok
}

// ImportHost restores a host's record of an earlier process, with the rules of Import. Call it
// before the first attempt, before or after Import. The stricter record wins. It does nothing for
// an empty name, or if an attempt at the host was made.
func (t *RelayHealthTracker) ImportHost(host string, r Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	known, ok := t.hosts.table.get(host)
	if host == "" || known.Proven || known.inUse() {
		return
	}
	r = t.config.restore(r, time.Now(), t.config.random())
	if ok && !r.Proven && known.Failures > r.Failures {
		known.NextAttempt = backoff.Later(known.NextAttempt, r.NextAttempt)
		r = known
	}
	t.hosts.set(host, r)
}
