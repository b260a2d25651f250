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

// Config is the configuration of a [Server]. State is required.
type Config struct {
	// State stores records that survive a restart. The caller closes it after Run.
	State state.Store
	// Store configures the use of the backend. New sets its Identity, Removed and Hides.
	Store nostrlib.Config
	// Egress has the rules for connections to relays and git servers. List listeners of this
	// process in Egress.Own. AllowPlaintext of Egress or of Sync applies to both.
	Egress egress.Config
	// Membership decides who is a maintainer. A custom Sync.Policy must apply the same rule.
	Membership nip34.Membership
	// Rules stores decisions of the operator. Defaults to rules in State, and losing State then
	// unblocks everything.
	Rules *rules.RuleSet
	// Audit, if set, is called before and after each command of an operator that changes something,
	// possibly concurrently.
	Audit func(admin.Entry)
	// Logger is the logger of every part without its own.
	Logger *slog.Logger
	// MaxQuery is MaxQuery of khatruadapter.Config.
	MaxQuery int

	// Sync configures the SyncManager. Its Policy decides before purgatory and defaults to
	// GRASPPolicy. Its Holder must be nil.
	Sync relaysync.Config
	// Purgatory configures how events are held and their git data is fetched.
	Purgatory purgatory.Config
	// Fetch has the limits of fetching git data. MaxFetches defaults to twice
	// Purgatory.Limits.MaxFetchJobs, and MinFreeDisk to Serve.MinFreeDisk.
	Fetch gitfetch.Config
	// Repositories has the limits of the repositories.
	Repositories gitserve.RepositoriesConfig
	// Serve has the limits of serving git clients.
	Serve gitserve.Config
}

// ErrConfig is wrapped by the error of [New] for invalid arguments.
var ErrConfig = server.ErrConfig

func wrong(gs *grasp.GraspServer, identity nip34.Identity) (errs []error) {
	switch {
	case gs == nil:
		errs = append(errs, errors.New("GraspServer is nil"))
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
