package gitfetch

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/internal/disk"
	"github.com/graspsync/graspsync/purgatory/internal/gitrun"
)

// Config configures a [Fetcher]. Dialer is required.
type Config struct {
	// Dialer makes all connections and checks all addresses.
	Dialer *egress.Dialer
	// Git is the path of the git program, version 2.39 or later. Defaults to git in PATH.
	Git string
	// Logger receives warnings about git. Defaults to discarding them.
	Logger *slog.Logger

	// MaxPackBytes is the maximum size of a pack in bytes. Defaults to 4 GiB, like
	// purgatory.Limits.MaxRepoDay.
	MaxPackBytes int64
	// MaxAddressDay is the maximum number of bytes in 24 hours from one IPv4 address, or one /64 of
	// IPv6, until a restart. Defaults to 16 GiB, like purgatory.Limits.MaxHostDay.
	MaxAddressDay int64
	// MaxPackObjects is the maximum number of objects of a pack by its header. Defaults to
	// 2,000,000.
	MaxPackObjects uint32
	// Memory is the memory budget of all git children, see gitserve.NewMemory. Defaults to 2 GiB, of
	// which one child may use half.
	Memory *gitrun.Memory
	// MaxChildren is the maximum number of concurrent git children, without those of maintenance.
	// Defaults to 4.
	MaxChildren int
	// MaxFetches is the maximum number of concurrent fetches, best twice
	// purgatory.Limits.MaxFetchJobs. Defaults to 20.
	MaxFetches int
	// AllowFaults are as in gitserve.RepositoriesConfig. Defaults to none.
	AllowFaults []string
	// MinFreeDisk is the minimum free space on the disk, in bytes, below which fetches fail with
	// [ErrDisk]. Defaults to 1 GiB.
	MinFreeDisk uint64

	fixed constants
}

// constants are limits that only tests change.
type constants struct {
	// Timeout is the maximum time to receive a pack, and to index it, plus one second per received 64
	// times MinRate bytes. Defaults to 10 min.
	Timeout time.Duration
	// MaxAdvertBytes and MaxAdvertRefs limit the ref list of a server. Default to 64 MiB and
	// 500,000.
	MaxAdvertBytes int64
	MaxAdvertRefs  int
	// MinRate is the minimum speed of an answer, in bytes per second, over each RateWindow. Default
	// to 1 KiB/s and 30 s.
	MinRate    int64
	RateWindow time.Duration
}

// pace times MinRate is the minimum average speed of a fetch after Timeout.
const pace = 64

func (c Config) earned(bytes int64) time.Duration {
	return c.fixed.Timeout + time.Duration(float64(bytes)/float64(pace*c.fixed.MinRate)*float64(time.Second))
}

// ErrConfig is wrapped by errors of [New] about invalid fields.
var ErrConfig = errors.New("invalid configuration")

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	def(&c.Git, "git")
	def(&c.MaxPackBytes, 4<<30)
	def(&c.MaxPackObjects, 2_000_000)
	def(&c.MaxAddressDay, 16<<30)
	def(&c.fixed.MaxAdvertBytes, 64<<20)
	def(&c.fixed.MaxAdvertRefs, 500_000)
	def(&c.fixed.Timeout, 10*time.Minute)
	def(&c.fixed.MinRate, 1<<10)
	def(&c.fixed.RateWindow, 30*time.Second)
	if c.Memory == nil {
		c.Memory = gitrun.NewMemory(gitrun.DefaultMemory)
	}
	def(&c.MaxChildren, 4)
	def(&c.MaxFetches, 20)
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
	positive := func(name string, ok bool) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s is not above 0", name))
		}
	}
	if c.Dialer == nil {
		errs = append(errs, errors.New("Dialer is nil"))
	}
	positive("MaxPackBytes", c.MaxPackBytes > 0)
	positive("MaxAddressDay", c.MaxAddressDay > 0)
	positive("MaxChildren", c.MaxChildren > 0)
	positive("MaxFetches", c.MaxFetches > 0)
	return errors.Join(errs...)
}
