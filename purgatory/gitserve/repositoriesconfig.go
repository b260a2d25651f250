package gitserve

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/graspsync/graspsync/purgatory/gitserve/internal/staged"
)

// RepositoriesConfig says what may lie in a folder of repositories. The zero value works.
type RepositoriesConfig struct {
	// Logger gets what goes wrong. Defaults to discarding it.
	Logger *slog.Logger
	// StageHold is how long what was pushed for an event that is not here waits for it,
	// outside of the repository, over restarts as well. Defaults to 20 min.
	StageHold time.Duration
	// MaxStaged bounds what such pushes take up, in bytes: a quarter of it those to one
	// repository, and a 16th those of one client (see Client of [Config]; who
	// has no name has no bound of its own). Each event of a push counts for 64 KiB at
	// least. What there is in all and for one repository is shared by network (a /24 of IPv4, a /48 of IPv6): where one
	// of them is full, the oldest pushes of the network that has the most give way to those
	// of one that has less. What has no room then is refused while it comes; it can be
	// pushed when the event is here, when it counts for none of these. What an earlier process
	// has left has no more room than that either. Defaults to 4 GiB.
	MaxStaged int64

	fixed folderNumbers
}

// folderNumbers are those about which no two operators would differ. Only tests have others.
type folderNumbers struct {
	// MaxStagedPerRepo and MaxStagedPerClient bound what is staged in one repository and by one
	// client. Default to a quarter and a sixteenth of MaxStaged.
	MaxStagedPerRepo, MaxStagedPerClient int64
}

func (c RepositoriesConfig) withDefaults() RepositoriesConfig {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	def(&c.StageHold, 20*time.Minute)
	def(&c.MaxStaged, 4<<30)
	def(&c.fixed.MaxStagedPerRepo, max(c.MaxStaged/4, 1))
	def(&c.fixed.MaxStagedPerClient, max(c.MaxStaged/16, 1))
	return c
}

// validate names every field that can't be used.
func (c RepositoriesConfig) validate() error {
	var errs []error
	for _, f := range []struct {
		name  string
		value int64
	}{
		{"StageHold", int64(c.StageHold)}, {"MaxStaged", c.MaxStaged},
		{"MaxStagedPerRepo", c.fixed.MaxStagedPerRepo}, {"MaxStagedPerClient", c.fixed.MaxStagedPerClient},
	} {
		if f.value <= 0 {
			errs = append(errs, fmt.Errorf("%s is %d, want more than 0", f.name, f.value))
		}
	}
	return errors.Join(errs...)
}

// staged are the limits of what is staged.
func (c RepositoriesConfig) staged() staged.Limits {
	return staged.Limits{
		Hold: c.StageHold, All: c.MaxStaged, PerRepo: c.fixed.MaxStagedPerRepo, PerClient: c.fixed.MaxStagedPerClient, Network: networkOf,
	}
}
