package gitserve

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/disk"
	"github.com/graspsync/graspsync/purgatory/internal/gitrun"
)

// Config says how repositories are served. The zero value works.
type Config struct {
	// Logger gets what goes wrong. Defaults to discarding it.
	Logger *slog.Logger
	// Describe says what the page of a repository has besides its refs. Defaults to nothing.
	Describe func(context.Context, graspsync.RepoRef) (Description, error)

	// MaxPush bounds what one push may send, in bytes. An object of it has a
	// bound of its own: see MaxMemory of [RepositoriesConfig]. Defaults to 512 MiB.
	MaxPush int64
	// MaxPushes and MaxFetches bound the runs of git of a kind at once, for requests that
	// have come to their end. Default to 8 and 32. Half as many again as the latter are for
	// who only asks what is here.
	//
	// One client has at most a quarter of them, its network all. Others wait for up to 20 s and
	// are served in turn, then they are told to come again. A push that has been read waits for
	// the lock of its repository for up to 2 min. While others wait, a request ends whose client
	// is slower than 64 KiB/s: put a proxy that buffers before the server for slow clients.
	MaxPushes, MaxFetches int
	// Client says whose a request is; of an address of IPv6 only its /64 counts, and for who has
	// no name only the totals hold. Behind a proxy it must be set, or one client can keep all
	// others away: see [BehindProxy]. Defaults to the host of RemoteAddr if it is a public
	// address, else no name.
	Client func(*http.Request) string
	// MinFreeDisk is how much must stay free on the disk of the repositories, in bytes:
	// a push that would leave less is refused. Defaults to 1 GiB.
	MinFreeDisk uint64

	fixed numbers
}

// numbers are those about which no two operators would differ. Only tests have others.
type numbers struct {
	// MaxAsk bounds what one fetch may ask, in bytes. Defaults to 16 MiB.
	MaxAsk int64
	// MaxCommands bounds the refs of one push. Defaults to 10,000.
	MaxCommands int
	// Wait is how long a request waits for a place, a push that has been read six times that.
	// Defaults to 20 s.
	Wait time.Duration
	// MaxPerClient bounds the requests of one client and one kind. Defaults to 8.
	MaxPerClient int
	// MaxReaders bounds the requests of each of the three kinds. Each may cost 4 MiB of memory,
	// and of the disk MaxAsk, or 8 MiB of a push; all that pushes take beyond that is at most 16 times MaxPush,
	// of which one client has a quarter. Defaults to 128.
	MaxReaders int
	// CommandTime bounds the time for all commands of a push, Timeout that of a push. A fetch has eight times
	// Timeout. Default to 30 s and 30 min.
	CommandTime, Timeout time.Duration
	// MinRate is the least that a client must send, in bytes a second, over any RateWindow
	// in which we wait for it, or take over eight of them: what is taken is seen in pieces
	// of more than a megabyte. A slower one is cut off. Default to 1 KiB/s and 30 s.
	MinRate    int64
	RateWindow time.Duration
}

// ErrConfig is wrapped by what [Open] and [New] say of their arguments.
var ErrConfig = errors.New("invalid configuration")

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Describe == nil {
		c.Describe = func(context.Context, graspsync.RepoRef) (Description, error) { return Description{}, nil }
	}
	def(&c.MaxPush, 512<<20)
	def(&c.fixed.MaxAsk, 16<<20)
	def(&c.fixed.MaxCommands, 10_000)
	def(&c.MaxPushes, 8)
	def(&c.MaxFetches, 32)
	def(&c.fixed.Wait, 20*time.Second)
	def(&c.fixed.MaxReaders, 128)
	def(&c.fixed.MaxPerClient, 8)
	if c.Client == nil {
		c.Client = remote
	}
	def(&c.fixed.CommandTime, 30*time.Second)
	def(&c.fixed.MinRate, 1<<10)
	def(&c.fixed.RateWindow, 30*time.Second)
	def(&c.fixed.Timeout, 30*time.Minute)
	def(&c.MinFreeDisk, disk.MinFree)
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
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"MaxPush", c.MaxPush}, {"MaxAsk", c.fixed.MaxAsk}, {"MaxCommands", int64(c.fixed.MaxCommands)}, {"MaxPushes", int64(c.MaxPushes)},
		{"MaxFetches", int64(c.MaxFetches)}, {"Timeout", int64(c.fixed.Timeout)},
		{"Wait", int64(c.fixed.Wait)}, {"MaxReaders", int64(c.fixed.MaxReaders)}, {"MaxPerClient", int64(c.fixed.MaxPerClient)},
		{"CommandTime", int64(c.fixed.CommandTime)}, {"MinRate", c.fixed.MinRate}, {"RateWindow", int64(c.fixed.RateWindow)},
	} {
		if f.value <= 0 {
			errs = append(errs, fmt.Errorf("%s is %d, want more than 0", f.name, f.value))
		}
	}
	return errors.Join(errs...)
}

