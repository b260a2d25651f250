package purgatory

import (
	"context"
	"errors"
	"slices"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/ledger"
)

// release stores what needs nothing any more: announcements, then states from the
// oldest on. What can't be stored stays, and holds up nothing but
// what belongs to it.
func (p *Purgatory) release(ctx context.Context, g *group, r *repository) error {
	var errs []error
	if e, waits := g.waiting[r.ref]; waits && r.active {
		if err := p.save(ctx, e); err != nil {
			r.active = false
			errs = append(errs, err)
		}
	}
	g.states = slices.DeleteFunc(g.states, func(h heldState) bool {
		if !r.releases(h) {
			return false
		}
		err := p.save(ctx, h.entry)
		if err == nil {
			g.stored = append(g.stored, h.state)
			p.touchOthers(g, r, h)
		}
		errs = append(errs, err)
		return err == nil
	})
	return errors.Join(errs...)
}

// releasePulls is release for pull requests.
func (p *Purgatory) releasePulls(ctx context.Context, g *group, r *repository) error {
	var errs []error
	g.pulls = slices.DeleteFunc(g.pulls, func(h heldPull) bool {
		done, err := p.releasePull(ctx, r, h)
		errs = append(errs, err)
		return done && err == nil
	})
	return errors.Join(errs...)
}

// releases reports whether a state that waits can be served: its objects are in an
// active repository that it concerns, whose refs are what it says, or something newer.
func (r *repository) releases(h heldState) bool {
	return r.active && r.isMember(h.state.Ref.Owner) && r.here(h.state) &&
		r.decides != nil && !nip34.Newer(h.state.Version(), r.decides.Version())
}

// touchOthers has the other repositories looked at that a state concerns which is stored
// now: it does not wait for them any more.
func (p *Purgatory) touchOthers(g *group, r *repository, h heldState) {
	others := false
	for ref := range g.ours() {
		if ref != r.ref && g.repository(ref).isMember(h.state.Ref.Owner) {
			p.touch(ref)
			others = true
		}
	}
	if others {
		p.tell(look{identifier: g.identifier})
	}
}

// save stores an event and then strikes it off, in this order: what is stored twice
// is stored once. Another repository may have had it stored meanwhile.
func (p *Purgatory) save(ctx context.Context, e ledger.Entry) error {
	unlock, err := p.storing.lock(ctx, e.ID)
	if err != nil {
		return err
	}
	defer unlock()
	p.mu.Lock()
	_, waits := p.ledger.Get(e.ID)
	p.mu.Unlock()
	if !waits {
		return nil
	}
	if err := p.store(ctx, e); err != nil {
		return err
	}
	return p.strikeOff(ctx, e)
}

// forget strikes an entry off, first on the disk. One that does not wait any more is
// no error.
func (p *Purgatory) forget(ctx context.Context, e ledger.Entry, why Fate) error {
	unlock, err := p.writing.lock(ctx, e.ID)
	if err != nil {
		return err
	}
	defer unlock()
	p.mu.Lock()
	_, waits := p.ledger.Get(e.ID)
	p.mu.Unlock()
	if !waits {
		return nil
	}
	if err := p.keep.drop(ctx, keyEntry+e.ID.String()); err != nil {
		return err
	}
	p.mu.Lock()
	p.ledger.Remove(e.ID)
	delete(p.served, e.ID)
	delete(p.takes, e.ID)
	p.mu.Unlock()
	p.ended(e, why)
	return nil
}
