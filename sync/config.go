package sync

import (
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/health"
	"github.com/graspsync/graspsync/nip34"
	statestore "github.com/graspsync/graspsync/state" // the tests have a state of their own
	"github.com/graspsync/graspsync/sync/batchverify"
)

// Config holds what may be set about a [SyncManager]. The zero value works: a field
// that is zero has its default, a negative one is refused.
type Config struct {
	// Bootstrap relays are followed whether or not a repository lists them, and
	// never forgotten. Our own relay among them is an error. Defaults to none: what
	// is in the Store says where to begin.
	Bootstrap []graspsync.RelayURL
	// AllowPlaintext lets ws:// relays be followed. What they send is signed, but
	// whoever is between sees it. Defaults to false: they are ignored and counted.
	AllowPlaintext bool
	// NarrowLayer1 has relays asked for announcements, and for the states of our
	// repositories by identifier, each relay for those that list it. It pays with relays
	// that hold very many states of foreign repositories: those are not fetched any more,
	// for one more filter for every hundred repositories of a relay. Where so much finds
	// no room that a relay is followed by kinds, all its new states still come. After a
	// restart with another value announcements and states are fetched in full. Defaults
	// to false: both are asked for by one filter, {"kinds":[30617,30618]}.
	NarrowLayer1 bool
	// Policy decides which events we have. Defaults to [NewGRASPPolicy].
	Policy Policy
	// Verifier checks signatures. Defaults to one that checks many at a time where many
	// are at hand, see package batchverify; whoever sends it bad ones can't make that
	// dearer than to check one by one.
	Verifier Verifier
	// State keeps what is to survive a restart: the health of relays, what was learned
	// about them, what is confirmed. Its keys begin with "sync/"; no other manager may
	// use it. The caller closes it after Run has returned. While it can't be written
	// to, relays that never worked are not dialed. Defaults to none: a restart begins
	// with nothing, and a crash loop dials every relay each time.
	State statestore.Store
	// Signer signs for relays that want to know who we are (NIP-42), with a key kept
	// for that purpose: only if they refuse a request for want of it, and at most
	// once per connection. Defaults to none: what such relays refuse is not fetched,
	// and asked for again after RetryMax.
	Signer Signer
	// Health has the times of backoff and rate limiting.
	Health health.Config
	// Logger gets what happens. Defaults to discarding it.
	Logger *slog.Logger
	// Observe is told what happens, as one of the [Observation] types. It is called on
	// one goroutine of Run, in order, and no more after Run has returned. It may take
	// its time and call any method of the manager but Run: what comes meanwhile waits
	// in a queue, and what finds that full is dropped and counted ("observations").
	// Run waits for a call under way when it ends, so a call must not block for ever. A
	// panic in it is contained and logged. Defaults to nobody.
	Observe func(Observation)
	// ObserveQueue bounds the observations that wait. Defaults to 1,024.
	ObserveQueue int
	// OwnRelay is the URL of our own relay where it is another process than this:
	// its announcements, root events and deletions are then read and followed over
	// OwnTransport, instead of being reported by [SyncManager.Stored]. It is trusted
	// to have checked signatures. It may be an internal address; what announcements
	// call us is a matter of the identity. Defaults to none.
	OwnRelay graspsync.RelayURL
	// OwnTransport is what reaches OwnRelay. A transport that refuses addresses that
	// are not public, or our own, as one for strangers' URLs must, may not. Defaults
	// to the transport for all other relays.
	OwnTransport Transport
	// MetricsNamespace goes before the names of the metrics, without an underscore.
	// A dashboard made for this kind of server expects the default. Defaults to
	// "ngit".
	MetricsNamespace string

	// BatchWindow is how long changes of what is wanted are gathered before they
	// are acted upon. A short one makes many small requests of what could be one.
	// Defaults to 5 s.
	BatchWindow time.Duration
	// ConnectTimeout bounds one connection attempt. Defaults to 10 s.
	ConnectTimeout time.Duration
	// QuickReconnect is how long a connection may have been lost for just the time
	// in between to be fetched; after more, everything is. Defaults to 15 min.
	QuickReconnect time.Duration
	// Overlap is how far such a catch-up reaches back behind the last sign of life,
	// because clocks differ and events travel. Defaults to 15 min.
	Overlap time.Duration
	// DailyMin and DailyMax are the bounds of the time between two passes over the
	// whole history of a relay. Default to 23 h and 25 h.
	DailyMin, DailyMax time.Duration
	// IdleTimeout ends a request to which nothing more comes, TotalTimeout one that
	// does not end. Default to 30 s and 5 min. For the first event there is more time,
	// [Tuning.FirstAnswer].
	IdleTimeout, TotalTimeout time.Duration
	// BatchTimeout ends a batch of requests, keeping what it fetched; what is left
	// is asked for again. Defaults to 30 min.
	BatchTimeout time.Duration
	// StoreTimeout bounds each call of the Store and the Policy. Defaults to 1 min.
	StoreTimeout time.Duration
	// RetryBase is how long the items of a failed batch wait before they are asked
	// for again on the same connection, doubling up to RetryMax. Default to 30 s and
	// 1 h.
	RetryBase, RetryMax time.Duration
	// NegentropyRetry is how long a relay that did not offer NIP-77 is not asked for
	// it again. Defaults to 4 h.
	NegentropyRetry time.Duration
	// FutureTolerance is how far ahead of our clock an event may be dated. Defaults
	// to 15 min.
	FutureTolerance time.Duration

	// MaxRelays bounds the relays known, MaxConnections those connected to, attempts
	// included, MaxDials the attempts at once. Attempts that are older than a second make
	// room for others and go on beside them: eight times as many at most, and a third of
	// MaxConnections. Default to 50,000, 256 and 10.
	MaxRelays, MaxConnections, MaxDials int
	// MaxRelaysPerRepo is how many relays of one announcement are followed: the first
	// distinct ones that it lists, ourselves among them. Of those that only people name whom
	// the owner lists ([nip34.Family.Targets]) as many are followed besides. The rest is left
	// out, and counted as dropped, "relays_listed". A large one lets an announcement make us
	// dial as many. Defaults to 16; at most 64.
	MaxRelaysPerRepo int
	// MaxRootsPerRepo bounds the patches, pull requests and issues followed of one
	// repository. Defaults to 5,000.
	MaxRootsPerRepo int
	// MaxBatches bounds the batches at once per relay. Defaults to 4.
	MaxBatches int
	// Workers is how many goroutines check signatures. Defaults to GOMAXPROCS.
	Workers int
	// InFlight bounds the bytes of the events on their way into the Store, over all
	// relays. Relays are not read from while it is used up; a quarter of it is for
	// those of which nothing else is on its way. What is being read comes on top;
	// package wstransport has 16 MiB for that. Defaults to 48 MiB; at least 4 MiB.
	InFlight int64
	// Unproductive is the allowance of each relay for bytes that nothing we ask can lead
	// to: what was not asked for, is repeated, malformed or forged. It refills with time
	// ([Tuning.Refill]) and by the size of each event that is stored. A relay that has
	// used it up is disconnected for at least an hour, and counted as dropped,
	// "unproductive". As much again is each relay's allowance for events that it was
	// asked for and that are of no use: rejected, superseded, deleted, or waiting; at
	// least a 2,000th of it for each of them. All of that comes back in 200 s, and at once
	// when an event is stored after all. A relay that has used it up is asked for history
	// as slowly as that, and never cut for it. What refers to our repositories has as much
	// of its own, and as much again for what comes live of that and is not expected to be
	// refused; what the others leave over is lent to newcomers. What else comes live is
	// left out meanwhile, counted as dropped, "unread", and caught up with later. A small one slows honest relays that
	// hold much which is not for us. Defaults to 8 MiB.
	Unproductive int64
	// Waiting bounds the events that are kept whole while they wait for what they
	// depend on, and WaitingBytes their size; of the oldest only the ids are kept, and
	// counted. As many more events, in a quarter of the bytes, are kept that were rejected a
	// moment ago ([Tuning.WholeFor]), and as many again for which there was no room
	// ([graspsync.Later]): of these, where there are more, only the ids, counted as dropped,
	// "postponed". Default to 10,000 and 32 MiB.
	Waiting      int
	WaitingBytes int64
	// Remembered bounds the ids of events that need no second look: those stored
	// that were seen lately, and as many that were rejected or wait, or that there was no
	// room for, for RejectedFor;
	// the oldest go. With few of them rejected events are fetched again at each pass.
	// One costs about 300 bytes. Defaults to 200,000.
	Remembered int
	// RejectedFor is how long the id of a rejected event is remembered, over restarts
	// as well, and the event asked for again if what it depended on arrives; in whole
	// seconds. With a short one rejected events are fetched again at each pass.
	// Defaults to 7 days.
	RejectedFor time.Duration
	// FeedQueue bounds what the own feed gathers between two windows, or a quarter of what
	// is known does if that is more; when it is more than both everything is planned anew,
	// which is slower but loses nothing. Defaults to 10,000.
	FeedQueue int
	// MaxSet bounds the ids loaded to reconcile one filter; for larger sets pages
	// are used. Defaults to 1,000,000.
	MaxSet int
	// MaxLabels bounds the relays with metrics of their own; the others share the
	// label "other". Defaults to 1,000.
	MaxLabels int

	// Tuning has what is seldom changed.
	Tuning Tuning
}

