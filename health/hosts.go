package health

import (
	"net/netip"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/limit"
)

// Host returns the host of a relay, as a name or address without port. It returns "" for localhost
// and for loopback, private and link-local addresses, where many relays of one operator may run.
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

// applyToHost applies an event of a URL, whose record was before, to the record of its host. An
// attempt at any URL counts as a failure of the host when it begins. When one URL has held a
// connection for a minute, each URL has only its own backoff. The caller holds mu, as for all methods
// without their own lock.
func (t *RelayHealthTracker) applyToHost(u graspsync.RelayURL, before Record, e event, now time.Time, jitter float64) {
	name, rules := Host(u), t.config.rules()
	h, _ := t.hosts.Get(name)
	switch {
	case name == "" || h.Proven:
		return
	case e.kind == attempt, !before.inUse() && (e.kind == connected || e.kind == failed):
		h.Record = rules.Fail(rules.Begin(h.Record, now), now, jitter)
	case e.kind == forgiven:
		h.NextAttempt = time.Time{}
	case !before.inUse() || h.Failures == 0:
		return
	case e.kind == failed:
		h.NextAttempt = backoff.Later(h.NextAttempt, t.config.requestedTime(e, now, jitter))
	case e.kind == hostile:
		h.NextAttempt = backoff.Later(h.NextAttempt, now.Add(backoff.AddJitter(hostileBackoff, jitter)))
	case e.kind == closed, e.kind == stopped, e.kind == refused: // no failure
		if h.Failures--; h.Failures == 0 {
			h.FailingSince = time.Time{}
			if e.kind == stopped && before.connected() {
				h = Record{} // the next process may dial immediately
			}
		}
		if e.kind == refused {
			h.NextAttempt = now // nothing was sent
		}
	}
	t.hosts.Put(name, limit.Stranger{}, 0, h)
}

func (k kind) createsNoRecord() bool {
	return k == lost || k == hung || k == closed || k == stopped || k == forgiven
}

func (t *RelayHealthTracker) current(u graspsync.RelayURL, now time.Time) (Record, bool) {
	r, ok := t.records.Get(u)
	if r = r.settle(now); r.Proven {
		name := Host(u)
		if h, _ := t.hosts.Get(name); name != "" && !h.Proven {
			t.hosts.Put(name, limit.Stranger{}, 0, Record{Record: backoff.Record{LastAttempt: h.LastAttempt}, Proven: true})
		}
	}
	return r, ok
}

func (t *RelayHealthTracker) restoreHost(name string, r Record) {
	h, _ := t.hosts.Get(name)
	if name == "" || h.Proven {
		return
	}
	if !r.Proven && h.Failures > r.Failures {
		h, r = r, h
	}
	r.NextAttempt = backoff.Later(r.NextAttempt, h.NextAttempt)
	t.hosts.Put(name, limit.Stranger{}, 0, r)
}

// otherURLWait is the additional wait for a URL after an attempt at another URL of its host.
const otherURLWait = 2 * time.Second

// nextOfHost returns the earliest time at which the host's record allows an attempt at u. r is the
// record of u.
func (t *RelayHealthTracker) nextOfHost(u graspsync.RelayURL, r Record) time.Time {
	h, _ := t.hosts.Get(Host(u)) // the name "" has no record
	if h.Proven {
		return time.Time{}
	}
	// Invented paths must not take all attempts of the root path, which most relays use.
	if others := h.Failures - r.Failures; others > 0 && (u.Path() != "" || others < r.Failures) {
		return h.NextAttempt.Add(otherURLWait)
	}
	return h.NextAttempt
}

// ExportHost returns the record of a [Host] for saving, or false.
func (t *RelayHealthTracker) ExportHost(name string) (Record, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.hosts.Get(name)
}

// ImportHost restores a host's record of an earlier process, with the rules of Import, before or
// after Import. The stricter record wins.
func (t *RelayHealthTracker) ImportHost(name string, r Record) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.restoreHost(name, t.config.restore(r, time.Now(), t.random()))
}
