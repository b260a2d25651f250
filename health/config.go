package health

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/graspsync/graspsync/internal/backoff"
)

// Config contains the times and limits of the backoff. The zero value is usable.
type Config struct {
	// BaseBackoff is the wait after the first failure. Each further consecutive failure doubles the
	// wait, up to 1 h. Small values send many requests to relays that are down. Defaults to 5 s, at
	// most 1 h.
	BaseBackoff time.Duration
	// RestartPause is the minimum time between two attempts at a relay with a restart of the
	// process in between. Defaults to 1 min.
	RestartPause time.Duration
	// MaxRecords is the maximum number of relay records. A further relay evicts the record that
	// changed least recently: first of forgotten relays, then of relays that never worked, then of
	// relays that are not in use. The evicted relay loses its place in the backoff. A record takes
	// about 1 KiB. Defaults to 50,000.
	MaxRecords int

	fixed constants
}

// RateLimitPause is the minimum pause after a relay complained about too many requests.
const RateLimitPause = 65 * time.Second

// constants are limits that only tests change.
type constants struct {
	// RateLimit is the pause after a relay complained about too many requests. It doubles, up to 1
	// h, if the relay complains again within 5 min. Defaults to 65 s.
	RateLimit time.Duration
	// MaxBackoff is the maximum wait between attempts. Large values delay the detection of
	// recovered relays. It must be between BaseBackoff and the 24 h of DeadInterval. Defaults to 1
	// h.
	MaxBackoff time.Duration
	// DeadAfter is the time of uninterrupted failures after which a relay is dead. Defaults to 24
	// h.
	DeadAfter time.Duration
	// DeadInterval is the wait between attempts at a dead relay. It must be at least MaxBackoff.
	// Defaults to 24 h.
	DeadInterval time.Duration
	// Jitter is the maximum random extension of a wait, as a fraction from 0 to 1, so that servers
	// do not retry a relay at the same time. Defaults to 0.1. For no jitter, set Rand to a function
	// that returns 0.
	Jitter float64
	// HeldFor is the time after which a connection counts as a success. With a short time, a
	// flapping relay is redialed forever. Defaults to 1 min.
	HeldFor time.Duration
	// RedialWithin is the maximum random wait before a successful connection is redialed. Defaults
	// to 1 s.
	RedialWithin time.Duration
	// DegradedFor is the time for which a recovered relay counts as degraded. Defaults to 5 min.
	DegradedFor time.Duration
	// HostileBackoff is the minimum wait after a relay sent forged data. Defaults to 1 h.
	HostileBackoff time.Duration
	// MaxHosts is the maximum number of host records. Eviction works like for MaxRecords. Defaults
	// to 50,000.
	MaxHosts int
	// Rand returns a random number in [0, 1). It is called by one goroutine at a time, under a
	// lock, and must not call the tracker. Defaults to [math/rand/v2.Float64].
	Rand func() float64
}

func (c Config) withDefaults() Config {
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{
		{&c.BaseBackoff, backoff.Base},
		{&c.fixed.MaxBackoff, backoff.Max},
		{&c.fixed.DeadAfter, backoff.DeadAfter},
		{&c.fixed.DeadInterval, backoff.DeadInterval},
		{&c.fixed.HeldFor, time.Minute},
		{&c.fixed.RedialWithin, time.Second},
		{&c.fixed.DegradedFor, 5 * time.Minute},
		{&c.fixed.RateLimit, RateLimitPause},
		{&c.fixed.HostileBackoff, time.Hour},
		{&c.RestartPause, backoff.RestartPause},
	} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if c.fixed.Jitter == 0 {
		c.fixed.Jitter = backoff.Jitter
	}
	if c.MaxRecords == 0 {
		c.MaxRecords = 50_000
	}
	if c.fixed.MaxHosts == 0 {
		c.fixed.MaxHosts = 50_000
	}
	if c.fixed.Rand == nil {
		c.fixed.Rand = rand.Float64
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	bad := func(name, format string, args ...any) {
		errs = append(errs, fmt.Errorf(name+": "+format, args...))
	}
	if c.BaseBackoff <= 0 || c.BaseBackoff > c.fixed.MaxBackoff {
		bad("BaseBackoff", "%v is not between 0 and %v, where doubling ends", c.BaseBackoff, c.fixed.MaxBackoff)
	}
	if c.RestartPause <= 0 || c.RestartPause > backoff.Longest {
		bad("RestartPause", "%v is not between 0 and %v", c.RestartPause, backoff.Longest)
	}
	if c.MaxRecords < 1 {
		bad("MaxRecords", "%d is negative", c.MaxRecords)
	}
	return errors.Join(errs...)
}

// random returns Rand's result, limited to [0, 1).
func (c Config) random() float64 {
	switch r := c.fixed.Rand(); {
	case r >= 0 && r < 1:
		return r
	case r >= 1:
		return 1 - 1e-9
	}
	return 0
}

// mostRateLimit returns the maximum pause after a complaint.
func (c Config) mostRateLimit() time.Duration { return max(c.fixed.RateLimit, time.Hour) }
