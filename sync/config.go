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
	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/sync/batchverify"
)

// Config holds what may be set about a [SyncManager]. The zero value works: a field
// that is zero has its default, a negative one is refused.
type Config struct {
	// Bootstrap relays are asked for announcements and states (layer 1) whether or not a
	// repository lists them, and never forgotten; for more only where one does. Our own relay among them is an error. Defaults to none: what
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
	// PolicyVersion is a text of yours that differs whenever Policy would decide otherwise about
	// what it has rejected: another setting, or other code. What State remembers of rejections
	// counts only for the identity and the version that it was kept under; with others it is
	// forgotten, and all relays are compared in full. Defaults to "".
	PolicyVersion string
	// Holder is where Policy keeps what it holds back. A Policy that never answers
	// [graspsync.Hold] needs none; without it such an answer is no verdict: it is logged, and
	// the event is judged again. Defaults to none.
	Holder Holder
	// Lacking returns the repositories that lack git data, each with whether a git server may
	// still have it. Those whose announcements are held are among them. It must be safe for
	// concurrent use and must not block. Defaults to none: [Status].Synced is about events only.
	Lacking func() map[graspsync.RepoRef]bool
	// Rules are what the operator has blocked. They are asked before Policy is, and may change
	// while Run runs: [SyncManager.Reconsider]. Defaults to none.
	Rules Rules
	// Verifier checks signatures. Defaults to one that checks many at a time where many
	// are at hand, see package batchverify; whoever sends it bad ones can't make that
	// dearer than to check one by one.
	Verifier Verifier
	// State keeps what is to survive a restart: the health of relays, what was learned
	// about them, what is confirmed. Its keys begin with "sync/"; no other manager may
	// use it. The caller closes it after Run has returned. While it can't be written
	// to, relays that never worked are not dialed. Defaults to none: a restart begins
	// with nothing, and a crash loop dials every relay each time.
	State state.Store
	// Signer signs for relays that want to know who we are (NIP-42), with a key kept
	// for that purpose: only if they refuse a request for want of it, and at most
	// once per connection. Defaults to none: what such relays refuse is not fetched,
	// and asked for again an hour later at most.
	Signer Signer
	// Health says how soon a relay that failed is tried again. Its MaxRecords is at most as
	// many relays as are known, 50,000: a State need not have room for more.
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

	fixed constants

	// Times are how long things may take or wait.
	Times Times
	// Limits are how much there may be of what costs memory, connections or work.
	Limits Limits
}

// Times are the times of a [SyncManager] about which two operators may differ.
type Times struct {
	// BatchWindow is how long changes of what is wanted are gathered before they
	// are acted upon. A short one makes many small requests of what could be one.
	// Defaults to 5 s.
	BatchWindow time.Duration
	// PassEvery is how long it takes from one pass over the whole history of a relay to the
	// next one, up to a 24th less or more. A short one costs relays and us more, a long one
	// finds later what they have without having sent it live. Defaults to 24 h.
	PassEvery time.Duration
}

// Limits bound what a [SyncManager] keeps and does at once.
type Limits struct {
	// MaxConnections bounds the relays that we are connected to, attempts included, of
	// which there are 10 at once. Attempts that are older than a second make room for others
	// and go on beside them: 80 at most, and a third of MaxConnections. Defaults to 256.
	MaxConnections int
	// MaxRelaysPerRepo is how many relays of one announcement are followed: the first
	// distinct ones that it lists, ourselves among them. Of those that only people name whom
	// the owner lists ([nip34.Family.Targets]) as many are followed besides. The rest is left
	// out, and counted as dropped, "relays_listed" and "relays_others". A large one lets an announcement make us
	// dial as many. Defaults to 16; at most 64.
	MaxRelaysPerRepo int
	// MaxRootsPerRepo bounds the patches, pull requests and issues followed of one
	// repository. Defaults to 5,000.
	MaxRootsPerRepo int
	// InFlight bounds the bytes of the events on their way into the Store, over all
	// relays. One relay host has at most a quarter of it. A relay is not read while its events find no
	// room. Messages that are being read come on top: package wstransport has 16 MiB for them.
	// Defaults to 48 MiB; at least 4 MiB.
	InFlight int64
}

// ErrConfig is wrapped by what [New] says of its arguments.
var ErrConfig = errors.New("invalid configuration")

