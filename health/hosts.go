package health

import (
	"net/netip"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
)

// hosts keeps a record for each host: what happened to all of its relay URLs, read
// as if they were one relay. Whoever lists a thousand paths and ports of a host that
// is no relay brings it the attempts of one. As soon as one URL of a host has held a
// connection for a minute, the host is proven, and each of its URLs has only its own
// backoff.
//
// The zero value is not usable; see newHosts.
type hosts struct {
	table table[string]
	// by is the URL whose attempt or connection a host's record is about.
	by map[string]graspsync.RelayURL
}

func newHosts(most int) hosts {
	return hosts{table: newTable[string](most), by: make(map[string]graspsync.RelayURL)}
}

// Host returns the name under which the tracker keeps the host of a relay: the name
// or address without a port. It is empty for a loopback, private or link-local
// address and for localhost: these are not shared with strangers, since nothing but
// an operator's own permission lets them be dialed, and many relays may run there.
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

// apply has a host's record follow what happens to one of its URLs.
func (h *hosts) apply(c Config, u graspsync.RelayURL, e event, now time.Time, jitter float64) {
	name := Host(u)
	r, ok := h.table.get(name)
	if name == "" || e.kind == rateLimited || ok && r.Proven {
		return
	}
	if e.kind == forgiven {
		if ok && !r.inUse() { // else another URL is being tried, which will tell
			r.NextAttempt = time.Time{}
			h.set(name, r)
		}
		return
	}
	if r.inUse() && h.by[name] != u && e.kind != attempt && e.kind != hostile {
		// The end of an attempt that was accounted for when another one began.
		return
	}
	if !ok && (e.kind == lost || e.kind == hung || e.kind == closed || e.kind == stopped) {
		return
	}
	switch e.kind {
	case attempt, connected:
		h.by[name] = u
	}
	e.text = "" // the relay's record has it
	r = c.step(r, e, now, jitter)
	if !r.inUse() {
		delete(h.by, name)
	}
	h.set(name, r)
}

// set stores a record, and drops what belonged to one that had to go for it.
func (h *hosts) set(name string, r Record) {
	if gone, ok := h.table.set(name, r); ok {
		delete(h.by, gone)
	}
}

// prove notes that a URL of the host has held a connection.
func (h *hosts) prove(u graspsync.RelayURL) {
	name := Host(u)
	r, _ := h.table.get(name)
	if name == "" || r.Proven {
		return
	}
	delete(h.by, name)
	h.set(name, Record{Proven: true, LastAttempt: r.LastAttempt})
}

// restored has a host learn from the saved record of one of its URLs, for a host
// whose own record was not saved.
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

// secondTurn is how much longer than its turn a host's other URLs wait.
const secondTurn = 2 * time.Second

// next is the earliest time that the host's record allows an attempt at u; r is u's
// own record.
func (h *hosts) next(c Config, u graspsync.RelayURL, r Record, now time.Time) time.Time {
	name := Host(u)
	host, _ := h.table.get(name) // there is none of no name
	if by := h.by[name]; host.inUse() && by != u {
		if host = c.settle(host, now); !host.Proven {
			// It will be known by then whether this is a relay.
			return backoff.Later(host.NextAttempt, backoff.Later(host.LastAttempt, host.ConnectedAt).Add(c.fixed.HeldFor))
		}
	}
	if host.Proven {
		return time.Time{}
	}
	// Made-up paths must not take all the turns of the one that most relays have.
	if others := host.Failures - r.Failures; others > 0 && (u.Path() != "" || others < r.Failures) {
		return host.NextAttempt.Add(secondTurn)
	}
	return host.NextAttempt
}

// Hosts returns the names of all hosts that have a record, in no particular order.
func (t *RelayHealthTracker) Hosts() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.hosts.table.wanted()
}

// ExportHost returns the record of a host, as [Host] names it, for saving; false if
// there is none. It changes whenever the record of one of its relays does, until the
// host is proven, and is saved when that is.
func (t *RelayHealthTracker) ExportHost(host string) (Record, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := time.Now()
	r, ok := t.hosts.table.get(host)
	return t.config.settle(r, now).countTo(now).saved(), ok
}

// ImportHost takes over a host's record that an earlier process saved, by the rules
// of Import. It belongs before the first attempt, and before or after Import: the
// stricter record holds. For an empty name, and a host that was tried already,
// nothing happens.
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
