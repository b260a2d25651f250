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
	// Dir is the folder of the bare repositories. New creates it. Only one process can use it. The
	// events must be on the same disk, because less than Serve.MinFreeDisk free bytes in Dir also
	// stop the storing of events.
	Dir string
	// State stores records that survive a restart, such as held events. The caller closes it after
	// Run.
	State state.Store
	// Egress has the rules for connections to relays and git servers. List listeners of this
	// process in Egress.Own. New adds the names of the identity, and a Budget if none is set.
	// AllowPlaintext of Egress or of Sync applies to both.
	Egress egress.Config
	// Criteria is the repo_acceptance_criteria field of the NIP-11 document. Defaults to a
	// description of the default policy.
	Criteria string
	// Curation is the curation field of the NIP-11 document. Defaults to no such field.
	Curation string
	// Membership decides who is a maintainer, in purgatory and in the default policy. A custom
	// Sync.Policy must apply the same rule.
	Membership nip34.Membership
	// GRASPLists makes the default policy accept lists of preferred GRASP servers (kind 10317) of
	// any author.
	GRASPLists bool
	// Rules stores decisions of the operator, such as blocked authors. [Server.Control] changes
	// them. Defaults to rules stored in State, and losing State then unblocks everything. [Open]
	// therefore uses a store of its own; see [rules.Open].
	Rules *rules.RuleSet
	// Audit, if set, is called before and after each command of an operator that changes something.
	// Calls can be concurrent. Commands are logged in any case.
	Audit func(admin.Entry)
	// Logger is the logger of every part without its own. Defaults to discarding.
	Logger *slog.Logger

	// Gate has the limits of client websockets. Gate.Client defaults to Serve.Client.
	Gate gate.Config
	// Sync configures the SyncManager. New sets its State and Rules. Its Policy decides before
	// purgatory and defaults to GRASPPolicy. Its Holder must be nil, because purgatory is the
	// holder.
	Sync relaysync.Config
	// Purgatory configures how long events are held and how their git data is fetched. New sets its
	// Identity and Membership. Limits.MaxRepoDay defaults to Fetch.MaxPackBytes if that is above 4
	// GiB. Limits.MaxPullBytes defaults to a quarter of Repositories.MaxOwnerBytes if that is below
	// 1 GiB.
	Purgatory purgatory.Config
	// Fetch has the limits of fetching git data. New sets its Dialer. MaxFetches defaults to twice
	// Purgatory.Limits.MaxFetchJobs, MaxAddressDay to Purgatory.Limits.MaxHostDay if that is above 16
	// GiB, and MinFreeDisk to Serve.MinFreeDisk.
	Fetch gitfetch.Config
	// Repositories has the limits of the repositories in Dir. Its Git and AllowFaults default to
	// the values of Fetch.
	Repositories gitserve.RepositoriesConfig
	// Serve has the limits of serving git clients.
	Serve gitserve.Config
}

// ErrConfig is wrapped by the error of [New] for an invalid Config.
var ErrConfig = server.ErrConfig

// criteria describes the repositories that [relaysync.GRASPPolicy] accepts.
const criteria = "announcements that list this server in relays and clone"

var grasps = []string{"GRASP-01", "GRASP-02"}
