package control

import (
	"context"
	"errors"
	"iter"
	"log/slog"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/admin"
	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/rules"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Config holds the parts of a server. All fields except Bootstrap, Audit and Logger are required.
type Config struct {
	// Rules are applied by the parts, see [Enforce].
	Rules *rules.RuleSet
	Sync  *relaysync.SyncManager
	Store relaysync.Store
	// Remove removes an event as moderation and notifies Sync.
	Remove       func(ctx context.Context, e graspsync.Event) error
	Purgatory    *purgatory.Purgatory
	Repositories Repositories
	// Lists reports whether an announcement lists this service.
	Lists func(a *nip34.Announcement) bool
	// Bootstrap is the argument of [Enforce], not its result.
	Bootstrap []graspsync.RelayURL
	// Audit is called before and after each command that changes something.
	Audit  func(admin.Entry)
	Logger *slog.Logger
}

// Repositories lists git data, announced or not. An error is the last pair.
type Repositories interface {
	// Owned yields the repositories of an owner, or of all owners for the zero key.
	Owned(ctx context.Context, owner graspsync.PubKey) iter.Seq2[graspsync.RepoRef, error]
	// Departed yields the retired repositories of an owner.
	Departed(ctx context.Context, owner graspsync.PubKey) iter.Seq2[graspsync.RepoRef, error]
}

// ErrConfig is wrapped by the error of [New].
var ErrConfig = errors.New("invalid configuration")

// Enforce returns configurations that apply rules. Policy is required.
func Enforce(ruleSet *rules.RuleSet, sync relaysync.Config, network egress.Config) (relaysync.Config, egress.Config) {
	sync.Rules = ruleSet
	sync.Policy = relaysync.WithRules(sync.Policy, ruleSet)
	sync.Bootstrap = ruleSet.Bootstrap(sync.Bootstrap)
	if also := network.Deny; also != nil {
		network.Deny = func(at graspsync.HostPort) bool { return ruleSet.Deny(at) || also(at) }
	} else {
		network.Deny = ruleSet.Deny
	}
	return sync, network
}
