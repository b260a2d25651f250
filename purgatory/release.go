package purgatory

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/ledger"
	"github.com/graspsync/graspsync/purgatory/internal/stopwatch"
)

// release stores what needs nothing any more: announcements, then states from the
// oldest on. What can't be stored stays, and holds up nothing but
// what belongs to it.
func (p *Purgatory) release(ctx context.Context, g *group, r *repository) error {
	var errs []error
	if e, waits := g.waiting[r.ref]; waits && r.active {
		err := p.save(ctx, e)
		if errors.Is(err, ErrRefused) {
			delete(g.waiting, r.ref) // of its states the relay says itself what becomes of them
			p.touch(r.ref)
			defer func() { r.active = g.accepted[r.ref] != nil }()
			err = p.forget(ctx, e, NotStored)
		} else if errors.Is(err, errOver) {
			r.active, err = g.accepted[r.ref] != nil, nil
			p.touch(r.ref)
		} else if err != nil {
			r.active = false
		} else {
			p.tell(look{identifier: g.identifier}) // those whom it lists wait with it
		}
		errs = append(errs, err)
	}
	var refused, over []heldState
	g.states = slices.DeleteFunc(g.states, func(h heldState) bool {
		if !r.releases(h) {
			return false
		}
		err := p.save(ctx, h.entry)
		switch {
		case err == nil:
			g.stored = append(g.stored, h.state)
			p.touchOthers(g, r, h)
		case errors.Is(err, ErrRefused):
			refused, err = append(refused, h), nil
		case errors.Is(err, errOver):
			over, err = append(over, h), nil
		}
		errs = append(errs, err)
		return err == nil
	})
	gone, err := p.notStored(ctx, g, over)
	if refused = append(refused, gone...); len(refused) > 0 {
		errs = append(errs, p.takeBack(ctx, g, r, refused))
	}
	return errors.Join(append(errs, err)...)
}

// notStored returns those of states whose waiting has ended during this look that the relay does
// not have. The refs of this repository may have been moved for one since another's look took
// back what it had moved.
func (p *Purgatory) notStored(ctx context.Context, g *group, over []heldState) (gone []heldState, err error) {
	if len(over) == 0 {
		return nil, nil
	}
	stored, err := p.relay.States(ctx, g.identifier)
	if err != nil {
		return nil, fmt.Errorf("reading states: %w", err)
	}
	for _, h := range over {
		i := slices.IndexFunc(stored, func(s *nip34.State) bool { return s.ID == h.entry.ID })
		if i < 0 {
			gone = append(gone, h)
		} else {
			g.stored = append(g.stored, stored[i])
		}
	}
	return gone, nil
}

// takeBack has refs be what stored states say that were moved for some which the relay
// refuses, in this and in other repositories, and then ends the waiting of these.
func (p *Purgatory) takeBack(ctx context.Context, g *group, r *repository, refused []heldState) error {
	errs := []error{p.takeBackHere(ctx, g, r, refused)}
	for _, ref := range g.sources(r) {
		if slices.ContainsFunc(refused, func(h heldState) bool { return g.repository(ref).isMember(h.state.Ref.Owner) }) {
			errs = append(errs, p.takeBackOther(ctx, g, ref, refused))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("taking back refs of a state that was refused: %w", err)
	}
	for _, h := range refused {
		p.touchOthers(g, r, h)
		errs = append(errs, p.forget(ctx, h.entry, NotStored))
	}
	return errors.Join(errs...)
}

// takeBackHere is takeBack in one repository, which is locked. Where nothing that is stored
// can say what its refs are, those go that are what a refused state says.
func (p *Purgatory) takeBackHere(ctx context.Context, g *group, r *repository, refused []heldState) error {
	g.states = slices.DeleteFunc(g.states, func(h heldState) bool {
		return slices.ContainsFunc(refused, func(o heldState) bool { return o.entry.ID == h.entry.ID })
	})
	var err error
	if g.stored, err = p.relay.States(ctx, g.identifier); err != nil {
		return fmt.Errorf("reading states: %w", err)
	}
	if err := p.look(ctx, g, r, g.decided(r)); err != nil {
		return err
	}
	if err := p.alignOne(ctx, g, r); err != nil || r.decides != nil {
		return err
	}
	var changes []RefChange
	newest := g.newestStored(r)
	for name, at := range r.refs.At {
		says := func(h heldState) bool { return r.isMember(h.state.Ref.Owner) && h.state.Refs[name] == at }
		if slices.ContainsFunc(refused, says) && (newest == nil || newest.Refs[name] != at) && !g.ahead(r, name) {
			changes = append(changes, RefChange{Name: name, Old: at})
		}
	}
	if len(changes) == 0 {
		return nil
	}
	if err := p.move(ctx, r, changes, nip34.RefName{}); err != nil {
		return err
	}
	r.refs = r.refs.apply(changes, nip34.RefName{})
	return nil
}

// takeBackOther is takeBackHere for another repository.
func (p *Purgatory) takeBackOther(ctx context.Context, by *group, ref graspsync.RepoRef, refused []heldState) error {
	dir, unlock, err := p.enter(ctx, ref, othersLockWait())
	if errors.Is(err, ErrNoRepository) {
		return nil
	}
	if err != nil {
		return err
	}
	defer unlock()
	g, o, err := p.read(ctx, ref, dir, by.late)
	defer p.unpin(g)
	if err != nil || o == nil || !o.as(g) {
		return err
	}
	o.watch, o.until = stopwatch.New(othersShare, ErrCrowded), othersShare
	return p.takeBackHere(ctx, g, o, refused)
}

// releasePulls is release for pull requests.
func (p *Purgatory) releasePulls(ctx context.Context, g *group, r *repository) error {
	var errs []error
	g.pulls = slices.DeleteFunc(g.pulls, func(h heldPull) bool {
		done, err := p.releasePull(ctx, r, h)
		if errors.Is(err, ErrRefused) {
			done, err = true, p.refusePull(ctx, g, r, h)
		}
		errs = append(errs, err)
		return done && err == nil
	})
	return errors.Join(errs...)
}

// refusePull ends the waiting of a pull request that the relay refuses, when its ref is gone
// again: of one for several repositories when none is locked.
func (p *Purgatory) refusePull(ctx context.Context, g *group, r *repository, h heldPull) error {
	if elsewhere(h.entry) {
		g.over = append(g.over, ended{h.entry, NotStored})
		return nil
	}
	if err := p.dropHere(ctx, r, h.entry); err != nil {
		return err
	}
	return p.forget(ctx, h.entry, NotStored)
}

// releases reports whether a state that waits can be served: its objects are in an
// active repository that it concerns, whose refs are what it says, or something newer.
func (r *repository) releases(h heldState) bool {
	return r.active && r.isMember(h.state.Ref.Owner) && r.here(h.state) &&
		r.decides != nil && !h.state.Stamp().Newer(r.decides.Stamp())
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

// errOver is returned by save if an event does not wait any more: it was stored for another
// repository, or is not to be.
var errOver = errors.New("does not wait any more")

// save stores an event and then strikes it off, in this order: what is stored twice
// is stored once. The error wraps ErrRefused if the relay does not want it.
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
		return errOver
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
	if e.Class == ledger.Relative && (why == Unwanted || why == Displaced) {
		if err := p.noteLeft(ctx, e); err != nil {
			return err
		}
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
	if e.Class == ledger.Announcement {
		p.tell(look{identifier: e.Repos[0].Identifier}) // those whom it lists wait with it
	}
	return nil
}
