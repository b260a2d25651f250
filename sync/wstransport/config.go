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
	// UserAgent is the HTTP header of that name. Defaults to "graspsync".
	UserAgent string
	// ReadBudget limits the bytes of messages that are being read, over all connections of a
	// Transport. Each connection has 64 KiB of its own. A larger message waits for 2 MiB + 4 KiB of
	// the budget before more of it is read. A host has at most four such messages at a time, and
	// hosts take turns. The bytes are returned when Receive is called again. A value below the size
	// of one message is raised to that size. Defaults to 16 MiB. Together with the InFlight of a
	// manager, 48 MiB, this limits received and not yet stored data to 64 MiB.
	ReadBudget int64
	// NoCompression turns off permessage-deflate, which costs less CPU and more traffic. Requests
	// are never compressed. Defaults to false.
	NoCompression bool
	// Logger gets dropped messages at debug level. Defaults to none.
	Logger *slog.Logger

	fixed constants
}

// constants are values that only tests change.
type constants struct {
	// ReadLimit is the maximum size of a message, in bytes after decompression. A larger message
	// ends the connection. Below 2 MiB + 4 KiB, reconciliation of large sets with khatru fails. An
	// event may have 512 KiB in any case. Defaults to 2 MiB + 4 KiB.
	ReadLimit int64
	// PingInterval is the time between two pings. Above 30 s, relays that count pongs may
	// disconnect us while we are busy. Defaults to 29 s.
	PingInterval time.Duration
	// MaxRequest is the maximum size of a request, in bytes, for a relay whose document has no
	// max_message_length. Relays end the connection if a request is larger than they accept.
	// Defaults to 512,000, the limit of khatru.
	MaxRequest int
	// DialTimeout limits a Dial whose context has no deadline. Defaults to 30 s.
	DialTimeout time.Duration
	// WriteTimeout limits one write. A relay that does not read for that time is disconnected.
	// Defaults to 10 s.
	WriteTimeout time.Duration
	// PingTimeout is the maximum silence of a relay after a ping. It is also the time within which
	// 16 KiB of a large message must arrive. If it is too small, relays on slow links are
	// disconnected. Defaults to 10 s.
	PingTimeout time.Duration
	// InfoTimeout limits the request for the NIP-11 document. Defaults to 5 s.
	InfoTimeout time.Duration
	// MaxMalformed is the number of consecutive malformed messages that ends the connection. 8 MiB
	// of them end it too. Messages with an unknown label count if they come faster than one per
	// second. If it is too small, a relay is disconnected for a few invalid events of another
	// program. Defaults to 100.
	MaxMalformed int
}

// withDefaults returns a copy with every field set.
func (c Config) withDefaults() Config {
	setDefault(&c.UserAgent, "graspsync")
	setDefault(&c.fixed.ReadLimit, 2<<20+4<<10)
	setDefault(&c.ReadBudget, 16<<20)
	c.ReadBudget = max(c.ReadBudget, c.fixed.ReadLimit)
	setDefault(&c.fixed.MaxRequest, 512_000)
	setDefault(&c.fixed.DialTimeout, 30*time.Second)
	setDefault(&c.fixed.WriteTimeout, 10*time.Second)
	setDefault(&c.fixed.PingInterval, 29*time.Second)
	setDefault(&c.fixed.PingTimeout, 10*time.Second)
	setDefault(&c.fixed.InfoTimeout, 5*time.Second)
	setDefault(&c.fixed.MaxMalformed, 100)
	setDefault(&c.Logger, slog.New(slog.DiscardHandler))
	return c
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// validate returns an error that names every invalid field.
func (c Config) validate() error {
	var errs []error
	if c.Dialer == nil {
		errs = append(errs, errors.New("Dialer: required"))
	}
	for i := range len(c.UserAgent) {
		if b := c.UserAgent[i]; b < ' ' || b >= 0x7f {
			errs = append(errs, errors.New("UserAgent: not printable ASCII"))
			break
		}
	}
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"ReadLimit", c.fixed.ReadLimit},
		{"ReadBudget", c.ReadBudget},
		{"MaxRequest", int64(c.fixed.MaxRequest)},
		{"DialTimeout", int64(c.fixed.DialTimeout)},
		{"WriteTimeout", int64(c.fixed.WriteTimeout)},
		{"PingInterval", int64(c.fixed.PingInterval)},
		{"PingTimeout", int64(c.fixed.PingTimeout)},
		{"InfoTimeout", int64(c.fixed.InfoTimeout)},
		{"MaxMalformed", int64(c.fixed.MaxMalformed)},
	} {
		if f.value < 0 {
			errs = append(errs, fmt.Errorf("%s: negative", f.name))
		}
	}
	return errors.Join(errs...)
}