// RepositoriesConfig says what may lie in a folder of repositories, and how git is run there.
// The zero value works.
type RepositoriesConfig struct {
	// Git is the program that is run in the folder, at least version 2.39, which only
	// gitfetch.New checks. Defaults to the one in PATH.
	Git string
	// Logger gets what goes wrong. Defaults to discarding it.
	Logger *slog.Logger
	// PlainNames has the folder of a repository be called <owner>/<identifier>, as that of
	// khatru/grasp of fiatjaf.com/nostr, where the identifier has at most 150 letters, digits and
	// characters of "_.-"; all others have the names that they have without it. It is not for a
	// folder that was opened without it, nor for a disk that takes A for a.
	PlainNames bool
	// MaxMemory bounds the memory of all git children together, in bytes. One client may have a
	// quarter; others wait, and are told to come again after 20 s. To clone a repository takes 64 MiB,
	// 640 bytes for each object in it, and up to 384 MiB for large objects; a push takes 256 MiB and twice its size, of which an
	// object may have half. A child that needs more than it has ends with an error. At least
	// 256 MiB. Defaults to 2 GiB. Where the system has no such limit only git's own is used.
	MaxMemory int64
	// Memory is what is shared with the children of a gitfetch.Fetcher: see [NewMemory]. Defaults to
	// MaxMemory for the children of these repositories alone.
	Memory *gitrun.Memory
	// AllowFaults are faults of objects that are accepted although they attack or break a checkout, by the
	// names of git fsck, such as hasDotgit. All faults of authors, dates and messages are accepted in any case,
	// but no commit or tag of more than 4 MiB. Defaults to none.
	AllowFaults []string
	// StageHold is how long what was pushed for an event that is not here waits for it,
	// outside of the repository, over restarts as well. Defaults to 20 min.
	StageHold time.Duration
	// MaxStaged bounds what such pushes take up, in bytes. Defaults to 4 GiB. A quarter of it
	// bounds those to the repositories of one owner, a 16th those of one client (see Client of [Config]; a
	// client without a name has no bound of its own), a quarter those of one network (a /24 of IPv4, a /48 of
	// IPv6). Each event of a push counts for 64 KiB at least.
	//
	// If there is no room in all or for an owner, the oldest push of the client that has most is removed. A push
	// beyond a bound is refused while it comes; its client may push again when the event is stored, when it
	// counts for none of them. The bounds hold for pushes of an earlier process, too.
	MaxStaged int64
	// MaxOwnerBytes and MaxBytes bound what the repositories of one owner, and of all, take
	// up, in bytes: pushes that need more are refused. What is
	// fetched has no more room either: events wait for it, until there is. What only pull
	// requests need, which anybody may write, does not count for the owner, but has as much
	// room again; how much of it may be in one repository is for [Authority] to say. What all
	// take up is measured every hour. Default to no limit.
	MaxOwnerBytes, MaxBytes int64

	fixed folderNumbers
}

// folderNumbers are those about which no two operators would differ. Only tests have others.
type folderNumbers struct {
	// MaxStagedPerOwner and MaxStagedPerClient bound what is staged in the repositories of one owner and by one
	// client. Default to a quarter and a sixteenth of MaxStaged.
	MaxStagedPerOwner, MaxStagedPerClient int64
}

// NewMemory returns the memory that all git children share, for the Memory of a RepositoriesConfig and of a
// gitfetch.Config.
func NewMemory(c RepositoriesConfig) *gitrun.Memory {
	if c.Memory != nil {
		return c.Memory
	}
	return gitrun.NewMemory(c.withDefaults().MaxMemory)
}

func (c RepositoriesConfig) withDefaults() RepositoriesConfig {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	def(&c.Git, "git")
	def(&c.MaxMemory, gitrun.DefaultMemory)
	def(&c.StageHold, 20*time.Minute)
	def(&c.MaxStaged, 4<<30)
	def(&c.fixed.MaxStagedPerOwner, max(c.MaxStaged/4, 1))
	def(&c.fixed.MaxStagedPerClient, max(c.MaxStaged/16, 1))
	return c
}

// validate names every field that can't be used.
func (c RepositoriesConfig) validate() error {
	var errs []error
	for name, value := range map[string]int64{"MaxOwnerBytes": c.MaxOwnerBytes, "MaxBytes": c.MaxBytes} {
		if value < 0 {
			errs = append(errs, fmt.Errorf("%s is %d, want 0 or more", name, value))
		}
	}
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"MaxMemory", c.MaxMemory}, {"StageHold", int64(c.StageHold)}, {"MaxStaged", c.MaxStaged},
		{"MaxStagedPerOwner", c.fixed.MaxStagedPerOwner}, {"MaxStagedPerClient", c.fixed.MaxStagedPerClient},
	} {
		if f.value <= 0 {
			errs = append(errs, fmt.Errorf("%s is %d, want more than 0", f.name, f.value))
		}
	}
	if c.MaxMemory > 0 && c.MaxMemory < leastMemory {
		errs = append(errs, fmt.Errorf("MaxMemory is %d, want at least %d bytes", c.MaxMemory, leastMemory))
	}
	return errors.Join(errs...)
}

// leastMemory is the total with which git can serve and take in small repositories.
const leastMemory = 256 << 20

// staged are the limits of what is staged.
func (c RepositoriesConfig) staged() stagingLimits {
	return stagingLimits{hold: c.StageHold, perClient: c.fixed.MaxStagedPerClient, perOwner: c.fixed.MaxStagedPerOwner, all: c.MaxStaged}
}