// withDefaults returns a copy with every unset field set.
func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Verifier == nil {
		c.Verifier = batchverify.New()
	}
	def(&c.fixed.MaxRelays, 50_000)
	def(&c.Health.MaxRecords, c.fixed.MaxRelays)
	def(&c.Times.BatchWindow, 5*time.Second)
	def(&c.fixed.ConnectTimeout, 10*time.Second)
	def(&c.fixed.QuickReconnect, 15*time.Minute)
	def(&c.fixed.Overlap, 45*time.Minute)
	def(&c.Times.PassEvery, 24*time.Hour)
	def(&c.fixed.DailyMin, c.Times.PassEvery-c.Times.PassEvery/24)
	def(&c.fixed.DailyMax, c.Times.PassEvery+c.Times.PassEvery/24)
	def(&c.fixed.IdleTimeout, 30*time.Second)
	def(&c.fixed.TotalTimeout, 5*time.Minute)
	def(&c.fixed.BatchTimeout, 30*time.Minute)
	def(&c.fixed.StoreTimeout, time.Minute)
	def(&c.fixed.RetryBase, 30*time.Second)
	def(&c.fixed.RetryMax, time.Hour)
	def(&c.fixed.NegentropyRetry, 4*time.Hour)
	def(&c.fixed.FutureTolerance, FutureTolerance)
	def(&c.Limits.MaxConnections, 256)
	def(&c.fixed.MaxDials, 10)
	def(&c.Limits.MaxRelaysPerRepo, 16)
	def(&c.Limits.MaxRootsPerRepo, 5_000)
	def(&c.fixed.MaxBatches, 4)
	def(&c.fixed.Workers, runtime.GOMAXPROCS(0))
	def(&c.Limits.InFlight, 48<<20)
	def(&c.fixed.Unproductive, 8<<20)
	def(&c.fixed.Waiting, 10_000)
	def(&c.fixed.WaitingBytes, 32<<20)
	def(&c.fixed.Remembered, 200_000)
	def(&c.fixed.RejectedFor, 7*24*time.Hour)
	def(&c.fixed.FeedQueue, 10_000)
	def(&c.fixed.MaxSet, 1_000_000)
	def(&c.fixed.MaxLabels, 1_000)
	def(&c.fixed.ObserveQueue, 1_024)
	c.fixed = c.fixed.withDefaults()
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
		{"BatchWindow", c.Times.BatchWindow}, {"ConnectTimeout", c.fixed.ConnectTimeout},
		{"QuickReconnect", c.fixed.QuickReconnect}, {"Overlap", c.fixed.Overlap},
		{"PassEvery", c.Times.PassEvery}, {"DailyMin", c.fixed.DailyMin}, {"DailyMax", c.fixed.DailyMax},
		{"IdleTimeout", c.fixed.IdleTimeout}, {"TotalTimeout", c.fixed.TotalTimeout},
		{"BatchTimeout", c.fixed.BatchTimeout}, {"StoreTimeout", c.fixed.StoreTimeout},
		{"RetryBase", c.fixed.RetryBase}, {"RetryMax", c.fixed.RetryMax},
		{"NegentropyRetry", c.fixed.NegentropyRetry}, {"FutureTolerance", c.fixed.FutureTolerance},
		{"RejectedFor", c.fixed.RejectedFor},
	} {
		if d.value < 0 {
			bad(d.name, d.value, "a positive duration")
		}
	}
	for _, n := range []struct {
		name  string
		value int
	}{
		{"MaxRelays", c.fixed.MaxRelays}, {"MaxConnections", c.Limits.MaxConnections}, {"MaxDials", c.fixed.MaxDials},
		{"MaxRootsPerRepo", c.Limits.MaxRootsPerRepo}, {"MaxBatches", c.fixed.MaxBatches}, {"Workers", c.fixed.Workers},
		{"Waiting", c.fixed.Waiting}, {"Remembered", c.fixed.Remembered}, {"FeedQueue", c.fixed.FeedQueue},
		{"MaxSet", c.fixed.MaxSet}, {"MaxLabels", c.fixed.MaxLabels},
		{"ObserveQueue", c.fixed.ObserveQueue},
	} {
		if n.value < 0 {
			bad(n.name, n.value, "a positive number")
		}
	}
	if c.Limits.MaxRelaysPerRepo < 1 || c.Limits.MaxRelaysPerRepo > nip34.MaxListed {
		bad("MaxRelaysPerRepo", c.Limits.MaxRelaysPerRepo, "1 to 64")
	}
	c.fixed.validate(bad)
	if c.fixed.DailyMax < c.fixed.DailyMin {
		bad("DailyMax", c.fixed.DailyMax, "at least DailyMin")
	}
	if c.fixed.RetryMax < c.fixed.RetryBase {
		bad("RetryMax", c.fixed.RetryMax, "at least RetryBase")
	}
	if c.Limits.InFlight < 4<<20 {
		bad("InFlight", c.Limits.InFlight, "at least 4 MiB")
	}
	if c.fixed.Unproductive < 0 {
		bad("Unproductive", c.fixed.Unproductive, "a positive number")
	}
	if c.fixed.WaitingBytes < 0 {
		bad("WaitingBytes", c.fixed.WaitingBytes, "a positive number")
	}
	if c.Health.MaxRecords > c.fixed.MaxRelays {
		bad("Health.MaxRecords", c.Health.MaxRecords, fmt.Sprintf("at most %d, so many relays are known", c.fixed.MaxRelays))
	}
	if c.Holder != nil && c.Policy == nil {
		errs = append(errs, errors.New("Holder is set without a Policy: the default one holds nothing"))
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
