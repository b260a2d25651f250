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
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
)

// Config contains the options of a [SyncManager]. The zero value works. A zero field has its
// default, and a negative number is refused.
type Config struct {
	// Bootstrap relays are always followed, for announcements and states (layer 1) only. Defaults
	// to none, because the Store lists the relays.
	Bootstrap []graspsync.RelayURL
	// AllowPlaintext allows ws:// relays. Otherwise they are ignored and counted.
	AllowPlaintext bool
	// Policy decides which events are stored. Defaults to [NewGRASPPolicy].
	Policy Policy
	// PolicyVersion must change whenever Policy might decide otherwise about rejected events. After
	// a change of the identity or version, rejections are discarded, and all history is compared.
	PolicyVersion string
	// Holder stores the events that Policy holds. It is required if Policy returns
	// [graspsync.Hold].
	Holder Holder
	// Lacking returns the repositories without complete git data, also held ones. The value is true
	// if a git server may still have the data. Lacking is called concurrently and must not block.
	// Without it [Status].Synced ignores git data.
	Lacking func() map[graspsync.RepoRef]bool
	// Rules are the operator's blocks, see [SyncManager.RulesChanged].
	Rules Rules
	// Verifier checks signatures. Defaults to a batch verifier (package batchverify).
	Verifier Verifier
	// State persists the health of relays, learned limits and progress over restarts, under keys
	// that begin with "sync/". Only one manager may use it. The caller closes it after Run has
	// returned. While it cannot be written, relays that never worked are not dialed. Without it a
	// crash loop dials every relay each time.
	State state.Store
	// Signer signs authentication events for relays (NIP-42), at most once per connection. Without
	// it requests that need it fail.
	Signer Signer
	// Health configures the backoff of failed relays. Health.MaxRecords is at most 50,000, its
	// default.
	Health health.Config
	// Logger receives log records. Defaults to no logging.
	Logger *slog.Logger
	// Observe receives [Observation] values in order on one goroutine of Run. It may call any
	// method of the manager except Run. While it runs, at most 1,024 observations are queued. More
	// are dropped and counted ("observations").
	Observe func(Observation)
	// OwnRelay is the URL of the own relay if the relay is another process. Its new announcements,
	// root events and deletions are then read over OwnTransport, and [SyncManager.NotifyStored] is
	// not needed. The Store must contain its events, and the relay must have verified their
	// signatures. The address may be internal.
	OwnRelay graspsync.RelayURL
	// OwnTransport connects to OwnRelay. Defaults to the transport for all relays, which usually
	// refuses internal addresses.
	OwnTransport Transport

	// BatchWindow is the time in which changes of the targets are collected. Defaults to 5 s.
	BatchWindow time.Duration
	// PassEvery is the time between two passes over the whole history of a relay, plus or minus
	// 1/24. A pass finds events that were missed live. Defaults to 24 h.
	PassEvery time.Duration
	// MaxConnections is the maximum number of relay connections and attempts. Defaults to 256.
	MaxConnections int
	// MaxRelaysPerRepo is the maximum number of relays followed per announcement, this server
	// included. As many relays that only other maintainers list ([nip34.AnnouncementSet.Targets])
	// are followed in addition. Further relays are ignored and counted as dropped ("relays_listed",
	// "relays_others"). Defaults to 16, at most 64.
	MaxRelaysPerRepo int
	// MaxRootsPerRepo is the maximum number of patches, pull requests and issues followed per
	// repository. Defaults to 5,000.
	MaxRootsPerRepo int
	// InFlight is the maximum size of all events in the pipeline in bytes. A relay host may use a
	// quarter of it. Defaults to 48 MiB, at least 4 MiB.
	InFlight int64

	constants constants
}

func (c *Config) passBetween() (least, most time.Duration) {
	return c.PassEvery - c.PassEvery/24, c.PassEvery + c.PassEvery/24
}

// ErrConfig is wrapped by errors of [New] about its arguments.
var ErrConfig = errors.New("invalid configuration")

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Verifier == nil {
		c.Verifier = batchverify.New()
	}
	c.constants.setDefaults()
	def(&c.Health.MaxRecords, c.constants.MaxRelays)
	def(&c.BatchWindow, 5*time.Second)
	def(&c.PassEvery, 24*time.Hour)
	def(&c.MaxConnections, 256)
	def(&c.MaxRelaysPerRepo, 16)
	def(&c.MaxRootsPerRepo, 5_000)
	def(&c.InFlight, 48<<20)
	return c
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (c Config) validate() error {
	var errs []error
	bad := func(is bool, field string, value any, want string) {
		if is {
			errs = append(errs, fmt.Errorf("%s is %v, want %s", field, value, want))
		}
	}
	bad(c.BatchWindow < 0, "BatchWindow", c.BatchWindow, "a positive duration")
	bad(c.PassEvery < 0, "PassEvery", c.PassEvery, "a positive duration")
	bad(c.MaxConnections < 0, "MaxConnections", c.MaxConnections, "a positive number")
	bad(c.MaxRootsPerRepo < 0, "MaxRootsPerRepo", c.MaxRootsPerRepo, "a positive number")
	bad(c.MaxRelaysPerRepo < 1 || c.MaxRelaysPerRepo > nip34.MaxListed, "MaxRelaysPerRepo", c.MaxRelaysPerRepo, "1 to 64")
	bad(c.InFlight < 4<<20, "InFlight", c.InFlight, "at least 4 MiB")
	most := c.constants.MaxRelays
	bad(c.Health.MaxRecords > most, "Health.MaxRecords", c.Health.MaxRecords, fmt.Sprintf("at most %d, the number of known relays", most))
	if c.Holder != nil && c.Policy == nil {
		errs = append(errs, errors.New("Holder is set without a Policy: the default one holds nothing"))
	}
	for _, u := range c.Bootstrap {
		bad(u.IsZero(), "Bootstrap", "an empty relay URL", "relay URLs")
		bad(u.Plaintext() && !c.AllowPlaintext, "Bootstrap", u, "wss:// (or AllowPlaintext)")
	}
	return errors.Join(errs...)
}

