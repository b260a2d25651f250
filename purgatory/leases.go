package purgatory

import (
	"slices"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// lasting returns the events that have not expired softly and whose holds are not being ended.
func (p *pendingEvents) lasting(some []refplan.Entry) []refplan.Entry {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.DeleteFunc(some, func(e refplan.Entry) bool {
		_, ending := p.ending[e.ID]
		return ending || e.Soft
	})
}

// pin keeps the events of a release from expiring.
func (p *pendingEvents) pin(g *refplan.Group, ref graspsync.RepoRef) {
	p.mu.Lock()
	defer p.mu.Unlock()
	hold := func(id graspsync.EventID) bool { return p.keepFor(g, id) }
	g.States = slices.DeleteFunc(g.States, func(h refplan.Entry) bool { return !hold(h.ID) })
	g.Pulls = slices.DeleteFunc(g.Pulls, func(h refplan.Entry) bool { return !hold(h.ID) })
	if e, waits := g.Waiting[ref]; waits && !hold(e.ID) {
		delete(g.Waiting, ref)
	}
}

// pinRelatives is pin for the relatives of a survey.
func (p *pendingEvents) pinRelatives(g *refplan.Group) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g.Relatives = slices.DeleteFunc(g.Relatives, func(h refplan.Entry) bool { return !p.keepFor(g, h.ID) })
}

// keepFor pins an event. It returns false if the hold is being ended. mu is held.
func (p *pendingEvents) keepFor(g *refplan.Group, id graspsync.EventID) bool {
	if _, ending := p.ending[id]; ending {
		return false
	}
	p.pinned[id]++
	g.Pins = append(g.Pins, id)
	return true
}

func (p *pendingEvents) unpin(g *refplan.Group) {
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

// end keeps releases from using an event until notEnding is called. It returns false if a release
// uses the event.
func (p *pendingEvents) end(id graspsync.EventID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pinned[id] > 0 {
		return false
	}
	p.ending[id] = struct{}{}
	return true
}

func (p *pendingEvents) notEnding(id graspsync.EventID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.ending, id)
}
