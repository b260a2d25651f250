package purgatory

import (
	"context"

	"github.com/graspsync/graspsync/state"
)

// OpenWithStep is Open with somebody who is told of each durable step.
func OpenWithStep(ctx context.Context, relay Relay, repos Repositories, git GitFetcher, store state.Store, cfg Config,
	step func(string),
) (*Purgatory, error) {
	return open(ctx, relay, repos, git, store, cfg, step)
}

// Sizes says how much is kept in memory, by what.
func (p *Purgatory) Sizes() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.engine.fetches.mu.Lock()
	defer p.engine.fetches.mu.Unlock()
	return map[string]int{
		"needs": len(p.needs), "touched": len(p.touched), "pushed": len(p.pushed), "served": len(p.served), "places": len(p.engine.fetches.places),
		"lacks": p.engine.fetches.memory.size,
	}
}
