package sync

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/health"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/state"
	"github.com/graspsync/graspsync/sync/batchverify"
)

// Config contains the options of a [SyncManager]. The zero value works. A zero field has its
// default, and a negative one is refused.
type Config struct {
	// Bootstrap relays are asked for announcements and states (layer 1) even if no repository lists
	// them, and never forgotten. Other events are fetched only from listed relays. The own relay
	// must not be in the list. Defaults to none, because the Store lists the relays.
	Bootstrap []graspsync.RelayURL
	// AllowPlaintext allows ws:// relays. Their events are signed but visible on the network.
	// Defaults to false: such relays are ignored and counted.
	AllowPlaintext bool
	// HostedStatesOnly requests from each relay only the states of repositories that list the
	// relay. It helps with relays that store very many states of other repositories, and costs one
	// more filter per hundred repositories of a relay. A relay without room for these filters is
	// followed by kinds and still sends all new states. After a restart with another value all
	// announcements and states are fetched again. Defaults to false: one filter
	// {"kinds":[30617,30618]} requests both.
	HostedStatesOnly bool
	// Policy decides which events are stored. Defaults to [NewGRASPPolicy].
	Policy Policy
	// PolicyVersion must change whenever other settings or code might change the decision of Policy
	// about rejected events. State keeps rejections only for one identity and version. After a
	// change they are discarded, and the full history of all relays is compared. Defaults to "".
	PolicyVersion string
	// Holder stores the events that Policy holds. It is required if Policy returns
	// [graspsync.Hold]. Without it such a verdict is logged, and the event is judged again.
	// Defaults to none.
	Holder Holder
	// Lacking returns the repositories without complete git data. The value is true if a git server
	// may still have the data. Repositories with held announcements are included. Lacking must be
	// safe for concurrent use and must not block. Defaults to nil. Then [Status].Synced ignores git
	// data.
	Lacking func() map[graspsync.RepoRef]bool
	// Rules are the operator's blocks. They are checked before Policy and may change while Run
	// runs, see [SyncManager.RulesChanged]. Defaults to none.
	Rules Rules
	// Verifier checks signatures. Defaults to a batch verifier (package batchverify), which costs
	// at most slightly more than single checks, even with hostile input.
	Verifier Verifier
	// State persists the health of relays, learned limits and progress over restarts. Its keys
	// begin with "sync/", and only one manager may use it. The caller closes it after Run has
	// returned. While it cannot be written, relays that never worked are not dialed. Defaults to
	// none: each restart begins without state, and a crash loop dials every relay each time.
	State state.Store
	// Signer signs authentication events for relays (NIP-42). It is used at most once per
	// connection, after a relay refused a request without authentication. Defaults to none: such
	// requests fail and are repeated after at most an hour.
	Signer Signer
	// Health configures the backoff of failed relays. Health.MaxRecords is at most 50,000, the
	// maximum number of known relays, which is also its default.
	Health health.Config
	// Logger receives log records. Defaults to no logging.
	Logger *slog.Logger
	// Observe receives [Observation] values. It is called on one goroutine of Run, in order, and
	// never after Run has returned. It may call any method of the manager except Run. Run waits for
	// a running call, so Observe must return. While it runs, observations are queued. If the queue
	// is full, they are dropped and counted ("observations"). A panic is recovered and logged.
	// Defaults to nil.
	Observe func(Observation)
	// OwnRelay is the URL of the own relay if the relay is another process. Its announcements, root
	// events and deletions are then read over OwnTransport, and [SyncManager.NotifyStored] is not
	// needed. The relay must have verified signatures. The address may be internal, because clients
	// use the URL of the identity. Defaults to none.
	OwnRelay graspsync.RelayURL
	// OwnTransport connects to OwnRelay. A transport for public relays refuses internal and own
	// addresses, so OwnRelay may need another one. Defaults to the transport for all relays.
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
	// sent. A short window causes many small requests. Defaults to 5 s.
	BatchWindow time.Duration
	// PassEvery is the time between two passes over the whole history of a relay, plus or minus
	// 1/24. A shorter time costs more traffic. A longer time finds events later that were missed
	// live. Defaults to 24 h.
	PassEvery time.Duration
}

// passBetween returns the bounds of the random time between two passes. It is random so that the
// passes of different relays do not coincide.
func (t Times) passBetween() (least, most time.Duration) {
	return t.PassEvery - t.PassEvery/24, t.PassEvery + t.PassEvery/24
}

// Limits are the limits of a [SyncManager].
type Limits struct {
	// MaxConnections is the maximum number of relay connections, including attempts. At most 10
	// attempts start concurrently. Attempts older than a second free their slot and continue, at
	// most 80 and at most a third of MaxConnections. Defaults to 256.
	MaxConnections int
	// MaxRelaysPerRepo is the maximum number of relays followed per announcement: the first
	// distinct relays that it lists, including this server. As many relays that only other
	// maintainers list ([nip34.AnnouncementSet.Targets]) are followed in addition. Further relays
	// are ignored and counted as dropped ("relays_listed", "relays_others"). A large value lets one
	// announcement cause many connections. Defaults to 16, at most 64.
	MaxRelaysPerRepo int
	// MaxRootsPerRepo is the maximum number of patches, pull requests and issues followed per
	// repository. Defaults to 5,000.
	MaxRootsPerRepo int
	// InFlight is the maximum size of all events in the pipeline in bytes. A relay host may use a
	// quarter of it. A relay is not read while its events have no room. Messages being read are not
	// included; package wstransport has 16 MiB for them. Defaults to 48 MiB, at least 4 MiB.
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
