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
var ErrConfig = server.ErrConfig

// criteria is what [relaysync.GRASPPolicy] takes.
const criteria = "announcements that list this server in relays and clone"
