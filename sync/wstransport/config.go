package wstransport

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/graspsync/graspsync/egress"
)

// Config says how a [Transport] speaks to relays. Zero fields stand for their
// defaults.
type Config struct {
	// Dialer makes every connection, that for the NIP-11 document too. Required.
	Dialer *egress.Dialer
	// UserAgent is what relays see in the HTTP header of that name. Defaults to
	// "graspsync".
	UserAgent string
	// ReadBudget bounds the bytes of the messages that are being read, over all connections of a
	// Transport. Each connection has 64 KiB of its own. A larger message waits for 2 MiB + 4 KiB of the
	// budget before more of it is read. A host has at most four such messages at a time, and hosts take
	// turns. The bytes are returned when Receive is called again. A value below the size of one message
	// is raised to that size. Defaults to 16 MiB, which together with the InFlight of a manager, 48 MiB,
	// makes 64 MiB for all that relays have sent and that is not stored yet.
	ReadBudget int64
	// NoCompression turns off permessage-deflate: less work, more traffic. What we
	// send is never compressed. Defaults to false.
	NoCompression bool
	// Logger is told at debug level what is dropped. Defaults to none.
	Logger *slog.Logger

	fixed constants
}

// constants are the numbers about which no two operators would differ. Only tests have others.
type constants struct {
	// ReadLimit is the largest message that is read, in bytes after inflation; a
	// larger one ends the connection. Below 2 MiB + 4 KiB, khatru's reconciliation
	// of large sets fails. An event may have 512 KiB, whatever this is. Defaults to
	// 2 MiB + 4 KiB.
	ReadLimit int64
	// PingInterval is the time between two signs of life that we give and ask for.
	// Above 30 s, relays that count pongs may cut us while we are busy. Defaults to
	// 29 s.
	PingInterval time.Duration
	// MaxRequest is the largest request that is sent to a relay whose document
	// names no max_message_length, in bytes. Relays cut the connection over larger
	// ones than they take. Defaults to 512,000, which is khatru's limit.
	MaxRequest int
	// DialTimeout bounds a Dial whose context has no deadline. Defaults to 30 s.
	DialTimeout time.Duration
	// WriteTimeout bounds one write. A relay that does not read for that long is
	// disconnected. Defaults to 10 s.
	WriteTimeout time.Duration
	// PingTimeout is how long a relay may be silent after a ping. Too small a value
	// cuts relays on slow links; it is also the time within which 16 KiB of a large
	// message must arrive. Defaults to 10 s.
	PingTimeout time.Duration
	// InfoTimeout bounds the fetch of the NIP-11 document. Defaults to 5 s.
	InfoTimeout time.Duration
	// MaxMalformed is how many malformed messages in a row end the connection; 8
	// MiB of them do so as well. Messages with an unknown label count if they come
	// faster than one a second. Too small a value cuts a relay for a few events
	// that some other program got wrong. Defaults to 100.
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

// validate names every bad field.
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
