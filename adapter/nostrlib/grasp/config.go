package graspadapter

import (
	"errors"
	"log/slog"

	"fiatjaf.com/nostr/khatru/grasp"

	"github.com/graspsync/graspsync/adapter/admin"
	"github.com/graspsync/graspsync/adapter/internal/server"
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
var ErrConfig = server.ErrConfig

// wrong returns what is wrong with the arguments of New.
func wrong(gs *grasp.GraspServer, identity nip34.Identity) (errs []error) {
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
	return errs
}
