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

	// MaxPush is the maximum size of a push, in bytes. Defaults to 512 MiB.
	MaxPush int64
	// MaxPushes and MaxFetches are the maximum numbers of concurrent git processes for pushes and
	// fetches, a quarter for one client. Others wait up to 20 s (a push that was read 2 min), then get
	// status 503. Lists of refs have MaxFetches/2 of their own. Default to 8 and 32.
	MaxPushes, MaxFetches int
	// Client returns the name of the client of a request. Requests with the same name or IPv6 /64
	// share limits. An empty name has only the total limits. Behind a proxy set it to [BehindProxy],
	// because otherwise one client can block all. Defaults to the host of RemoteAddr if it is a public
	// address, else "".
	Client func(*http.Request) string
	// MinFreeDisk is the minimum free space on the disk, in bytes, that a push must leave. Defaults
	// to 1 GiB.
	MinFreeDisk uint64

	fixed numbers
}

// numbers are limits that only tests change. withDefaults has their values.
type numbers struct {
	MaxAsk       int64         // bytes of a fetch request
	Wait         time.Duration // for a slot; a push that was read waits turnWaits times Wait
	MaxReaders   int           // open requests of each kind
	MaxPerClient int           // of them for one client
	Timeout      time.Duration // of a push; a fetch may take answerTimeouts times Timeout
	RateWindow   time.Duration // of a read; a write may take writeWindows times RateWindow
	View         time.Duration // for git to read the commit and the README of a page
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
	if c.Client == nil {
		c.Client = remote
	}
	def(&c.MaxPush, 512<<20)
	def(&c.MaxPushes, 8)
	def(&c.MaxFetches, 32)
	def(&c.MinFreeDisk, disk.MinFree)
	def(&c.fixed.MaxAsk, 16<<20)
	def(&c.fixed.Wait, 20*time.Second)
	def(&c.fixed.MaxReaders, 128)
	def(&c.fixed.MaxPerClient, 8)
	def(&c.fixed.Timeout, 30*time.Minute)
	def(&c.fixed.RateWindow, 30*time.Second)
	def(&c.fixed.View, 5*time.Second)
	return c
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (c Config) validate() error {
	return errors.Join(atLeast("MaxPush", c.MaxPush, 1), atLeast("MaxPushes", c.MaxPushes, 1), atLeast("MaxFetches", c.MaxFetches, 1))
}

func atLeast[T int | int64 | time.Duration](name string, value, least T) error {
	if value < least {
		return fmt.Errorf("%s is %d, want at least %d", name, value, least)
	}
	return nil
}

// RepositoriesConfig configures [Repositories]. The zero value works.
type RepositoriesConfig struct {
	// Git is the path of the git program, version 2.39 or later. Only gitfetch.New checks the
	// version. Defaults to git in PATH.
	Git string
	// Logger receives errors. Defaults to discarding them.
	Logger *slog.Logger
	// PlainNames names the folder of a repository <owner>/<identifier>, like khatru/grasp of
	// fiatjaf.com/nostr, if the identifier has at most 150 letters, digits and characters of "_.-".
	// It must not change, and needs a case-sensitive file system.
	PlainNames bool
	// MaxMemory is the maximum memory of all git children, in bytes, at least 256 MiB, a quarter for
	// one client. A clone needs 64 MiB, 640 bytes per object, and up to 384 MiB for large objects. A
	// push needs 256 MiB and twice its size. Defaults to 2 GiB.
	MaxMemory int64
	// Memory is a budget shared with a gitfetch.Fetcher, see [NewMemory]. Defaults to a budget of
	// MaxMemory.
	Memory *gitrun.Memory
	// AllowFaults are names of git fsck, such as hasDotgit. Objects with these faults are accepted
	// although they attack or break a checkout. Defaults to none.
	AllowFaults []string
	// StageHold is the time for which the data of an unknown event is staged, also over restarts.
	// Defaults to 20 min.
	StageHold time.Duration
	// MaxStaged is the maximum size of all staged data, in bytes, at least 64 KiB per event. A
	// network may use a quarter, one client a 16th, and a push beyond this is refused. Beyond the
	// total, the oldest push of the client with most data is removed. Defaults to 4 GiB.
	MaxStaged int64
	// MaxOwnerBytes and MaxBytes are the maximum sizes of the repositories of one owner, and of all,
	// in bytes. Pushes that need more are refused, and events whose fetched data needs more wait.
	// Pull requests cannot use the last quarter of MaxOwnerBytes, because anyone can create them. The
	// total is measured every hour. Default to no limit.
	MaxOwnerBytes, MaxBytes int64

	fixed folderNumbers
}

// folderNumbers are limits of staged data in bytes that only tests change.
type folderNumbers struct{ MaxStagedPerClient int64 }

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
	def(&c.fixed.MaxStagedPerClient, max(c.MaxStaged/16, 1))
	return c
}

func (c RepositoriesConfig) validate() error {
	return errors.Join(
		atLeast("MaxMemory", c.MaxMemory, leastMemory), atLeast("StageHold", c.StageHold, 1), atLeast("MaxStaged", c.MaxStaged, 1),
		atLeast("MaxOwnerBytes", c.MaxOwnerBytes, 0), atLeast("MaxBytes", c.MaxBytes, 0))
}

// leastMemory suffices for small repositories.
const leastMemory = 256 << 20
