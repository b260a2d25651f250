package sync

import (
	"context"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// Rules are the operator's blocks of events, repositories and relays. They apply before the
// [Policy]. They may change at any time; then [SyncManager.RulesChanged] must be called. All
// methods may be called concurrently and must not block, because they are called for every event
// and every relay. Package rules contains an implementation.
type Rules interface {
	// Blocks returns the reason why an event is blocked, as a constant text with a prefix of
	// NIP-01, or "". The event is judged again when RulesChanged is called with one of the
	// dependencies in until, which [graspsync.OnRuleRemoved] creates.
	Blocks(event graspsync.Event) (reason string, until []graspsync.Dependency)
	// BlocksRepository reports whether a repository is not hosted, regardless of its announcement.
	BlocksRepository(ref graspsync.RepoRef) bool
	// BlocksRelay reports whether a relay must not be contacted.
	BlocksRelay(relay graspsync.RelayURL) bool
}

// blocks calls Rules.Blocks and returns the reason and the subject of the rule.
func (c *Config) blocks(ev graspsync.Event) (reason, rule string) {
	if c.Rules == nil {
		return "", ""
	}
	reason, until := c.Rules.Blocks(ev)
	if reason == "" {
		return "", ""
	}
	return reason, ruleOf(until)
}

// WithRules returns a Policy that applies rules first and then policy. [New] applies [Config.Rules]
// with it. An embedder needs WithRules only to use the combined Policy elsewhere.
func WithRules(policy Policy, rules Rules) Policy { return &rulesPolicy{policy, rules} }

type rulesPolicy struct {
	Policy
	rules Rules
}

// Judge implements [Policy].
func (p *rulesPolicy) Judge(ctx context.Context, ev graspsync.Event, src graspsync.Source, view View) (graspsync.Verdict, error) {
	if reason, until := p.rules.Blocks(ev); reason != "" {
		return graspsync.Verdict{Decision: graspsync.Reject, Reason: reason, DependsOn: until}, nil
	}
	return p.Policy.Judge(ctx, ev, src, view)
}

// Lists implements [Policy]. Its result changes with the rules. After a change all announcements
// are read again.
func (p *rulesPolicy) Lists(a *nip34.Announcement) bool {
	return p.Policy.Lists(a) && !p.rules.BlocksRepository(a.Ref)
}
