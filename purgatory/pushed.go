package purgatory

import (
	"maps"
	"slices"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/ledger"
)

// Pushing tells that a push is about to move refs, and must be called while it has the
// lock: whoever gets that next would take a part of what a state says for something to
// be undone. As long as such a state waits, what it says of these refs is not moved
// back to what an older one says. It is not kept on the disk: after a restart the
// refs are those of the older state until the data of the newer one is complete.
func (p *Purgatory) Pushing(ref graspsync.RepoRef, refs []nip34.RefName) {
	p.mu.Lock()
	defer p.mu.Unlock()
	waits := func(e ledger.Entry) bool { return e.Class == ledger.State }
	if !slices.ContainsFunc(refs, isState) || !slices.ContainsFunc(p.ledger.Of(ref), waits) {
		return
	}
	if p.pushed[ref.Identifier] == nil {
		p.pushed[ref.Identifier] = make(map[graspsync.RepoRef]map[nip34.RefName]struct{})
	}
	names := p.pushed[ref.Identifier][ref]
	if names == nil {
		names = make(map[nip34.RefName]struct{})
		p.pushed[ref.Identifier][ref] = names
	}
	for _, name := range refs {
		if isState(name) {
			names[name] = struct{}{}
		}
	}
}

// pushedTo returns the branches and tags that pushes have moved while a state waited.
func (p *Purgatory) pushedTo(ref graspsync.RepoRef) map[nip34.RefName]struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return maps.Clone(p.pushed[ref.Identifier][ref])
}

// notePushed forgets the refs that no state which waits would have as they are. It is
// called with mu held, and the repository locked.
func (p *Purgatory) notePushed(g *group, r *repository) {
	names := p.pushed[g.identifier][r.ref]
	for name := range r.pushed {
		if !g.ahead(r, name) {
			delete(names, name)
		}
	}
	if len(names) == 0 {
		delete(p.pushed[g.identifier], r.ref)
	}
	if len(p.pushed[g.identifier]) == 0 {
		delete(p.pushed, g.identifier)
	}
}
