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

// Config says how things are fetched. Only Dialer must be set.
type Config struct {
	// Dialer makes every connection and judges every address.
	Dialer *egress.Dialer
	// Git is the program that is run, at least version 2.39. Defaults to the one in
	// PATH.
	Git string
	// UserAgent is what servers see in the HTTP header of that name. Defaults to
	// "git/2.39 graspsync".
	UserAgent string
	// Logger gets what happens. Defaults to discarding it.
	Logger *slog.Logger

	// MaxPackBytes bounds a pack as it comes, inflated if it was compressed for the
	// way. Larger repositories never come. Defaults to 4 GiB, as much as
	// purgatory.Limits.MaxRepoDay.
	MaxPackBytes int64
	// MaxAddressDay bounds what comes from one address (of IPv6 its /64) in 24 hours, under
	// whatever names, in bytes. It is not kept over a restart. Defaults to 16 GiB, as
	// purgatory.Limits.MaxHostDay does for each name.
	MaxAddressDay int64
	// MaxPackObjects bounds the objects of a pack, by its header: a larger repository is
	// not fetched. For more of them git needs more memory: see Memory. Defaults to
	// 2,000,000.
	MaxPackObjects uint32
	// Memory is what all git children share: gitserve.NewMemory makes it for a server. To walk and to
	// pack a repository takes up to 500 bytes for each object in it, to index a
	// pack 200. Defaults to 2 GiB of its own, of which a child may have half.
	Memory *gitrun.Memory
	// MaxChildren bounds the child processes at once, but for two that put repositories in
	// order. None of them waits for a server. Defaults to 4.
	MaxChildren int
	// MaxFetches bounds the fetches that wait for servers at once, each of which may
	// take Timeout and MaxPackBytes of the disk. With fewer of them than the embedder
	// has under way (twice purgatory.Limits.MaxHunts) slow servers make the others wait.
	// Defaults to 20.
	MaxFetches int
	// AllowFaults are faults of objects that are accepted although they attack or break a checkout, by the
	// names of git fsck, such as hasDotgit. All faults of authors, dates and messages are accepted in any case,
	// but no commit or tag of more than 4 MiB. Defaults to none.
	AllowFaults []string
	// MinFreeDisk is how much must stay free on the disk of the repository, in
	// bytes. Defaults to 1 GiB.
	MinFreeDisk uint64

	fixed constants
}

// constants are the numbers about which no two operators would differ. Only tests have others.
type constants struct {
	// Timeout bounds one fetch that does not bring much; one that does may take longer, by
	// as much as the bytes that came take at 64 times MinRate. Defaults to 10 min.
	Timeout time.Duration
	// MaxAdvertBytes and MaxAdvertRefs bound what a server says before the pack.
	// Default to 64 MiB and 500,000.
	MaxAdvertBytes int64
	MaxAdvertRefs  int
	// MinRate is the least that must come, in bytes a second, over any RateWindow in
	// which a server sends its answer. Default to 1 KiB/s and 30 s.
	MinRate    int64
	RateWindow time.Duration
}

// pace is how many times MinRate a server must have sent on average to be given more time
// than Timeout.
const pace = 64

// earned is how long a fetch may take that has brought so many bytes.
func (c Config) earned(bytes int64) time.Duration {
	return c.fixed.Timeout + time.Duration(float64(bytes)/float64(pace*c.fixed.MinRate)*float64(time.Second))
}

// ErrConfig is wrapped by what [New] says of its argument.
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

// validate names every field that can't be used.
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
