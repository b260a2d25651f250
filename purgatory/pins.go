package purgatory

import (
	"slices"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory/internal/ledger"
	"github.com/graspsync/graspsync/purgatory/internal/resolve"
)

// lasting drops from some entries those that have expired softly and those whose waiting is
// being ended.
func (p *pendingEvents) lasting(some []ledger.Entry) []ledger.Entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(some, func(e ledger.Entry) bool {
		_, ending := p.ending[e.ID]
		return ending || e.Soft
	})
}

// pin keeps what a look has found waiting from being ended by the clock.
func (p *pendingEvents) pin(g *resolve.Group, ref graspsync.RepoRef) {
	p.mu.Lock()
	defer p.mu.Unlock()
	hold := func(id graspsync.EventID) bool { return p.keepFor(g, id) }
	g.States = slices.DeleteFunc(g.States, func(h resolve.State) bool { return !hold(h.Entry.ID) })
	g.Pulls = slices.DeleteFunc(g.Pulls, func(h resolve.Pull) bool { return !hold(h.Entry.ID) })
	if e, waits := g.Waiting[ref]; waits && !hold(e.ID) {
		delete(g.Waiting, ref)
	}
}

// pinRelatives keeps those that were found waiting from being ended by the clock.
func (p *pendingEvents) pinRelatives(g *resolve.Group) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g.Relatives = slices.DeleteFunc(g.Relatives, func(h resolve.Relative) bool { return !p.keepFor(g, h.Entry.ID) })
}

// keepFor keeps one entry from being ended; false if it is being ended already. It is called
// with mu held.
func (p *pendingEvents) keepFor(g *resolve.Group, id graspsync.EventID) bool {
	if _, ending := p.ending[id]; ending {
		return false
	}
	p.pinned[id]++
	g.Pins = append(g.Pins, id)
	return true
}

// unpin lets go of what pin has kept.
func (p *pendingEvents) unpin(g *resolve.Group) {
	if g == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range g.Pins {
		if p.pinned[id]--; p.pinned[id] == 0 {
			delete(p.pinned, id)
		}
	}
	g.Pins = nil
}

// end keeps looks from going by an entry until notEnding; false if one does already.
func (p *pendingEvents) end(id graspsync.EventID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pinned[id] > 0 {
		return false
	}
	p.ending[id] = struct{}{}
	return true
}

// notEnding has looks go by an entry again.
func (p *pendingEvents) notEnding(id graspsync.EventID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.ending, id)
}
