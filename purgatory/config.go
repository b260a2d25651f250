package purgatory

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/syncqueue"
)

// Config is the configuration of a [Purgatory]. Each zero field has a default. Negative fields are
// refused.
type Config struct {
	// Identity is the set of addresses of this service. Data is never fetched from its own clone
	// URLs.
	Identity nip34.Identity
	// Membership decides who is a member.
	Membership nip34.Membership
	// Logger defaults to none.
	Logger *slog.Logger
	// Observe is called with each observation, on any goroutine. It must not block. Its panics are
	// contained.
	Observe func(Observation)

	// NoMaintenance turns off packing and pruning. Another program that does so must not run during
	// a push or during Run.
	NoMaintenance bool

	Times Times

	fixed  constants
	Limits Limits
}

// Times are the durations that operators may choose.
type Times struct {
	// Hold is the time for which an event is held. States and pushes extend that of an announcement,
	// and servers that wait for their turn extend any, to at most the larger of 24 h and Hold.
	// Defaults to 30 min.
	Hold time.Duration
	// Departed is the time for which a retired repository is kept, because it may be announced
	// again. Defaults to 7 days.
	Departed time.Duration
	// Backoff is the wait after the first attempt that left data missing. The wait doubles up to 6
	// times Backoff, but at least to 2 min. Defaults to 20 s.
	Backoff time.Duration
	// Grace is the time for which objects stay that no ref, reflog entry (kept for 30 days) or held
	// event names, because an event may still arrive. Defaults to 14 days.
	Grace time.Duration
}

// constants are the numbers that only tests change.
type constants struct {
	MaxHold time.Duration // maximum hold of an event; not less than Hold
	// UserDelay is the time before the first fetch for an event of a client, whose push usually
	// follows, SyncDelay for an event of sync, because events that arrive together share a fetch.
	UserDelay, SyncDelay time.Duration
	// FetchTimeout exceeds the limit of the GitFetcher, whose error names the cause.
	FetchTimeout time.Duration
	// MaxFetch is the number of bytes charged for a fetch that a crash cut short.
	MaxFetch      int64
	MaxBackoff    time.Duration // longest wait between two attempts
	SoftExpiry    time.Duration // a state event revives an announcement for this time
	MaxRemembered int
	MaxClones     int // used clone URLs of an announcement or pull request; the rest is counted
	// Timeout is the maximum time of a call of the Relay, of the Repositories, and of the GitFetcher
	// except fetches.
	Timeout time.Duration
}

const (
	remember        = 7 * 24 * time.Hour // sync does not submit an expired event for this time
	checkPeriod     = time.Hour          // between two checks of a repository against its latest state
	maxReleases     = 4                  // concurrent, at most half of them of one owner
	maxRepositories = 200                // released by one survey
)

// Limits are the limits of a [Purgatory].
type Limits struct {
	// MaxEntries is the maximum number of held events. MaxBytes is the maximum of their estimated
	// size in memory. Defaults to 10,000 and 64 MiB.
	//
	// Announcements and states count for their author, pull requests for the relay host that sent
	// them, or for all clients together. Without room, softly expired announcements and then the
	// oldest event of the stranger with the most events are evicted. If each stranger has one event,
	// the new one is refused.
	MaxEntries int
	MaxBytes   int64
	// MaxPullBytes is the maximum number of bytes in a repository that only pull requests of
	// non-members need. Without room, the author with the most refs loses the oldest one. If each
	// author has one ref, the new one is refused. As many bytes may arrive for pull requests between
	// two prunes. Defaults to 1 GiB.
	MaxPullBytes int64
	// MaxOwnerPullBytes is the maximum of such bytes in all repositories of an owner. As they come,
	// MaxPullBytes of each shrinks in proportion. Defaults to no limit.
	MaxOwnerPullBytes int64
	// MaxFetchJobs is the maximum number of requests to git servers in flight, half of them for one
	// owner. Defaults to 10.
	MaxFetchJobs int
	// DomainLimit is the limit of requests to one server (host and port). Defaults to 5 concurrent
	// requests and 30 in any 60 s. DomainLimits are exceptions, in which both numbers must be set.
	DomainLimit  Limit
	DomainLimits map[graspsync.HostPort]Limit
	// MaxRepoDay is the maximum number of bytes fetched for one repository in 24 h, at most half of
	// it for pull requests. MaxHostDay is that of one server. A fetch that a crash cut short counts
	// as an eighth of the smaller limit. Defaults to 4 GiB and 16 GiB.
	MaxRepoDay, MaxHostDay int64
}

