package health

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/graspsync/graspsync/internal/backoff"
)

// Config holds the times of the rules. The zero value is usable.
type Config struct {
	// BaseBackoff is the wait after a first failure; each further failure in a row
	// doubles it, up to 1 h. A small one hammers relays that are down. Defaults to 5 s; at
	// most 1 h.
	BaseBackoff time.Duration
	// RestartPause is the shortest time between two attempts at a relay when the
	// process was started anew in between. Defaults to 1 min.
	RestartPause time.Duration
	// MaxRecords is the largest number of relays that are remembered. A relay beyond
	// it displaces the one heard of longest ago: of those that are forgotten, else
	// never worked, else are not in use. That one loses its place in the backoff. A
	// record takes about 1 KiB. Defaults to 50,000.
	MaxRecords int

	fixed constants
}

// RateLimitPause is how long a relay is left in peace at least that complained of too many
// requests.
const RateLimitPause = 65 * time.Second

// constants are the numbers about which no two operators would differ. Only tests have others.
type constants struct {
	// RateLimit is how long a relay is left in peace after it complained of too
	// many requests. It doubles, up to 1 h, while the relay complains again within 5 min.
	// Defaults to 65 s.
	RateLimit time.Duration
	// MaxBackoff is where doubling ends. A large one makes relays that come back
	// wait to be noticed. It must not be below BaseBackoff, and not above the 24 h after
	// which a dead relay is tried again. Defaults to 1 h.
	MaxBackoff time.Duration
	// DeadAfter is how long a relay must do nothing but fail until it is dead.
	// Defaults to 24 h.
	DeadAfter time.Duration
	// DeadInterval is the wait between two attempts at a dead relay. It must not be
	// below MaxBackoff. Defaults to 24 h.
	DeadInterval time.Duration
	// Jitter is the largest share by which a wait is lengthened at random, from 0
	// to 1, so that servers that lost the same relay don't come back in step.
	// Defaults to 0.1; to have none, set Rand to a function that returns 0.
	Jitter float64
	// HeldFor is how long a connection must hold to count as a success. With a
	// short one a flapping relay is redialed without end. Defaults to 1 min.
	HeldFor time.Duration
	// RedialWithin is the longest wait before a connection that had held is dialed
	// again; the wait is chosen at random. Defaults to 1 s.
	RedialWithin time.Duration
	// DegradedFor is how long a relay counts as degraded after it recovered: it does as well for as long
	// as it fails, before it is dead.
	// Defaults to 5 min.
	DegradedFor time.Duration
	// HostileBackoff is the shortest wait after a relay was caught cheating.
	// Defaults to 1 h.
	HostileBackoff time.Duration
	// MaxHosts is the largest number of hosts that are remembered; what is displaced
	// is chosen as with relays, and loses its place in the backoff. Defaults to
	// 50,000.
	MaxHosts int
	// Rand returns a random number in [0, 1). It is called under a lock, by one
	// goroutine at a time, and must not call the tracker. Defaults to
	// [math/rand/v2.Float64].
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

// validate expects defaults to be filled in.
func (c Config) validate() error {
	var errs []error
	bad := func(name, format string, args ...any) {
		errs = append(errs, fmt.Errorf(name+": "+format, args...))
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"BaseBackoff", c.BaseBackoff},
		{"MaxBackoff", c.fixed.MaxBackoff},
		{"DeadAfter", c.fixed.DeadAfter},
		{"DeadInterval", c.fixed.DeadInterval},
		{"HeldFor", c.fixed.HeldFor},
		{"RedialWithin", c.fixed.RedialWithin},
		{"DegradedFor", c.fixed.DegradedFor},
		{"RateLimit", c.fixed.RateLimit},
		{"HostileBackoff", c.fixed.HostileBackoff},
		{"RestartPause", c.RestartPause},
	} {
		if d.value <= 0 || d.value > backoff.Longest {
			bad(d.name, "%v is not between 0 and %v", d.value, backoff.Longest)
		}
	}
	if c.fixed.MaxBackoff < c.BaseBackoff {
		bad("BaseBackoff", "%v is above %v, where doubling ends", c.BaseBackoff, c.fixed.MaxBackoff)
	}
	if c.fixed.DeadInterval < c.fixed.MaxBackoff {
		bad("MaxBackoff", "%v is above %v: a dead relay would be tried more often than a living one", c.fixed.MaxBackoff, c.fixed.DeadInterval)
	}
	if !(c.fixed.Jitter >= 0 && c.fixed.Jitter <= 1) { // also false for NaN
		bad("Jitter", "%v is not between 0 and 1", c.fixed.Jitter)
	}
	if c.MaxRecords < 1 {
		bad("MaxRecords", "%d is negative", c.MaxRecords)
	}
	if c.fixed.MaxHosts < 1 {
		bad("MaxHosts", "%d is negative", c.fixed.MaxHosts)
	}
	return errors.Join(errs...)
}

// random returns what Rand returns, forced into [0, 1): the rules must hold
// whatever a caller plugs in.
func (c Config) random() float64 {
	switch r := c.fixed.Rand(); {
	case r >= 0 && r < 1:
		return r
	case r >= 1:
		return 1 - 1e-9
	}
	return 0
}

// mostRateLimit is the longest time without requests after a complaint.
func (c Config) mostRateLimit() time.Duration { return max(c.fixed.RateLimit, time.Hour) }