// ErrConfig is wrapped by what [New] says of its arguments.
var ErrConfig = errors.New("invalid configuration")

// withDefaults returns a copy with every unset field set.
func (c Config) withDefaults() Config {
	def(&c.MetricsNamespace, "ngit")
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Verifier == nil {
		c.Verifier = batchverify.New(batchverify.Config{})
	}
	def(&c.Health.RateLimit, 65*time.Second)
	def(&c.BatchWindow, 5*time.Second)
	def(&c.ConnectTimeout, 10*time.Second)
	def(&c.QuickReconnect, 15*time.Minute)
	def(&c.Overlap, 15*time.Minute)
	def(&c.DailyMin, 23*time.Hour)
	def(&c.DailyMax, 25*time.Hour)
	def(&c.IdleTimeout, 30*time.Second)
	def(&c.TotalTimeout, 5*time.Minute)
	def(&c.BatchTimeout, 30*time.Minute)
	def(&c.StoreTimeout, time.Minute)
	def(&c.RetryBase, 30*time.Second)
	def(&c.RetryMax, time.Hour)
	def(&c.NegentropyRetry, 4*time.Hour)
	def(&c.FutureTolerance, 15*time.Minute)
	def(&c.MaxRelays, 50_000)
	def(&c.MaxConnections, 256)
	def(&c.MaxDials, 10)
	def(&c.MaxRelaysPerRepo, 16)
	def(&c.MaxRootsPerRepo, 5_000)
	def(&c.MaxBatches, 4)
	def(&c.Workers, runtime.GOMAXPROCS(0))
	def(&c.InFlight, 48<<20)
	def(&c.Unproductive, 8<<20)
	def(&c.Waiting, 10_000)
	def(&c.WaitingBytes, 32<<20)
	def(&c.Remembered, 200_000)
	def(&c.RejectedFor, 7*24*time.Hour)
	def(&c.FeedQueue, 10_000)
	def(&c.MaxSet, 1_000_000)
	def(&c.MaxLabels, 1_000)
	def(&c.ObserveQueue, 1_024)
	c.Tuning = c.Tuning.withDefaults()
	return c
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// validate names every field that can't be used.
func (c Config) validate() error {
	var errs []error
	bad := func(field string, value any, want string) {
		errs = append(errs, fmt.Errorf("%s is %v, want %s", field, value, want))
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{
		{"BatchWindow", c.BatchWindow}, {"ConnectTimeout", c.ConnectTimeout},
		{"QuickReconnect", c.QuickReconnect}, {"Overlap", c.Overlap},
		{"DailyMin", c.DailyMin}, {"DailyMax", c.DailyMax},
		{"IdleTimeout", c.IdleTimeout}, {"TotalTimeout", c.TotalTimeout},
		{"BatchTimeout", c.BatchTimeout}, {"StoreTimeout", c.StoreTimeout},
		{"RetryBase", c.RetryBase}, {"RetryMax", c.RetryMax},
		{"NegentropyRetry", c.NegentropyRetry}, {"FutureTolerance", c.FutureTolerance},
		{"RejectedFor", c.RejectedFor},
	} {
		if d.value < 0 {
			bad(d.name, d.value, "a positive duration")
		}
	}
	for _, n := range []struct {
		name  string
		value int
	}{
		{"MaxRelays", c.MaxRelays}, {"MaxConnections", c.MaxConnections}, {"MaxDials", c.MaxDials},
		{"MaxRootsPerRepo", c.MaxRootsPerRepo}, {"MaxBatches", c.MaxBatches}, {"Workers", c.Workers},
		{"Waiting", c.Waiting}, {"Remembered", c.Remembered}, {"FeedQueue", c.FeedQueue},
		{"MaxSet", c.MaxSet}, {"MaxLabels", c.MaxLabels},
		{"ObserveQueue", c.ObserveQueue},
	} {
		if n.value < 0 {
			bad(n.name, n.value, "a positive number")
		}
	}
	if c.MaxRelaysPerRepo < 1 || c.MaxRelaysPerRepo > nip34.MaxListed {
		bad("MaxRelaysPerRepo", c.MaxRelaysPerRepo, "1 to 64")
	}
	c.Tuning.validate(bad)
	if c.DailyMax < c.DailyMin {
		bad("DailyMax", c.DailyMax, "at least DailyMin")
	}
	if c.RetryMax < c.RetryBase {
		bad("RetryMax", c.RetryMax, "at least RetryBase")
	}
	if c.InFlight < 4<<20 {
		bad("InFlight", c.InFlight, "at least 4 MiB")
	}
	if c.Unproductive < 0 {
		bad("Unproductive", c.Unproductive, "a positive number")
	}
	if c.WaitingBytes < 0 {
		bad("WaitingBytes", c.WaitingBytes, "a positive number")
	}
	for _, u := range c.Bootstrap {
		if u.IsZero() {
			bad("Bootstrap", "an empty relay URL", "relay URLs")
		} else if u.Plaintext() && !c.AllowPlaintext {
			bad("Bootstrap", u, "wss:// (or AllowPlaintext)")
		}
	}
	return errors.Join(errs...)
}
