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

// Config is the configuration of a [Server]. State is required. Fields without a comment are those of
// the Config of adapter/grasp.
type Config struct {
	State state.Store
	// Store configures the use of the backend. New sets its Identity, Removed and Hides.
	Store      nostrlib.Config
	Egress     egress.Config
	Membership nip34.Membership
	Rules      *rules.RuleSet
	Audit      func(admin.Entry)
	Logger     *slog.Logger
	// MaxQuery is MaxQuery of khatruadapter.Config.
	MaxQuery int

	Sync         relaysync.Config
	Purgatory    purgatory.Config
	Fetch        gitfetch.Config
	Repositories gitserve.RepositoriesConfig // its PlainNames is set by New
	Serve        gitserve.Config
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
