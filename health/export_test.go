package health

import "time"

// WithRandom returns a copy with another source of random numbers.
func (c Config) WithRandom(random func() float64) Config {
	if c.random == nil {
		c.random = random
	}
	return c
}

// HostNext returns the earliest time at which an unproven host may be dialed under any URL. It is
// zero for a proven or unknown host.
func (t *RelayHealthTracker) HostNext(host string) time.Time {
	t.mu.Lock()
	defer t.mu.Unlock()
	h, _ := t.hosts.Get(host)
	return h.NextAttempt
}

// HostProven reports whether a relay at the host has ever held a connection for a minute.
func (t *RelayHealthTracker) HostProven(host string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	h, _ := t.hosts.Get(host)
	return h.Proven
}

// Len returns the number of records, including forgotten relays.
func (t *RelayHealthTracker) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.records.Len()
}
