package purgatory

import (
	"context"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/nip34"
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
		"needs": len(p.needs), "touched": len(p.touched), "doubted": len(p.doubted), "pushed": len(p.pushed), "served": len(p.served),
		"pinned": len(p.pinned), "ending": len(p.ending),
		"places": len(p.engine.fetches.places),
		"lacks":  p.engine.fetches.memory.size,
	}
}

// Undo is what takes back a transaction, of which a part was done.
func Undo(changes []RefChange, was, head nip34.RefName, now Refs) (back []RefChange, backTo nip34.RefName) {
	return newJournal(filters.RepoRef{}, Refs{Head: was}, changes, head).undo(now)
}
