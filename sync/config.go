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
// default, and a negative one is refused.
type Config struct {
	// Bootstrap relays are asked for announcements and states (layer 1) even if no repository lists
	// them, and never forgotten. The own relay must not be in the list. Defaults to none, because
	// the Store lists the relays.
	Bootstrap []graspsync.RelayURL
	// AllowPlaintext allows ws:// relays, whose events are visible on the network. Defaults to
	// false: such relays are ignored and counted.
	AllowPlaintext bool
	// HostedStatesOnly requests from each relay only the states of repositories that list the
	// relay. It helps with relays that store very many other states, and costs one more filter per
	// hundred repositories. After a restart with another value all announcements and states are
	// fetched again. Defaults to false: one filter {"kinds":[30617,30618]} requests both.
	HostedStatesOnly bool
	// Policy decides which events are stored. Defaults to [NewGRASPPolicy].
	Policy Policy
	// PolicyVersion must change whenever other settings or code might change the decision of Policy
	// about rejected events. After a change of the identity or version, rejections are discarded,
	// and the full history of all relays is compared. Defaults to "".
	PolicyVersion string
	// Holder stores the events that Policy holds. It is required if Policy returns
	// [graspsync.Hold]. Defaults to none.
	Holder Holder
	// Lacking returns the repositories without complete git data, those with held announcements
	// included. The value is true if a git server may still have the data. Lacking must be safe for
	// concurrent use and must not block. Defaults to nil. Then [Status].Synced ignores git data.
	Lacking func() map[graspsync.RepoRef]bool
	// Rules are the operator's blocks. They are checked before Policy, see
	// [SyncManager.RulesChanged]. Defaults to none.
	Rules Rules
	// Verifier checks signatures. Defaults to a batch verifier (package batchverify).
	Verifier Verifier
	// State persists the health of relays, learned limits and progress over restarts, under keys
	// that begin with "sync/". Only one manager may use it. The caller closes it after Run has
	// returned. While it cannot be written, relays that never worked are not dialed. Defaults to
	// none: a crash loop dials every relay each time.
	State state.Store
	// Signer signs authentication events for relays (NIP-42), at most once per connection. Defaults
	// to none: requests that need it fail and are repeated after at most an hour.
	Signer Signer
	// Health configures the backoff of failed relays. Health.MaxRecords is at most 50,000, which is
	// its default.
	Health health.Config
	// Logger receives log records. Defaults to no logging.
	Logger *slog.Logger
	// Observe receives [Observation] values on one goroutine of Run, in order, and never after Run
	// has returned. It may call any method of the manager except Run, and must return. While it
	// runs, observations are queued. Beyond 1,024 they are dropped and counted ("observations"). A
	// panic is recovered and logged. Defaults to nil.
	Observe func(Observation)
	// OwnRelay is the URL of the own relay if the relay is another process. Its announcements, root
	// events and deletions are then read over OwnTransport, and [SyncManager.NotifyStored] is not
	// needed. The relay must have verified signatures. The address may be internal. Defaults to
	// none.
	OwnRelay graspsync.RelayURL
	// OwnTransport connects to OwnRelay. A transport for public relays refuses internal addresses.
	// Defaults to the transport for all relays.
	OwnTransport Transport

	constants constants

	// Times are durations and intervals.
	Times Times
	// Limits are the limits for memory, connections and work.
	Limits Limits
}

// Times are the durations and intervals of a [SyncManager] that operators may change.
type Times struct {
	// BatchWindow is the time in which changes of the targets are collected before requests are
	// sent. Defaults to 5 s.
	BatchWindow time.Duration
	// PassEvery is the time between two passes over the whole history of a relay, plus or minus
	// 1/24. A longer time finds events later that were missed live. Defaults to 24 h.
	PassEvery time.Duration
}

// passBetween returns the bounds of the random time between two passes, so that the passes of
// relays do not coincide.
func (t Times) passBetween() (least, most time.Duration) {
	return t.PassEvery - t.PassEvery/24, t.PassEvery + t.PassEvery/24
}

