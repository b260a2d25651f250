package graspadapter

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"fiatjaf.com/nostr/khatru/grasp"

	"github.com/graspsync/graspsync/adapter/admin"
	"github.com/graspsync/graspsync/adapter/control"
	"github.com/graspsync/graspsync/adapter/nostrlib"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
	"github.com/graspsync/graspsync/purgatory/gitserve"
	"github.com/graspsync/graspsync/rules"
	"github.com/graspsync/graspsync/state"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Config says how a server works. State must be set.
type Config struct {
	// State keeps what is to survive a restart, the events that wait among it, as
	// state.Open returns it. The caller closes it, after Run.
	State state.Store
	// Store says how the backend is used. Its Identity is set by New.
	Store nostrlib.Config
	// Egress has the rules for connections to relays and git servers alike; our own
	// listeners belong into its field Own. The names of the identity are ours by
	// themselves. A Budget is made if there is none. Plaintext is allowed if
	// its field AllowPlaintext or that of Sync says so: either counts for both.
	Egress egress.Config
	// Membership says who is a maintainer: for purgatory, and for the default policy.
	// A Policy of Sync's must do the same by itself.
	Membership nip34.Membership
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
	// MaxQuery is that of khatruadapter.Config.
	MaxQuery int

	// Sync is the configuration of the SyncManager. Its State and its Rules are set by New; its
	// Policy, by default GRASPPolicy, decides before purgatory does. It must have no Holder:
	// purgatory is that.
	Sync relaysync.Config
	// Purgatory says how long events wait and how their data is hunted for. Its
	// Identity and Membership are set by New.
	Purgatory purgatory.Config
	// Fetch has the limits of fetching. Its Dialer is set by New. Its MaxFetches defaults to twice the
	// MaxHunts of Purgatory; its MinFreeDisk is that of Serve.
	Fetch gitfetch.Config
	// Repositories has the limits of what may lie in the folder of the repositories. Its PlainNames is
	// set by New. Its Git and its AllowFaults are
	// those of Fetch.
	Repositories gitserve.RepositoriesConfig
	// Serve has the limits of serving. The database of events belongs on the same disk as the
	// repositories: where less of that is free than its MinFreeDisk, no events are stored.
	Serve gitserve.Config
}

// ErrConfig is wrapped by what [New] says of its arguments.
var ErrConfig = errors.New("invalid configuration")

func (c Config) validate(gs *grasp.GraspServer, identity nip34.Identity) error {
	var errs []error
	switch {
	case gs == nil:
		errs = append(errs, errors.New("there is no GraspServer"))
	case gs.Relay == nil:
		errs = append(errs, errors.New("Relay of the GraspServer is nil"))
	case gs.RepositoryDir == "":
		errs = append(errs, errors.New("RepositoryDir of the GraspServer is empty"))
	}
	if len(identity.Paths()) > 0 {
		errs = append(errs, errors.New("the identity has a path, and a GraspServer serves repositories at its root only"))
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
	if c.Sync.Policy == nil {
		policy := relaysync.NewGRASPPolicy(identity)
		policy.Membership = c.Membership
		c.Sync.Policy, c.Sync.PolicyVersion = policy, policy.Version() // with another one what was rejected is judged anew
	}
	c.Sync.State = c.State
	c.Purgatory.Identity, c.Purgatory.Membership = identity, c.Membership
	if most := 2 * c.Purgatory.Limits.MaxHunts; c.Fetch.MaxFetches == 0 {
		c.Fetch.MaxFetches = most // with fewer slow servers make the others wait
	}
	if c.Repositories.AllowFaults == nil {
		c.Repositories.AllowFaults = c.Fetch.AllowFaults
	}
	if c.Fetch.MinFreeDisk == 0 {
		c.Fetch.MinFreeDisk = c.Serve.MinFreeDisk // it is one disk; both have the same default
	}
	c.Repositories.PlainNames = true
	if c.Repositories.Git == "" {
		c.Repositories.Git = c.Fetch.Git // it is of that one that is asked whether it will do
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
