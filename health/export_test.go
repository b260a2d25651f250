package health

import "time"

// Fixed contains limits that only tests change.
type Fixed = constants

// Fixed returns the limits of a configuration.
func (c *Config) Fixed() *Fixed { return &c.fixed }

// With returns a copy with other limits.
func (c Config) With(f Fixed) Config {
	c.fixed = f
	return c
}

// HostNext returns the earliest time at which an unproven host may be dialed under any URL. It is
// zero for a proven or unknown host.
func (t *RelayHealthTracker) HostNext(host string) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, _ := t.hosts.table.get(host)
	if r = t.config.settle(r, time.Now()); r.Proven {
		return time.Time{}
	}
	return r.NextAttempt
}

// HostProven reports whether a relay at the host has ever held a connection for a minute.
func (t *RelayHealthTracker) HostProven(host string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, _ := t.hosts.table.get(host)
	return t.config.settle(r, time.Now()).Proven
}

// Len returns the number of records, including forgotten relays.
func (t *RelayHealthTracker) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.records.slots)
}