// FutureTolerance is the maximum time that created_at may be ahead of our clock.
const FutureTolerance = 15 * time.Minute

const (
	connectTimeout = 10 * time.Second // of one connection attempt

	// dialEvery is the minimum time between the starts of two connection attempts.
	dialEvery = 250 * time.Millisecond

	// After a connection loss of at most quickReconnect only the missed time is fetched.
	quickReconnect = 15 * time.Minute
	// overlap is the time before the last sign of life of a relay that a quick reconnect fetches
	// again. Servers hold events for 30 minutes until their git data arrives, and clocks differ by
	// up to 15 minutes.
	overlap = 45 * time.Minute

	maxBatches   = 4                // concurrent batches per relay
	batchTimeout = 30 * time.Minute // of a batch, which keeps its progress
	// retryBase is the wait before the items of a failed batch are requested again. It doubles up
	// to retryMax.
	retryBase = 30 * time.Second
	retryMax  = time.Hour

	// negentropyRetry is the time for which NIP-77 is not used with a relay that refused it or did
	// not answer.
	negentropyRetry = 4 * time.Hour
	// negentropyFrame is the maximum size of a message that we send, in bytes. Hex doubles it.
	negentropyFrame = 30_000
	// negentropyRounds is the maximum number of messages of a relay in one reconciliation,
	// negentropyIDs of missing ids that one reconciliation finds.
	negentropyRounds = 64
	negentropyIDs    = 65_536
	maxSet           = 1_000_000 // ids that are loaded to reconcile one filter; larger sets are paged

	leastPageLimit = 5      // smallest page limit that is accepted from a relay
	maxPage        = 50_000 // events accepted in one page, because some relays ignore limits
	idsPerRequest  = 250    // events requested by id in one request, fewer if the relay accepts fewer

	// pollEvery is the maximum time between two requests for an item without room in a live
	// subscription.
	pollEvery = 10 * time.Minute

	// maxAuthors is the maximum number of authors whose deletions are requested, authorsPerPass
	// from a relay in each pass.
	maxAuthors     = 10_000
	authorsPerPass = 1_000

	rejectedFor = 7 * 24 * time.Hour // for which the id of a rejected event is remembered

	// strikes is the number of proofs of hostility within an hour that end a connection.
	strikes = 3
)

// usual are the assumed limits of a relay that declares none (NIP-11).
var usual = relaylimits.Requests{MaxMessage: 64 << 10, MaxFilters: 20, MaxSubscriptions: 20}

// constants are the numbers that only tests change.
type constants struct {
	// MaxRelays bounds the known relays.
	MaxRelays int
	// MaxDials bounds the concurrent connection attempts.
	MaxDials int
	// StoreTimeout bounds each call of the Store and the Policy.
	StoreTimeout time.Duration
	// Unproductive is the allowance of a relay host in bytes for unrequested, repeated and forged
	// events. Refill bytes are restored per minute.
	Unproductive, Refill int64
	// Workers is the number of goroutines that check signatures.
	Workers int
	// MaxLabels bounds the relays with metrics.
	MaxLabels int
	// ObserveQueue bounds the queued observations.
	ObserveQueue int
	// Waiting is the maximum number of whole events that wait for a dependency, WaitingBytes their
	// maximum size. Events without room or unsaved have the same number and a quarter of the bytes.
	Waiting      int
	WaitingBytes int64
	// Remembered is the maximum number of remembered ids of stored events, and separately of
	// others. One id takes about 300 bytes.
	Remembered int
	// FeedQueue is the maximum number of changes collected in one batch window, or a quarter of the
	// known events if that is more. Beyond it everything is planned again.
	FeedQueue int
	// PageLimit is the number of events requested in one page of history. The limit of the relay
	// (NIP-11) counts up to twice PageLimit.
	PageLimit int
}

func (t *constants) setDefaults() {
	def(&t.MaxRelays, 50_000)
	def(&t.MaxDials, 90)
	def(&t.StoreTimeout, time.Minute)
	def(&t.Unproductive, 8<<20)
	def(&t.Refill, 64<<10)
	def(&t.Workers, runtime.GOMAXPROCS(0))
	def(&t.MaxLabels, 1_000)
	def(&t.ObserveQueue, 1_024)
	def(&t.Waiting, 10_000)
	def(&t.WaitingBytes, 32<<20)
	def(&t.Remembered, 200_000)
	def(&t.FeedQueue, 10_000)
	def(&t.PageLimit, 500)
}
