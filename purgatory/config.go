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

// Config holds what may be set about a [Purgatory]. The zero value works: a field that
// is zero has its default, a negative one is refused.
type Config struct {
	// Identity is how our service is reached: our own clone URLs are never fetched
	// from. Without it none is ours.
	Identity nip34.Identity
	// Membership says who is a maintainer, whose states decide about refs.
	Membership nip34.Membership
	// Logger gets what happens. Defaults to discarding it.
	Logger *slog.Logger
	// Observe, if not nil, is told what happens, on the goroutine of Run or that of
	// the caller of a method. It must not block. A panic in it is contained.
	Observe func(Observation)

	// NoMaintenance has repositories left as they are: whoever sees to their packs, refs
	// and unnamed objects must do so without a push or Run at the same time.
	NoMaintenance bool

	// Times are how long things wait or may take.
	Times Times

	fixed constants
	// Limits are how much there may be of what costs memory, disk, traffic or work.
	Limits Limits
}

// Times are the times of a [Purgatory] about which two operators may differ.
type Times struct {
	// Hold is how long an event waits. Signs of life can make an announcement wait for 24 h
	// in all, and so any event one of whose servers was not asked for it yet because others
	// had their turns; for as long as Hold if that is more. Defaults to 30 min.
	Hold time.Duration
	// Departed is how long the folder of a repository is kept that is out of service: its
	// announcement was deleted, has expired, or lists us no more. Should it be announced
	// again in that time it is as it was. Defaults to 7 days.
	Departed time.Duration
	// Backoff is the wait after a first hunt that did not complete, doubling up to six
	// times that. Defaults to 20 s.
	Backoff time.Duration
	// Grace is how long objects stay in a repository that nothing names any more: no ref,
	// no log of one (which is kept for 30 days), no event that waits. With too little,
	// what somebody is about to name may be gone. Defaults to 14 days.
	Grace time.Duration
}

// constants are the numbers about which no two operators would differ. Only tests have others.
type constants struct {
	// MaxHold is how long an event waits in all, see Times.Hold: a repository that gives no
	// more signs of life than a day of them brings nothing any more. It must not be less than
	// Hold. Defaults to 24 h, or as much as Hold.
	MaxHold time.Duration
	// UserDelay and SyncDelay are the times before the first hunt for what a user
	// submitted, whose push usually follows, so that hunting would be in vain, and for what
	// came by sync, so that what comes with it is hunted for in one go. Default to 3 min, or a
	// quarter of Hold if that is less, and 500 ms.
	UserDelay, SyncDelay time.Duration
	// FetchTimeout bounds each call of the GitFetcher that fetches. It should be above the
	// GitFetcher's own limit, which says what was wrong and lets one take longer the more it
	// brings: package gitfetch gives a GiB less than 5 h. Defaults to 24 h, or to 6 h for
	// each GiB of MaxRepoDay if that is more.
	FetchTimeout time.Duration
	// MaxPerAuthor bounds the states of one author that wait, and what else of theirs does.
	// Defaults to 100.
	MaxPerAuthor int
	// MaxFetch is what a fetch is charged with that a crash has cut short, whatever it
	// had brought. With less than one brings a crash loop may fetch more than it should,
	// with too much a few crashes use up a day. Defaults to an eighth of
	// MaxRepoDay or of MaxHostDay, of the smaller one.
	MaxFetch int64
	// MaxBackoff is the longest wait between two hunts. Defaults to six times Backoff, and 2 min at least.
	MaxBackoff time.Duration
	// SoftExpiry is how long an announcement that expired is kept, during which a
	// state event revives it. Defaults to 24 h.
	SoftExpiry time.Duration
	// Remember is how long the id of an event that waited in vain is remembered, so
	// that it is not taken in again. Defaults to 7 days.
	Remember time.Duration
	// Check is the time between two checks of a listed repository against its latest
	// state. Defaults to 1 h.
	Check time.Duration
	// MaxRemembered bounds the ids that are remembered. Defaults to 50,000.
	MaxRemembered int
	// MaxKept bounds the git servers, and the repositories, of which it is kept on the disk
	// how hunting went; those that are being asked are kept in any case. What has no room
	// is forgotten, and may be asked anew sooner than it would be. Defaults to 20,000.
	MaxKept int
	// MaxClones bounds the clone URLs of one announcement, and of one pull request, that
	// are hunted: the first ones, and four times as many of all who have a say in a repository
	// together, sixteen times as many of all pull requests to one, one of each author in turn. The rest is counted. Defaults to 16.
	MaxClones int
	// MaxLooks bounds the repositories whose objects are looked at concurrently, in turns by
	// owner, and half as many more of those that took long before. An owner has at most half of both.
	// Defaults to 4.
	MaxLooks int
	// MaxRepositories bounds the repositories with one identifier, of whichever owners,
	// that are dealt with at once. Beyond it those whose owners wrote something that
	// waits come first, the others in turns. Defaults to 200.
	MaxRepositories int
	// Timeout bounds each call of the Relay and of the Repositories, and each of the
	// GitFetcher that does not fetch. Defaults to 5 min.
	Timeout time.Duration
}

