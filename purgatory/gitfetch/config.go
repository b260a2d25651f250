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

// Config is the configuration of a [Fetcher]. Dialer is required.
type Config struct {
	// Dialer makes every connection and checks every address.
	Dialer *egress.Dialer
	// Git is the path of the git program, at least version 2.39. Defaults to git in PATH.
	Git string
	// UserAgent is the User-Agent header of requests. Defaults to "git/2.39 graspsync".
	UserAgent string
	// Logger receives warnings about git. Defaults to a logger that discards them.
	Logger *slog.Logger

	// MaxPackBytes bounds a pack, without the compression of HTTP, in bytes. A larger pack is
	// refused. Defaults to 4 GiB, as purgatory.Limits.MaxRepoDay.
	MaxPackBytes int64
	// MaxAddressDay bounds the bytes from one IPv4 address, or one /64 of IPv6, in 24 hours. All host names
	// of the address count together. A restart sets the count to 0. Defaults to 16 GiB, as
	// purgatory.Limits.MaxHostDay does for each host name.
	MaxAddressDay int64
	// MaxPackObjects bounds the number of objects in the header of a pack. A larger pack is refused. More
	// objects need more memory, see Memory. Defaults to 2,000,000.
	MaxPackObjects uint32
	// Memory is shared by all git children, also by those of package gitserve if gitserve.NewMemory made it.
	// Walking and packing a repository takes up to 500 bytes for each object, indexing a pack
	// 200. Defaults to 2 GiB for this Fetcher, of which a child may have half.
	Memory *gitrun.Memory
	// MaxChildren bounds the number of concurrent git children. Two more may maintain repositories. No child
	// waits for a server. Defaults to 4.
	MaxChildren int
	// MaxFetches bounds the number of concurrent fetches. Each may take 10 minutes and MaxPackBytes of the
	// disk. If it is less than twice purgatory.Limits.MaxHunts, slow servers delay other fetches.
	// Defaults to 20.
	MaxFetches int
	// AllowFaults are faults of objects that are accepted although they attack or break a checkout, by the
	// names of git fsck, such as hasDotgit. All faults of authors, dates and messages are accepted in any case,
	// but no commit or tag of more than 4 MiB. Defaults to none.
	AllowFaults []string
	// MinFreeDisk is the least number of free bytes on the disk of the repository. A fetch that would leave less
	// ends with [ErrDisk]. Defaults to 1 GiB.
	MinFreeDisk uint64

	fixed constants
}

// constants are numbers that only tests change.
type constants struct {
	// Timeout is the time that a fetch may take, plus one second for each 64 times MinRate bytes that it has
	// received. Defaults to 10 min.
	Timeout time.Duration
	// MaxAdvertBytes and MaxAdvertRefs bound the list of refs of a server.
	// Default to 64 MiB and 500,000.
	MaxAdvertBytes int64
	MaxAdvertRefs  int
	// MinRate is the least rate of an answer, in bytes per second, over each RateWindow. Default to 1 KiB/s and 30 s.
	MinRate    int64
	RateWindow time.Duration
}

// pace times MinRate is the average rate at which a fetch may go on after Timeout.
const pace = 64

// earned returns the time that a fetch may take that has received a number of bytes.
func (c Config) earned(bytes int64) time.Duration {
	return c.fixed.Timeout + time.Duration(float64(bytes)/float64(pace*c.fixed.MinRate)*float64(time.Second))
}

// ErrConfig is wrapped by the error of [New] for a field that can't be used.
var ErrConfig = errors.New("invalid configuration")

func (c Config) withDefaults() Config {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	def(&c.Git, "git")
	def(&c.UserAgent, "git/2.39 graspsync")
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

// validate returns an error that names each field that can't be used.
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
	for i := range len(c.UserAgent) {
		if b := c.UserAgent[i]; b < ' ' || b >= 0x7f {
			errs = append(errs, errors.New("UserAgent is not printable ASCII"))
			break
		}
	}
	positive("MaxPackBytes", c.MaxPackBytes > 0)
	positive("MaxAddressDay", c.MaxAddressDay > 0)
	positive("MaxAdvertBytes", c.fixed.MaxAdvertBytes > 0)
	positive("MaxAdvertRefs", c.fixed.MaxAdvertRefs > 0)
	positive("Timeout", c.fixed.Timeout > 0)
	positive("MinRate", c.fixed.MinRate > 0)
	positive("RateWindow", c.fixed.RateWindow > 0)
	positive("MaxChildren", c.MaxChildren > 0)
	positive("MaxFetches", c.MaxFetches > 0)
	return errors.Join(errs...)
}
