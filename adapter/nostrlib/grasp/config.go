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
	// State stores records that survive a restart, such as held events. The caller closes it after
	// Run.
	State state.Store
	// Store configures the use of the backend. New sets its Identity, Removed and Hides.
	Store nostrlib.Config
	// Egress has the rules for connections to relays and git servers. List listeners of this
	// process in Egress.Own. New adds the names of the identity, and a Budget if there is none.
	// AllowPlaintext of Egress or of Sync applies to both.
	Egress egress.Config
	// Membership decides who is a maintainer, in purgatory and in the default policy. A custom
	// Sync.Policy must apply the same rule.
	Membership nip34.Membership
	// Rules stores decisions of the operator, such as blocked authors. [Server.Control] changes
	// them. Defaults to rules stored in State, and losing State then unblocks everything. [Open]
	// therefore uses a store of its own; see [rules.Open].
	Rules *rules.RuleSet
	// Audit, if set, is called before and after each command of an operator that changes something.
	// Calls can be concurrent. Commands are logged in any case.
	Audit func(admin.Entry)
	// Logger is the logger of every part without its own. Defaults to discarding.
	Logger *slog.Logger
	// MaxQuery is MaxQuery of khatruadapter.Config.
	MaxQuery int

	// Sync configures the SyncManager. New sets its State and Rules. Its Policy decides before
	// purgatory and defaults to GRASPPolicy. Its Holder must be nil, because purgatory is the
	// holder.
	Sync relaysync.Config
	// Purgatory configures how long events are held and how their git data is fetched. New sets its
	// Identity and Membership.
	Purgatory purgatory.Config
	// Fetch has the limits of fetching git data. New sets its Dialer. MaxFetches defaults to twice
	// Purgatory.Limits.MaxFetchJobs, and MinFreeDisk to Serve.MinFreeDisk.
	Fetch gitfetch.Config
	// Repositories has the limits of the repositories. New sets its PlainNames. Its Git and
	// AllowFaults default to the values of Fetch.
	Repositories gitserve.RepositoriesConfig
	// Serve has the limits of serving git clients. The events must be on the same disk as the
	// repositories, because less than MinFreeDisk free bytes also stop the storing of events.
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
