package filestate

import (
	"errors"
	"fmt"
	"log/slog"
)

// Config holds what may be set about a [Store]. The zero value works.
type Config struct {
	// MaxBytes is the largest sum of the lengths of all keys and values; what does
	// not fit is refused with state.ErrFull. They are in memory, and on the disk
	// twice to three times. Defaults to 256 MiB.
	MaxBytes int64
	// Logger gets what is damaged and what fails. Defaults to discarding it.
	Logger *slog.Logger

	fixed constants
}

// constants are the numbers about which no two operators would differ. Only tests have others.
type constants struct {
	// MaxKeys is the largest number of keys. Defaults to 250,000.
	MaxKeys int
}

func (c Config) withDefaults() Config {
	if c.MaxBytes == 0 {
		c.MaxBytes = 256 << 20
	}
	if c.fixed.MaxKeys == 0 {
		c.fixed.MaxKeys = 250_000
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.MaxBytes < 0 || c.MaxBytes > 1<<31 {
		errs = append(errs, fmt.Errorf("MaxBytes is %d, want 0 to 2 GiB", c.MaxBytes))
	}
	if c.fixed.MaxKeys < 0 {
		errs = append(errs, fmt.Errorf("MaxKeys is %d, want a positive number", c.fixed.MaxKeys))
	}
	return errors.Join(errs...)
}

// Stats is how a [Store] is doing.
type Stats struct {
	Keys  int   // that have a value
	Bytes int64 // lengths of all keys and values
	File  int64 // length of the log

	// Since Open:
	Writes   uint64 // changes made durable
	Syncs    uint64 // of a log; many writes share one
	Rewrites uint64 // logs written anew, the one at Open included
	Failures uint64 // groups of writes that failed
	Refused  uint64 // writes that did not fit

	// What Open found:
	SetAside      int   // damaged stretches with good records behind them
	SetAsideBytes int64 // their length
	Torn          int64 // bytes cut off the end of the log
}
