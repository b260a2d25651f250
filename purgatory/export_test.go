package purgatory

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/graspsync/graspsync/purgatory/internal/gitops"
	"github.com/graspsync/graspsync/state"
)

// OpenWithStep is Open with a function that is called after each durable step.
func OpenWithStep(ctx context.Context, relay Relay, repos Repositories, git gitops.Operations, fetcher GitFetcher, store state.Store, cfg Config,
	step func(string),
) (*Purgatory, error) {
	return open(ctx, relay, repos, git, fetcher, store, cfg, step, rand.Uint64()|1)
}

// Sizes returns the number of items in memory by kind.
func (p *Purgatory) Sizes() map[string]int {
	p.pending.mu.Lock()
	defer p.pending.mu.Unlock()
	served := 0
	for _, h := range p.pending.events.All() {
		if h.refIn != nil {
			served++
		}
	}
	p.table.mu.Lock()
	defer p.table.mu.Unlock()
	needs, pushed := 0, 0
	count := func(n *int, is bool) {
		if is {
			*n++
		}
	}
	for _, of := range p.table.records {
		for _, s := range of {
			count(&needs, len(s.need.IDs) > 0)
			count(&pushed, len(s.pushed) > 0)
		}
	}
	return map[string]int{
		"needs": needs, "pushed": pushed, "served": served,
	}
}

// NextExpiry returns the time at which the engine looks for overdue events, or the zero time.
func (p *Purgatory) NextExpiry() time.Time {
	at, _ := p.pending.nextDue()
	return at
}

// Left returns the names of counters, locks and records that are still in use after Run has
// returned. Such a leak would block others forever, and no single answer shows it.
func (p *Purgatory) Left() (out []string) {
	wrong := func(is bool, what string, args ...any) {
		if is {
			out = append(out, fmt.Sprintf(what, args...))
		}
	}
	wrong(p.pending.writing.Len() > 0, "entries are locked")
	wrong(p.storing.Len() > 0, "events are being stored")
	wrong(p.releasing.Len() > 0, "repositories are looked at")
	p.pending.mu.Lock()
	p.table.mu.Lock()
	for identifier, of := range p.table.records {
		wrong(len(of) == 0, "there is no record under %q", identifier)
		for ref, s := range of {
			wrong(s.isEmpty(), "the record of %s is empty", ref)
			wrong(s.releasing, "a release of %s goes on", ref)
		}
	}
	for _, of := range p.pending.byName {
		for id := range of {
			_, held := p.pending.events.Get(id)
			wrong(!held, "event %s is in the index only", id)
		}
	}
	p.table.mu.Unlock()
	p.pending.mu.Unlock()
	p.fetches.mu.Lock()
	wrong(len(p.fetches.all)+len(p.fetches.blocked) > 0, "a fetch is under way, or a repository is taken")
	p.fetches.mu.Unlock()
	return out
}

// Fixed are the settings that only tests change.
type Fixed = constants

// Fixed returns them for modification.
func (c *Config) Fixed() *Fixed { return &c.fixed }

// With returns a copy with the settings f.
func (c Config) With(f Fixed) Config {
	c.fixed = f
	return c
}