// Limits bound what a [Purgatory] keeps, fetches and does at once.
type Limits struct {
	// MaxEntries bounds the events that wait, MaxBytes what they take up in memory, about, in
	// bytes. Default to 10,000 and 64 MiB. Of one author 100 wait.
	//
	// All strangers share them: announcements and states count for the key that signed them, pull requests
	// for the relay host that brought them, or together if clients submitted them. If there is no room, the
	// oldest entry of the stranger that has most is evicted, expired announcements first. If each stranger
	// has one entry, the new one is refused. Nothing is remembered of evicted entries: they may come again.
	MaxEntries int
	MaxBytes   int64
	// MaxPullBytes bounds the bytes of the pull requests in one repository whose authors have no
	// say in it, besides what branches and tags need. If there is no room for a new one, the author
	// with most refs loses the oldest; if each author has one, the new one is refused. It also bounds the
	// bytes that come for pull requests between two prunes of a repository: more are refused until the
	// next prune. A prune is due when half of this has come. Defaults to 1 GiB.
	MaxPullBytes int64
	// MaxHunts is the maximum number of requests to git servers in flight, of which one owner has at most
	// half. More wait, round-robin by owner. Defaults to 10.
	MaxHunts int
	// DomainLimit bounds the requests to one server (host and port): concurrent ones, and those in any 60 s.
	// DomainLimits has exceptions, in which both numbers must be set. Defaults to 5 and 30.
	DomainLimit  Limit
	DomainLimits map[graspsync.HostPort]Limit
	// MaxRepoDay and MaxHostDay bound the bytes fetched for one repository and from
	// one server in 24 hours. The second half of a server's is for owners who have had no more of it than
	// others in the mean, or less than a thousandth. What only pull requests name, as their servers or as an
	// object, gets half of that at most. A fetch that a crash has cut short is charged to both with
	// an eighth of the smaller one. Default to 4 GiB and 16 GiB.
	MaxRepoDay, MaxHostDay int64
}

// Limit bounds requests to one server. A request is one attempt at one URL.
type Limit struct {
	Concurrent int // at once
	PerMinute  int // in any 60 s
}

// ErrConfig is wrapped by what [Open] says of its arguments.
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

// manyBytes is no bound any more, and small enough to be multiplied.
const manyBytes = 1 << 50

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// validate names every field that can't be used.
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

// beyond is how many clone URLs of an event are not hunted: those that were not even
// read, and the rest beyond the bound.
func (c *Config) beyond(us []graspsync.CloneURL, unread int) int {
	return unread + max(0, len(us)-c.fixed.MaxClones)
}
