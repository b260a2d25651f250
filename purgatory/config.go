package purgatory

import (
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// Config has the options of a [Purgatory]. The zero value works. A zero field has its default. A
// negative field is refused.
type Config struct {
	// Identity has the addresses of this service. Its own clone URLs are never fetched from. The
	// zero value has no address.
	Identity nip34.Identity
	// Membership decides who is a maintainer. States of maintainers decide about refs.
	Membership nip34.Membership
	// Logger receives the log. Defaults to none.
	Logger *slog.Logger
	// Observe, if not nil, is called with each observation, on the goroutine of Run or of the caller
	// of a method. It must not block. A panic in it is contained.
	Observe func(Observation)

	// NoMaintenance leaves packs, refs and unnamed objects of repositories as they are. Another
	// program that maintains them must not do so during a push or during Run.
	NoMaintenance bool

	// Times are the durations of holds, waits and retention.
	Times Times

	fixed constants
	// Limits are the limits of memory, disk, traffic and concurrent work.
	Limits Limits
}

// Times are the durations that operators may choose.
type Times struct {
	// Hold is the time for which an event waits for its git data. Signs of life extend the hold of an
	// announcement to at most 24 h. So does a server that was not asked yet because other requests came
	// first, for any event. Both can extend a hold to Hold if Hold is longer. Defaults to 30 min.
	Hold time.Duration
	// Departed is the time for which the folder of a repository is kept that is out of service, because
	// its announcement was deleted, has expired or lists this service no longer. If the repository is
	// announced again in this time, it is as before. Defaults to 7 days.
	Departed time.Duration
	// Backoff is the wait after the first attempt that left data missing. It doubles up to six times
	// Backoff. Defaults to 20 s.
	Backoff time.Duration
	// Grace is the time for which unnamed objects stay in a repository. No ref, no reflog entry (kept for
	// 30 days) and no waiting event names them. If Grace is short, an object may be deleted that an
	// event is about to name. Defaults to 14 days.
	Grace time.Duration
}

// constants are the numbers that only tests change.
type constants struct {
	// MaxHold is the maximum time for which an event waits, see Times.Hold. It must not be less than
	// Hold. Defaults to 24 h, or to Hold if that is more.
	MaxHold time.Duration
	// UserDelay is the time before the first fetch for an event of a client, because a push usually
	// follows. Defaults to 3 min, or to a quarter of Hold if that is less. SyncDelay is the time for an
	// event of sync, so that events which arrive together share a fetch. Defaults to 500 ms.
	UserDelay, SyncDelay time.Duration
	// FetchTimeout bounds each call of the GitFetcher that fetches. It should exceed the limit of the
	// GitFetcher, whose error names the cause and whose time grows with the bytes: package gitfetch
	// allows 5 h for a GiB. Defaults to 24 h, or to 6 h for each GiB of MaxRepoDay if that is more.
	FetchTimeout time.Duration
	// MaxPerAuthor is the maximum number of waiting states of an author, and of waiting other events of
	// an author. Defaults to 100.
	MaxPerAuthor int
	// MaxFetch is the number of bytes that a fetch counts as that a crash has cut short. If it is too
	// small, a crash loop may fetch more than a day allows. If it is too large, a few crashes use up a
	// day. Defaults to an eighth of MaxRepoDay or MaxHostDay, whichever is smaller.
	MaxFetch int64
	// MaxBackoff is the longest wait between two attempts. Defaults to six times Backoff, at least 2 min.
	MaxBackoff time.Duration
	// SoftExpiry is the time for which an expired announcement is kept. A state event revives it.
	// Defaults to 24 h.
	SoftExpiry time.Duration
	// Remember is the time for which the id of an expired event is remembered, so that sync does not
	// hold it again. Defaults to 7 days.
	Remember time.Duration
	// Check is the time between two checks of a repository against its latest state. Defaults to 1 h.
	Check time.Duration
	// MaxRemembered is the maximum number of these ids. Defaults to 50,000.
	MaxRemembered int
	// MaxKept is the maximum number of git servers, and of repositories, with a record of their fetches
	// on the disk. Records of fetches in flight are always kept. A server without a record may be asked
	// again sooner. Defaults to 20,000.
	MaxKept int
	// MaxClones is the maximum number of clone URLs of one announcement or pull request that are used:
	// the first ones. All maintainers of a repository together have four times as many, and all pull
	// requests to a repository sixteen times as many, round-robin by author. The others are counted.
	// Defaults to 16.
	MaxClones int
	// MaxLooks is the maximum number of concurrent releases, round-robin by owner. Repositories whose
	// last release was slow have half as many places of their own. An owner has at most half of both.
	// Defaults to 4.
	MaxLooks int
	// MaxRepositories is the maximum number of repositories with one identifier that one survey has
	// released. If there are more, owners of waiting events come first, and the others in random
	// order. Defaults to 200.
	MaxRepositories int
	// Timeout bounds each call of the Relay, of the Repositories, and of the GitFetcher unless it
	// fetches. Defaults to 5 min.
	Timeout time.Duration
}

// Limits are the limits of a [Purgatory].
type Limits struct {
	// MaxEntries is the maximum number of waiting events, MaxBytes that of their bytes in memory,
	// estimated. Defaults to 10,000 and 64 MiB. One author has at most 100.
	//
	// Announcements and states count for their author. Pull requests count for the relay host that
	// sent them, or for all clients together. If there is no room, the oldest event of the stranger with
	// most is evicted, expired announcements first. If each stranger has one event, the new one is
	// refused. Evicted events may be submitted again.
	MaxEntries int
	MaxBytes   int64
	// MaxPullBytes is the maximum number of bytes in a repository that only pull requests of authors
	// who are no maintainers need. If there is no room, the author with most refs loses the oldest one. If
	// each author has one ref, the new one is refused. MaxPullBytes also bounds the bytes that come for pull
	// requests between two prunes of a repository. More are refused until the next prune, which is due
	// when half of the bytes has come. Defaults to 1 GiB.
	MaxPullBytes int64
	// MaxOwnerPullBytes is the maximum number of bytes of such pull requests in all repositories of an owner.
	// MaxPullBytes is lower by the part of it that the other repositories of the owner use, so that none of
	// them uses all of the rest. Defaults to no limit.
	MaxOwnerPullBytes int64
	// MaxHunts is the maximum number of requests to git servers in flight. One owner has at most half of
	// them. Other requests wait, round-robin by owner. Defaults to 10.
	MaxHunts int
	// DomainLimit is the limit of requests to one server (host and port). Defaults to 5 concurrent ones
	// and 30 in any 60 s. DomainLimits has the exceptions, with both numbers set.
	DomainLimit  Limit
	DomainLimits map[graspsync.HostPort]Limit
	// MaxRepoDay is the maximum number of bytes fetched for one repository in 24 h, MaxHostDay that of
	// bytes fetched from one server. The second half of MaxHostDay is for owners with less than the
	// mean, or less than a thousandth. Servers and objects that only pull requests name have at most
	// half of MaxRepoDay. A fetch that a crash has cut short counts as an eighth of the smaller one.
	// Defaults to 4 GiB and 16 GiB.
	MaxRepoDay, MaxHostDay int64
}

// Limit is a limit of requests to one server. A request is one attempt at one URL.
type Limit struct {
	Concurrent int // in flight
	PerMinute  int // in any 60 s
}

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
	def(&c.fixed.Remember, 7*24*time.Hour)
	def(&c.Times.Departed, 7*24*time.Hour)
	def(&c.fixed.UserDelay, min(3*time.Minute, c.Times.Hold/4))
	def(&c.fixed.SyncDelay, 500*time.Millisecond)
	def(&c.Times.Backoff, 20*time.Second)
	def(&c.fixed.MaxBackoff, max(6*c.Times.Backoff, 2*time.Minute))
	def(&c.fixed.Check, time.Hour)
	def(&c.Times.Grace, 14*24*time.Hour)
	def(&c.Limits.MaxPullBytes, 1<<30)
	def(&c.Limits.MaxOwnerPullBytes, manyBytes)
	def(&c.Limits.MaxEntries, 10_000)
	def(&c.Limits.MaxBytes, 64<<20)
	def(&c.fixed.MaxPerAuthor, 100)
	def(&c.fixed.MaxRemembered, 50_000)
	def(&c.fixed.MaxKept, 20_000)
	def(&c.fixed.MaxClones, 16)
	def(&c.Limits.MaxHunts, 10)
	def(&c.fixed.MaxLooks, 4)
	def(&c.Limits.DomainLimit, Limit{Concurrent: 5, PerMinute: 30})
	def(&c.Limits.MaxRepoDay, 4<<30)
	def(&c.Limits.MaxHostDay, 16<<30)
	def(&c.fixed.MaxFetch, max(1, min(c.Limits.MaxRepoDay, c.Limits.MaxHostDay, manyBytes)/8))
	def(&c.fixed.MaxRepositories, 200)
	def(&c.fixed.Timeout, 5*time.Minute)
	def(&c.fixed.FetchTimeout, max(24*time.Hour, time.Duration(min(c.Limits.MaxRepoDay>>30, 1<<18))*6*time.Hour))
	return c
}

// manyBytes is too large for a limit, and small enough to be multiplied.
const manyBytes = 1 << 50

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// validate returns an error that names every invalid field.
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

// beyond returns the number of clone URLs of an event that are not used, of which unread were not even parsed.
func (c *Config) beyond(us []graspsync.CloneURL, unread int) int {
	return unread + max(0, len(us)-c.fixed.MaxClones)
}