// Limits are the limits of a [SyncManager].
type Limits struct {
	// MaxConnections is the maximum number of relay connections, including attempts. At most a
	// third of them, and 80, are attempts older than a second. Defaults to 256.
	MaxConnections int
	// MaxRelaysPerRepo is the maximum number of relays followed per announcement: the first
	// distinct relays that it lists, including this server. As many relays that only other
	// maintainers list ([nip34.AnnouncementSet.Targets]) are followed in addition. Further relays
	// are ignored and counted as dropped ("relays_listed", "relays_others"). Defaults to 16, at
	// most 64.
	MaxRelaysPerRepo int
	// MaxRootsPerRepo is the maximum number of patches, pull requests and issues followed per
	// repository. Defaults to 5,000.
	MaxRootsPerRepo int
	// InFlight is the maximum size of all events in the pipeline in bytes. A relay host may use a
	// quarter of it, and is not read while its events have no room. Defaults to 48 MiB, at least 4
	// MiB.
	InFlight int64
}

// ErrConfig is wrapped by errors of [New] about its arguments.
var ErrConfig = errors.New("invalid configuration")

// withDefaults returns a copy in which every zero field has its default.
func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Verifier == nil {
		c.Verifier = batchverify.New()
	}
	c.constants.setDefaults()
	def(&c.Health.MaxRecords, c.constants.MaxRelays)
	def(&c.Times.BatchWindow, 5*time.Second)
	def(&c.Times.PassEvery, 24*time.Hour)
	def(&c.Limits.MaxConnections, 256)
	def(&c.Limits.MaxRelaysPerRepo, 16)
	def(&c.Limits.MaxRootsPerRepo, 5_000)
	def(&c.Limits.InFlight, 48<<20)
	return c
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// validate names every invalid field.
func (c Config) validate() error {
	var errs []error
	bad := func(field string, value any, want string) {
		errs = append(errs, fmt.Errorf("%s is %v, want %s", field, value, want))
	}
	if c.Times.BatchWindow < 0 {
		bad("BatchWindow", c.Times.BatchWindow, "a positive duration")
	}
	if c.Times.PassEvery < 0 {
		bad("PassEvery", c.Times.PassEvery, "a positive duration")
	}
	if c.Limits.MaxConnections < 0 {
		bad("MaxConnections", c.Limits.MaxConnections, "a positive number")
	}
	if c.Limits.MaxRootsPerRepo < 0 {
		bad("MaxRootsPerRepo", c.Limits.MaxRootsPerRepo, "a positive number")
	}
	if c.Limits.MaxRelaysPerRepo < 1 || c.Limits.MaxRelaysPerRepo > nip34.MaxListed {
		bad("MaxRelaysPerRepo", c.Limits.MaxRelaysPerRepo, "1 to 64")
	}
	if c.Limits.InFlight < 4<<20 {
		bad("InFlight", c.Limits.InFlight, "at least 4 MiB")
	}
	if c.Health.MaxRecords > c.constants.MaxRelays {
		bad("Health.MaxRecords", c.Health.MaxRecords, fmt.Sprintf("at most %d, the number of known relays", c.constants.MaxRelays))
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

// FutureTolerance is the maximum time that created_at may be ahead of our clock. Later events are
// rejected.
const FutureTolerance = 15 * time.Minute

const (
	connectTimeout = 10 * time.Second // of one connection attempt

	// dialEvery is the minimum time between the starts of two connection attempts.
	dialEvery = 250 * time.Millisecond

	// quickReconnect is the maximum length of a connection loss after which only the missed time is
	// fetched.
	quickReconnect = 15 * time.Minute
	// overlap is the time before the last sign of life of a relay that a quick reconnect fetches
	// again. Servers hold events for 30 minutes until their git data arrives, and clocks differ by
	// up to 15 minutes.
	overlap = 45 * time.Minute

	// idleTimeout ends a request that receives no message for that time, firstAnswer before the
	// first event of a page, because large relays under load need more than 30 seconds.
	idleTimeout  = 30 * time.Second
	firstAnswer  = 2 * time.Minute
	totalTimeout = 5 * time.Minute
	// openTimeout is the maximum wait of a request for the first answer to the previous request, so
	// that an answer without a subscription id belongs to one request.
	openTimeout = 2 * time.Second

	maxBatches = 4 // concurrent batches per relay
	// retryBase is the wait before the items of a failed batch are requested again. It doubles up
	// to retryMax.
	retryBase = 30 * time.Second
	retryMax  = time.Hour

	// negentropyRetry is the time for which NIP-77 is not used with a relay that refused it, or did
	// not answer for negentropyFirst. negentropyTimeout limits a reconciliation.
	negentropyRetry   = 4 * time.Hour
	negentropyFirst   = 10 * time.Second
	negentropyTimeout = 2 * time.Minute
	// negentropyFrame is the maximum size of a message that we send, in bytes. Hex doubles it, and
	// the result is at most half of the message size of the relay.
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

	// maxAuthors is the maximum number of authors of stored events whose deletions are requested,
	// authorsPerPass from a relay in each pass, in turn.
	maxAuthors     = 10_000
	authorsPerPass = 1_000

	// strikes is the number of proofs of hostility within an hour after which the relay is
	// disconnected.
	strikes = 3

	// gapAge is the minimum time that a live filter was open before the created_at of an event that
	// counts as a gap, because clocks differ.
	gapAge = time.Minute
)

// usual are the assumed limits of a relay that declares none (NIP-11). Refusals correct them.
var usual = relaylimits.Requests{MaxMessage: 64 << 10, MaxFilters: 20, MaxSubscriptions: 20}

// constants are the numbers that only tests change.
type constants struct {
	// MaxRelays bounds the known relays.
	MaxRelays int
	// MaxDials bounds the connection attempts that are younger than one second.
	MaxDials int
	// StoreTimeout bounds each call of the Store and the Policy.
	StoreTimeout time.Duration
	// BatchTimeout ends a batch of requests. Its progress is kept, and the rest is requested again.
	BatchTimeout time.Duration
	// Unproductive is the number of useless bytes that a relay host may send: unrequested, repeated
	// and forged events. Refill bytes are restored per minute. Beyond it the relay is disconnected
	// for at least an hour.
	Unproductive, Refill int64
	// Workers is the number of goroutines that check signatures.
	Workers int
	// MaxLabels bounds the relays with metrics, because series cost memory in the metrics server.
	MaxLabels int
	// ObserveQueue bounds the queued observations.
	ObserveQueue int
	// Waiting is the maximum number of events that wait for a dependency and are kept whole,
	// WaitingBytes their maximum size. Events without room or unsaved have the same number and a
	// quarter of the bytes.
	Waiting      int
	WaitingBytes int64
	// Remembered is the maximum number of remembered ids of recent stored events, and separately of
	// others. The oldest are evicted and fetched again in each pass. One id takes about 300 bytes.
	Remembered int
	// RejectedFor is the time for which the id of a rejected event is remembered, including
	// restarts.
	RejectedFor time.Duration
	// FeedQueue is the maximum number of changes collected in one batch window, or a quarter of the
	// known events if that is more. Beyond it everything is planned again.
	FeedQueue int
	// PageLimit is the number of events requested in one page of history, or the limit of the relay
	// (NIP-11), at most twice PageLimit.
	PageLimit int
}

func (t *constants) setDefaults() {
	def(&t.MaxRelays, 50_000)
	def(&t.MaxDials, 10)
	def(&t.StoreTimeout, time.Minute)
	def(&t.BatchTimeout, 30*time.Minute)
	def(&t.Unproductive, 8<<20)
	def(&t.Refill, 64<<10)
	def(&t.Workers, runtime.GOMAXPROCS(0))
	def(&t.MaxLabels, 1_000)
	def(&t.ObserveQueue, 1_024)
	def(&t.Waiting, 10_000)
	def(&t.WaitingBytes, 32<<20)
	def(&t.Remembered, 200_000)
	def(&t.RejectedFor, 7*24*time.Hour)
	def(&t.FeedQueue, 10_000)
	def(&t.PageLimit, 500)
}
