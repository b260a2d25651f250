package sync

import (
	"context"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// Rules are what whoever runs this server has decided besides the [Policy]: whom and what it does
// not want to have to do with. They may change at any time; then [SyncManager.Reconsider] must be
// called. All methods may be called concurrently, are asked for every event and every relay, and
// must not block. Package rules has an implementation.
type Rules interface {
	// Blocks says why an event is not to be here: in the words of an OK message (NIP-01), a
	// constant text, "" if nothing is against it. The event is judged again once Reconsider is told
	// that one of until is fulfilled, which are made by [graspsync.OnLifted].
	Blocks(event graspsync.Event) (reason string, until []graspsync.Dependency)
	// BlocksRepository reports whether a repository is none of ours, whatever its announcement
	// lists.
	BlocksRepository(ref graspsync.RepoRef) bool
	// BlocksRelay reports whether nothing is to be asked of a relay.
	BlocksRelay(relay graspsync.RelayURL) bool
}

// blocks returns what Blocks says, and which rule it is, of what has none as well.
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

// WithRules returns a Policy that asks another one about what the rules do not block. [New] has its
// Policy be one if [Config.Rules] is set; it is for who joins that Policy to something else.
func WithRules(policy Policy, rules Rules) Policy { return &rulesPolicy{policy, rules} }

// ruled is a Policy behind rules.
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

// Lists implements [Policy]. It changes when the rules do, for which everything is read again.
func (p *rulesPolicy) Lists(a *nip34.Announcement) bool {
	return p.Policy.Lists(a) && !p.rules.BlocksRepository(a.Ref)
}
