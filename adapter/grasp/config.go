package grasp

import (
	"log/slog"

	"github.com/graspsync/graspsync/adapter/admin"
	"github.com/graspsync/graspsync/adapter/gate"
	"github.com/graspsync/graspsync/adapter/internal/server"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/purgatory/gitfetch"
	"github.com/graspsync/graspsync/purgatory/gitserve"
	"github.com/graspsync/graspsync/rules"
	"github.com/graspsync/graspsync/state"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Config is the configuration of a [Server]. Dir and State are required.
type Config struct {
	// Dir is the folder of the repositories, on the disk of the events. Only one process can use it.
	Dir string
	// State stores records that survive a restart. The caller closes it after Run.
	State state.Store
	// Egress has the rules for outgoing connections. List own listeners in Egress.Own.
	// AllowPlaintext of Egress or of Sync applies to both.
	Egress egress.Config
	// Criteria and Curation are the repo_acceptance_criteria and curation fields of the NIP-11
	// document. Criteria defaults to the default policy.
	Criteria, Curation string
	// Membership decides who is a member. A custom Sync.Policy must apply the same rule.
	Membership nip34.Membership
	// GRASPLists makes the default policy accept GRASP server lists (kind 10317) of any author.
	GRASPLists bool
	// Rules default to rules in State, whose loss unblocks everything.
	Rules *rules.RuleSet
	// Audit, if set, is called before and after each command that changes something.
	Audit func(admin.Entry)
	// Logger is the logger of every part without its own.
	Logger *slog.Logger

	// Gate has the limits of client websockets. Gate.Client defaults to Serve.Client.
	Gate gate.Config
	// Sync has a Policy that decides before purgatory, by default a GRASPPolicy. Its Holder must be nil.
	Sync relaysync.Config
	// Purgatory configures how events are held and their git data is fetched. Limits.MaxRepoDay
	// must be at least Fetch.MaxPackBytes. Limits.MaxPullBytes defaults to an eighth of
	// Repositories.MaxOwnerBytes if that is below 1 GiB.
	Purgatory purgatory.Config
	// Fetch has the limits of fetching git data. MaxFetches defaults to twice
	// Purgatory.Limits.MaxFetchJobs, MinFreeDisk to Serve.MinFreeDisk.
	Fetch gitfetch.Config
	// Repositories has the limits of the repositories in Dir.
	Repositories gitserve.RepositoriesConfig
	// Serve has the limits of serving git clients.
	Serve gitserve.Config
}

// ErrConfig is wrapped by the error of [New] for an invalid Config.
var ErrConfig = server.ErrConfig

// criteria describes [relaysync.GRASPPolicy].
const criteria = "announcements that list this server in relays and clone"

var grasps = []string{"GRASP-01", "GRASP-02"}
