package grasp

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/graspsync/graspsync/adapter/admin"
	"github.com/graspsync/graspsync/adapter/control"
	"github.com/graspsync/graspsync/adapter/gate"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/internal/disk"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
	"github.com/graspsync/graspsync/purgatory/gitserve"
	"github.com/graspsync/graspsync/rules"
	"github.com/graspsync/graspsync/state"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Config says how a server works. Dir and State must be set.
type Config struct {
	// Dir is the folder of the bare repositories. It is made if need be; one process
	// at a time may use it. The database of events belongs on the same disk: where less of that is
	// free than MinFreeDisk of Serve says, no more events are stored either.
	Dir string
	// State keeps what is to survive a restart, the events that wait among it, as
	// state.Open returns it. The caller closes it, after Run.
	State state.Store
	// Egress has the rules for connections to relays and git servers alike; our own
	// listeners belong into its field Own. The names of the identity are ours by
	// themselves. A Budget is made if there is none. Plaintext is allowed if
	// its field AllowPlaintext or that of Sync says so: either counts for both.
	Egress egress.Config
	// Criteria is what the NIP-11 document says of the repositories that are taken.
	// Defaults to that of the default policy.
	Criteria string
	// Curation is what it says of what is kept and what is removed, if somebody chooses that.
	// Defaults to nothing: all is taken that Criteria names.
	Curation string
	// Membership says who is a maintainer: for purgatory, and for the default policy.
	// A Policy of Sync's must do the same by itself.
	Membership nip34.Membership
	// GRASPLists has the default policy accept anybody's list of preferred GRASP servers
	// (kind 10317).
	GRASPLists bool
	// Rules are what the operator has decided: what is blocked, which relays are followed in any case,
	// how the server describes itself. [Server.Control] changes them. Defaults to those that State
	// has: then whoever loses State has everything back that was blocked or removed. In a store of
	// their own ([rules.Open], [rules.Move]) they outlive it, as with [Open].
	Rules *rules.Book
	// Audit is told of each command of an operator's that changes something, before it and after it.
	// It must be safe for concurrent use. Defaults to nobody; they are logged in any case.
	Audit func(admin.Entry)
	// Logger gets what happens, unless a part has one of its own. Defaults to
	// discarding it.
	Logger *slog.Logger

	// Gate has the limits of clients' websockets. Its Client defaults to that of Serve.
	Gate gate.Config
	// Sync is the configuration of the SyncManager. Its State and its Rules are set by New; its
	// Policy, by default GRASPPolicy, decides before purgatory does. It must have no Holder:
	// purgatory is that.
	Sync relaysync.Config
	// Purgatory says how long events wait and how their data is hunted for. Its
	// Identity and Membership are set by New. Its MaxRepoDay defaults to MaxPackBytes of Fetch, where that
	// is more. Its MaxPullBytes defaults to no more than a quarter of MaxOwnerBytes of Repositories.
	Purgatory purgatory.Config
	// Fetch has the limits of fetching. Its Dialer is set by New. How many fetches there are at once is
	// known from Purgatory, and so is its MaxAddressDay, where that would be less than MaxHostDay; its MinFreeDisk
	// is that of Serve.
	Fetch gitfetch.Config
	// Repositories has the limits of what may lie in Dir. Its Git and its AllowFaults are
	// those of Fetch.
	Repositories gitserve.RepositoriesConfig
	// Serve has the limits of serving.
	Serve gitserve.Config
}

// ErrConfig is wrapped by what [New] says of its Config.
var ErrConfig = errors.New("invalid configuration")

// criteria is what [relaysync.GRASPPolicy] takes.
const criteria = "announcements that list this server in relays and clone"

func (c Config) validate() error {
	var errs []error
	if c.Dir == "" {
		errs = append(errs, errors.New("Dir is empty"))
	}
	if c.State == nil {
		errs = append(errs, errors.New("State is nil"))
	}
	if c.Sync.Holder != nil {
		errs = append(errs, errors.New("Sync.Holder is set: what the server holds is in its purgatory"))
	}
	if r := c.Sync.Rules; r != nil && r != relaysync.Rules(c.Rules) {
		errs = append(errs, errors.New("Sync.Rules is set: the rules of the server are Rules"))
	}
	return errors.Join(errs...)
}

