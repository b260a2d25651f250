package gitserve

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"time"

	"github.com/graspsync/graspsync/internal/disk"
	"github.com/graspsync/graspsync/purgatory/internal/gitrun"
)

// Config configures a [Handler]. The zero value works.
type Config struct {
	// Logger receives errors. Defaults to discarding them.
	Logger *slog.Logger
	// Pages answers browsers. Defaults to lines of text.
	Pages Pages

	// MaxPush is the maximum size of a push, in bytes. MaxMemory of [RepositoriesConfig] limits the
	// size of one object. Defaults to 512 MiB.
	MaxPush int64
	// MaxPushes and MaxFetches are the maximum numbers of concurrent git runs for pushes and for
	// fetches. Default to 8 and 32. Requests for lists of refs have a separate limit of
	// MaxFetches/2.
	//
	// One client may hold a quarter of each, and the clients of one network together all. Other
	// requests wait up to 20 s in rotation and then get status 503. A push that was read waits up to
	// 2 min for the lock of its repository. While requests wait, a request whose client is slower
	// than 64 KiB/s is ended. Slow clients need a proxy that buffers.
	MaxPushes, MaxFetches int
	// Client returns the name of the client of a request. Requests with the same name, or with IPv6
	// addresses of the same /64, share limits. Requests with an empty name have only the total
	// limits. Set Client behind a proxy (see [BehindProxy]), because otherwise one client can block
	// all clients. Defaults to the host of RemoteAddr if it is a public address, else "".
	Client func(*http.Request) string
	// MinFreeDisk is the minimum free space on the disk of the repositories, in bytes. Pushes that
	// would leave less are refused. Defaults to 1 GiB.
	MinFreeDisk uint64

	fixed numbers
}

// numbers are limits that only tests change.
type numbers struct {
	// MaxAsk is the maximum size of a fetch request, in bytes. Defaults to 16 MiB.
	MaxAsk int64
	// MaxCommands is the maximum number of refs in a push. Defaults to 10,000.
	MaxCommands int
	// Wait is the maximum time that a request waits for a slot. A push that was read waits for 6
	// times Wait. Defaults to 20 s.
	Wait time.Duration
	// MaxPerClient is the maximum number of open requests per client and kind. Defaults to 8.
	MaxPerClient int
	// MaxReaders is the maximum number of open requests of each of the three kinds. A request uses
	// up to 4 MiB of memory, and on disk MaxAsk, or 8 MiB of a push. The part of pushes beyond 8
	// MiB is limited to 16 times MaxPush in total, of which one client may use 1/4. Defaults to
	// 128.
	MaxReaders int
	// CommandTime is the maximum time to read the commands of a push. Defaults to 30 s. Timeout is
	// the maximum time of a push. A fetch may take 8 times Timeout. Defaults to 30 min.
	CommandTime, Timeout time.Duration
	// MinRate is the minimum speed of a client, in bytes per second. Reads are measured over
	// RateWindow, writes over eight windows, because the kernel reports written data in pieces of
	// more than a megabyte. The Handler ends slower requests. Default to 1 KiB/s and 30 s.
	MinRate    int64
	RateWindow time.Duration
}

// ErrConfig is wrapped by errors of [Open] and [New] about invalid arguments.
var ErrConfig = errors.New("invalid configuration")

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Pages == nil {
		c.Pages = plain{}
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

// RepositoriesConfig configures [Repositories]. The zero value works.
type RepositoriesConfig struct {
	// Git is the path of the git program, version 2.39 or later. Only gitfetch.New checks the
	// version. Defaults to git in PATH.
	Git string
	// Logger receives errors. Defaults to discarding them.
	Logger *slog.Logger
	// PlainNames names the folder of a repository <owner>/<identifier>, like khatru/grasp of
	// fiatjaf.com/nostr. This applies to identifiers of at most 150 letters, digits and characters
	// of "_.-". Other repositories keep their usual names. Do not set it for a folder that was
	// opened without it, or on a case-insensitive file system.
	PlainNames bool
	// MaxMemory is the maximum memory of all git children together, in bytes. One client may use a
	// quarter. Other requests wait up to 20 s and then get status 503. A clone needs 64 MiB, 640
	// bytes per object of the repository, and up to 384 MiB for large objects. A push needs 256 MiB
	// and twice its size, and one object may use half of that. A child that exceeds its memory
	// fails. At least 256 MiB. Defaults to 2 GiB. On systems without memory limits for processes
	// only git's own limit applies.
	MaxMemory int64
	// Memory is the memory budget shared with a gitfetch.Fetcher, see [NewMemory]. Defaults to a
	// budget of MaxMemory for these repositories only.
	Memory *gitrun.Memory
	// AllowFaults are names of git fsck, such as hasDotgit. Objects with these faults are accepted
	// although they attack or break a checkout. Faults of authors, dates and messages are always
	// accepted, but commits and tags of more than 4 MiB are refused. Defaults to none.
	AllowFaults []string
	// StageHold is the time for which the data of an unknown event is staged, also over restarts.
	// Defaults to 20 min.
	StageHold time.Duration
	// MaxStaged is the maximum size of all staged data, in bytes. Defaults to 4 GiB. The
	// repositories of one owner may use a quarter, one client (see Client of [Config]) a 16th, and
	// one network (a /24 of IPv4, a /48 of IPv6) a quarter. A client without a name has no limit of
	// its own. Each event counts at least 64 KiB.
	//
	// If the total or the part of an owner is full, the oldest push of the client with most data is
	// removed. A push over a limit is refused while it arrives. The client may push again after the
	// event is stored, because the push then counts for no limit. Data that an earlier process
	// staged counts too.
	MaxStaged int64
	// MaxOwnerBytes and MaxBytes are the maximum sizes of the repositories of one owner, and of all
	// repositories, in bytes. Pushes that need more are refused. Events whose fetched data needs
	// more wait until there is room. Data that only pull requests need does not count for the
	// owner, because anyone can create pull requests, but it has a limit of the same size.
	// [Authority] limits it per repository. The total is measured every hour. Default to no limit.
	MaxOwnerBytes, MaxBytes int64

	fixed folderNumbers
}

// folderNumbers are limits that only tests change.
type folderNumbers struct {
	// MaxStagedPerOwner and MaxStagedPerClient are the maximum sizes of staged data per owner and
	// per client. Default to a quarter and a sixteenth of MaxStaged.
	MaxStagedPerOwner, MaxStagedPerClient int64
}

// NewMemory returns a memory budget for git children, for Memory of RepositoriesConfig and
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

// leastMemory is the minimum with which git can serve and receive small repositories.
const leastMemory = 256 << 20

func (c RepositoriesConfig) staged() stagingLimits {
	return stagingLimits{hold: c.StageHold, perClient: c.fixed.MaxStagedPerClient, perOwner: c.fixed.MaxStagedPerOwner, all: c.MaxStaged}
}
