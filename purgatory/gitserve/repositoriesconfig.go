package gitserve

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/graspsync/graspsync/purgatory/internal/gitrun"
)

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