// Limit is a limit of requests to one server. A request is one attempt at one URL.
type Limit = syncqueue.Limit

// ErrConfig is wrapped by the error of [Open] for invalid arguments.
var ErrConfig = errors.New("invalid configuration")

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Observe == nil {
		c.Observe = func(Observation) {}
	}
	def(&c.Times.Hold, 30*time.Minute)
	def(&c.fixed.MaxHold, max(24*time.Hour, c.Times.Hold))
	def(&c.fixed.SoftExpiry, 24*time.Hour)
	def(&c.Times.Departed, 7*24*time.Hour)
	def(&c.fixed.UserDelay, min(3*time.Minute, c.Times.Hold/4))
	def(&c.fixed.SyncDelay, 500*time.Millisecond)
	def(&c.Times.Backoff, 20*time.Second)
	def(&c.fixed.MaxBackoff, max(6*c.Times.Backoff, 2*time.Minute))
	def(&c.Times.Grace, 14*24*time.Hour)
	def(&c.Limits.MaxPullBytes, 1<<30)
	def(&c.Limits.MaxOwnerPullBytes, manyBytes)
	def(&c.Limits.MaxEntries, 10_000)
	def(&c.Limits.MaxBytes, 64<<20)
	def(&c.fixed.MaxRemembered, 50_000)
	def(&c.fixed.MaxClones, 16)
	def(&c.Limits.MaxFetchJobs, 10)
	def(&c.Limits.DomainLimit, Limit{Concurrent: 5, PerMinute: 30})
	def(&c.Limits.MaxRepoDay, 4<<30)
	def(&c.Limits.MaxHostDay, 16<<30)
	def(&c.fixed.MaxFetch, max(1, min(c.Limits.MaxRepoDay, c.Limits.MaxHostDay, manyBytes)/8))
	def(&c.fixed.Timeout, 5*time.Minute)
	def(&c.fixed.FetchTimeout, max(24*time.Hour, time.Duration(min(c.Limits.MaxRepoDay>>30, 1<<18))*6*time.Hour))
	return c
}

// manyBytes exceeds any sensible limit, and can be multiplied without overflow.
const manyBytes = 1 << 50

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (c Config) validate() error {
	var errs []error
	bad := func(name string, value any) {
		errs = append(errs, fmt.Errorf("%s is %v, want more than 0", name, value))
	}
	for _, group := range []any{c.Times, c.fixed, c.Limits} {
		v := reflect.ValueOf(group)
		for i := range v.NumField() {
			if f := v.Field(i); f.CanInt() && f.Int() <= 0 {
				bad(v.Type().Field(i).Name, f.Interface())
			}
		}
	}
	if c.fixed.MaxHold < c.Times.Hold {
		errs = append(errs, fmt.Errorf("MaxHold is %v, less than Hold, %v", c.fixed.MaxHold, c.Times.Hold))
	}
	check := func(name string, l Limit) {
		if l.Concurrent <= 0 || l.PerMinute <= 0 {
			bad(name, l)
		}
	}
	check("DomainLimit", c.Limits.DomainLimit)
	for a, l := range c.Limits.DomainLimits {
		check("DomainLimits of "+a.String(), l)
	}
	return errors.Join(errs...)
}

// beyond returns the number of unused clone URLs of an event, of which unread were not parsed.
func (c *Config) beyond(us []graspsync.CloneURL, unread int) int {
	return unread + max(0, len(us)-c.fixed.MaxClones)
}
