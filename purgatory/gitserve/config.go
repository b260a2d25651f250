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
