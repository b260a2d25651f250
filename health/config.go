package health

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/graspsync/graspsync/internal/backoff"
)

// Config contains the times and limits of the backoff. The zero value is usable.
type Config struct {
	// BaseBackoff is the wait after the first failure. Each further consecutive failure doubles it,
	// up to 1 h. Defaults to 5 s, at most 1 h.
	BaseBackoff time.Duration
	// RestartPause is the minimum time between two attempts at a relay with a restart of the
	// process in between. Defaults to 1 min.
	RestartPause time.Duration
	// MaxRecords is the maximum number of relay records, of about 1 KiB. A further relay evicts the
	// least recently changed record that is not in use. Defaults to 50,000.
	MaxRecords int

	random func() float64 // in [0, 1); only tests change it
}

const (
	successAfter   = time.Minute     // time after which a connection counts as a success
	maxRedialWait  = time.Second     // maximum random wait before a held connection is redialed
	degradedFor    = 5 * time.Minute // time for which a recovered relay counts as degraded
	hostileBackoff = time.Hour       // minimum wait after a relay sent forged data
	refusedPause   = time.Minute     // wait after our own settings forbade a dial, doubled up to backoff.Max
	maxHosts       = 50_000
)

func (c Config) withDefaults() Config {
	c.BaseBackoff = cmp.Or(c.BaseBackoff, backoff.Base)
	c.RestartPause = cmp.Or(c.RestartPause, backoff.RestartPause)
	c.MaxRecords = cmp.Or(c.MaxRecords, 50_000)
	if c.random == nil {
		c.random = rand.Float64
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.BaseBackoff <= 0 || c.BaseBackoff > backoff.Max {
		errs = append(errs, fmt.Errorf("BaseBackoff: %v is not between 0 and %v, where doubling ends", c.BaseBackoff, backoff.Max))
	}
	if c.RestartPause <= 0 || c.RestartPause > backoff.MaxDuration {
		errs = append(errs, fmt.Errorf("RestartPause: %v is not between 0 and %v", c.RestartPause, backoff.MaxDuration))
	}
	if c.MaxRecords < 1 {
		errs = append(errs, fmt.Errorf("MaxRecords: %d is negative", c.MaxRecords))
	}
	return errors.Join(errs...)
}
