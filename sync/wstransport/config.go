package wstransport

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/graspsync/graspsync/egress"
)

// Config configures a [Transport]. Zero fields mean their defaults.
type Config struct {
	// Dialer makes every connection, including those for NIP-11 documents. Required.
	Dialer *egress.Dialer
	// ReadBudget limits the bytes of messages that are being read, over all connections. Each
	// connection has 64 KiB of its own. A larger message waits for 2 MiB + 4 KiB of the budget, the
	// minimum, at most four of one host at a time. Defaults to 16 MiB. With the InFlight of a
	// manager, 48 MiB, received and not yet stored data takes at most 64 MiB.
	ReadBudget int64
	// Logger gets dropped messages at debug level. Defaults to none.
	Logger *slog.Logger

	fixed constants
}

type constants struct {
	// PingInterval is the time between two pings. Some relays disconnect clients without pongs.
	// Defaults to 29 s.
	PingInterval time.Duration
	// PingTimeout is the maximum silence of a relay after a ping, and the time within which 16 KiB
	// of a large message must arrive. Defaults to 10 s.
	PingTimeout time.Duration
	// WriteTimeout limits one write. Defaults to 10 s.
	WriteTimeout time.Duration
}

const (
	// readLimit is the maximum size of a message, in bytes after decompression. With less,
	// reconciliation of large sets with khatru fails.
	readLimit = 2<<20 + 4<<10
	// defaultMaxRequest is the maximum size of a request, in bytes, for a relay whose document names
	// none. It is the limit of khatru.
	defaultMaxRequest = 512_000
	// dialTimeout limits a Dial whose context has no deadline.
	dialTimeout = 30 * time.Second
	infoTimeout = 5 * time.Second
	// maxMalformed and maxMalformedBytes limit consecutive malformed messages. Those with an
	// unknown label count only as bytes, because newer relays may send new messages.
	maxMalformed      = 100
	maxMalformedBytes = 8 << 20
)

func (c Config) withDefaults() Config {
	if c.ReadBudget == 0 {
		c.ReadBudget = 16 << 20
	}
	c.ReadBudget = max(c.ReadBudget, readLimit)
	for _, d := range []struct {
		field *time.Duration
		value time.Duration
	}{{&c.fixed.PingInterval, 29 * time.Second}, {&c.fixed.PingTimeout, 10 * time.Second}, {&c.fixed.WriteTimeout, 10 * time.Second}} {
		if *d.field == 0 {
			*d.field = d.value
		}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	return c
}

func (c Config) validate() error {
	var errs []error
	if c.Dialer == nil {
		errs = append(errs, errors.New("Dialer: required"))
	}
	if c.ReadBudget < 0 {
		errs = append(errs, fmt.Errorf("ReadBudget: %d is negative", c.ReadBudget))
	}
	return errors.Join(errs...)
}