// manyBytesADay is the default of purgatory.Limits.MaxRepoDay, and manyBytesOfAHost that of
// gitfetch.Config.MaxAddressDay.
const (
	manyBytesADay    = 4 << 30
	manyBytesOfAHost = 16 << 30
)

// mostRelays is the default of relaysync.Limits.MaxConnections, unless that is more than one of relaysPart of the files that the
// process may open.
const (
	mostRelays = 256
	relaysPart = 4
)

// manyBytes is the default of purgatory.Limits.MaxPullBytes, and pullShare the part of
// gitserve.RepositoriesConfig.MaxOwnerBytes, one of so many, that it is where that is less. What
// has given way takes up as much again: as long as there is room for more, pull requests give way
// to each other. Where an owner has no more of it, whoever came first would keep it.
const (
	manyBytes = 1 << 30
	pullShare = 4
)

// withRules has all parts go by the rules.
func (c Config) withRules(ctx context.Context) (Config, error) {
	if c.Rules == nil {
		book, err := rules.Open(ctx, c.State, rules.Config{})
		if err != nil {
			return c, err
		}
		c.Rules = book
	}
	c.Sync, c.Egress = control.Enforce(c.Rules, c.Sync, c.Egress)
	return c, nil
}

func (c Config) withDefaults(identity nip34.Identity) (Config, error) {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	for _, part := range []**slog.Logger{&c.Sync.Logger, &c.Purgatory.Logger, &c.Fetch.Logger, &c.Repositories.Logger, &c.Serve.Logger} {
		if *part == nil {
			*part = c.Logger
		}
	}
	if c.Criteria == "" {
		c.Criteria = criteria
	}
	if c.Sync.Policy == nil {
		policy := relaysync.NewGRASPPolicy(identity)
		policy.Membership, policy.GRASPLists = c.Membership, c.GRASPLists
		c.Sync.Policy, c.Sync.PolicyVersion = policy, policy.Version() // with others what was rejected is judged anew
	}
	if c.Sync.Limits.MaxConnections == 0 {
		c.Sync.Limits.MaxConnections = min(mostRelays, max(1, disk.Files()/relaysPart))
	}
	c.Sync.State = c.State
	c.Purgatory.Identity, c.Purgatory.Membership = identity, c.Membership
	if most := c.Repositories.MaxOwnerBytes; c.Purgatory.Limits.MaxPullBytes == 0 && most > 0 {
		c.Purgatory.Limits.MaxPullBytes = min(manyBytes, max(1, most/pullShare))
	}
	if most := 2 * c.Purgatory.Limits.MaxHunts; c.Fetch.MaxFetches == 0 {
		c.Fetch.MaxFetches = most // with fewer slow servers make the others wait
	}
	if most := c.Fetch.MaxPackBytes; c.Purgatory.Limits.MaxRepoDay == 0 && most > manyBytesADay {
		c.Purgatory.Limits.MaxRepoDay = most // else what is larger never comes
	}
	if most := c.Purgatory.Limits.MaxHostDay; c.Fetch.MaxAddressDay == 0 && most > manyBytesOfAHost {
		c.Fetch.MaxAddressDay = most // else a name never brings as much as it may
	}
	if c.Repositories.Git == "" {
		c.Repositories.Git = c.Fetch.Git // it is of that one that is asked whether it will do
	}
	if c.Repositories.AllowFaults == nil {
		c.Repositories.AllowFaults = c.Fetch.AllowFaults
	}
	if c.Fetch.MinFreeDisk == 0 {
		c.Fetch.MinFreeDisk = c.Serve.MinFreeDisk // it is one disk; both have the same default
	}
	c.Egress.OwnNames = append(identity.HostPorts(), c.Egress.OwnNames...)
	c.Egress.AllowPlaintext = c.Egress.AllowPlaintext || c.Sync.AllowPlaintext
	c.Sync.AllowPlaintext = c.Egress.AllowPlaintext
	if c.Egress.Budget == nil {
		// One for websockets and git: what a stranger's address may be burdened with.
		budget, err := egress.NewBudget(egress.BudgetConfig{})
		if err != nil {
			return c, fmt.Errorf("%w: %w", ErrConfig, err)
		}
		c.Egress.Budget = budget
	}
	return c, nil
}
