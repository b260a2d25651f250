package purgatory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// ErrNoDepartures is returned by [Purgatory.RemoveRepository] if the Repositories are no
// [Departures].
var ErrNoDepartures = errors.New("repositories can't be taken out of service")

// RemoveRepository removes a repository at once and for good, served or not. It is for who
// must take something down, after the announcement is gone, or the repository is made
// again at the next look. The error wraps [ErrNoDepartures], or [ErrInUse] if something is
// being fetched for it and it should be called again.
func (p *Purgatory) RemoveRepository(ctx context.Context, ref graspsync.RepoRef) error {
	if p.departures == nil {
		return ErrNoDepartures
	}
	done, err := p.naming.lock(ctx, ref)
	if err != nil {
		return err
	}
	defer done()
	leave, free := p.engine.fetches.take(ref)
	if !free {
		return fmt.Errorf("removing a repository: %w", ErrInUse)
	}
	defer leave()
	if err := p.departures.Erase(ctx, ref); err != nil {
		return fmt.Errorf("removing a repository: %w", err)
	}
	p.step("removed")
	p.mu.Lock()
	defer p.mu.Unlock()
	p.forgetRepository(ref)
	return nil
}

// removeRepository removes a repository that nobody announces: one with refs is taken out
// of service, and kept for a while. The error wraps ErrInUse if somebody is at it.
func (p *Purgatory) removeRepository(ctx context.Context, ref graspsync.RepoRef) error {
	leave, free := p.engine.fetches.take(ref)
	if !free {
		return fmt.Errorf("removing a repository: %w", ErrInUse)
	}
	defer leave()
	err := p.repos.Remove(ctx, ref)
	if errors.Is(err, ErrInUse) && p.departures != nil {
		waiting, cancel := context.WithTimeout(ctx, p.cfg.fixed.Timeout/lockShare)
		defer cancel()
		if err = p.departures.Depart(waiting, ref); err == nil {
			p.stats.drop("departed")
			p.cfg.Logger.Info("repository out of service", keyRepo, graspsync.Printable(ref.String()))
		}
	}
	if err != nil {
		return fmt.Errorf("removing a repository: %w", err)
	}
	p.step("removed")
	return nil
}

// leaves takes a repository out of service that nobody announces any more. An announcement that
// was deleted while it waited is struck off after that: nobody else would know of a repository
// that a crash, or a fetch under way, has left. Those of others are left to looks at theirs,
// which may have been announced again since this one began.
func (p *Purgatory) leaves(ctx context.Context, g *group, ref graspsync.RepoRef) error {
	err := p.removeRepository(ctx, ref)
	var waited []ended
	for _, o := range g.over {
		if g.ends(o) && o.entry.Repos[0] == ref {
			waited = append(waited, o)
		}
	}
	if p.departures == nil && errors.Is(err, ErrInUse) && len(waited) == 0 {
		return nil // it has refs, and stays where it is
	}
	if err != nil {
		return err
	}
	for _, o := range waited {
		err = errors.Join(err, p.forget(ctx, o.entry, o.fate))
	}
	return err
}

// emptyOfState removes the refs of pull requests where nothing else is: they keep no
// announcement from expiring. has is true if something else is.
func (p *Purgatory) emptyOfState(ctx context.Context, ref graspsync.RepoRef) (has bool, err error) {
	dir, unlock, err := p.enter(ctx, ref, p.cfg.fixed.Timeout/lockShare)
	if errors.Is(err, ErrNoRepository) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer unlock()
	refs, err := p.git.Refs(ctx, dir)
	if err != nil || refs.hasState() || p.departures != nil {
		return refs.hasState(), err
	}
	var changes []RefChange
	for name, id := range refs.At {
		changes = append(changes, RefChange{Name: name, Old: id})
	}
	if len(changes) == 0 {
		return false, nil
	}
	if err := p.git.Align(ctx, dir, changes, nip34.RefName{}); err != nil {
		p.doubt(ref, journal{}) // each is there or not: only locks can be left
		return false, fmt.Errorf("removing refs: %w", err)
	}
	return false, nil
}

// sweepPeriod is the time between two looks at what has departed.
const sweepPeriod = time.Hour

// runSweeps removes what has departed and was not put back in time.
func (p *Purgatory) runSweeps(ctx context.Context) {
	if p.departures == nil {
		return
	}
	timer := time.NewTicker(sweepPeriod)
	defer timer.Stop()
	for {
		if err := p.departures.Sweep(ctx, time.Now().Add(-p.cfg.Times.Departed)); err != nil && ctx.Err() == nil {
			p.cfg.Logger.Warn("repositories that have departed could not be removed", keyError, graspsync.Printable(err.Error()))
		}
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// ownedBy has the repositories of an owner looked at who may not announce them any more.
func (p *Purgatory) ownedBy(ctx context.Context, owner graspsync.PubKey) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.fixed.Timeout)
	defer cancel()
	err := p.departures.owned(ctx, owner, func(ref graspsync.RepoRef) {
		p.tell(look{identifier: ref.Identifier, why: causes{left: map[graspsync.RepoRef]bool{ref: true}}})
	})
	if err != nil && ctx.Err() == nil {
		p.cfg.Logger.Warn("listing repositories failed", keyError, graspsync.Printable(err.Error()))
	}
}

// inService returns the repositories that are there, by identifier.
func (p *Purgatory) inService(ctx context.Context) (map[string]map[graspsync.RepoRef]bool, error) {
	if p.departures == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.fixed.Timeout)
	defer cancel()
	out := make(map[string]map[graspsync.RepoRef]bool)
	err := p.departures.owned(ctx, graspsync.PubKey{}, func(ref graspsync.RepoRef) {
		if out[ref.Identifier] == nil {
			out[ref.Identifier] = make(map[graspsync.RepoRef]bool)
		}
		out[ref.Identifier][ref] = true
	})
	return out, err
}

// containedDepartures is Departures whose panics are errors.
type containedDepartures struct {
	Departures
	p *Purgatory
}

func (d containedDepartures) Depart(ctx context.Context, ref graspsync.RepoRef) (err error) {
	defer d.p.recovered(&err, ofRepos)
	return d.Departures.Depart(ctx, ref)
}

func (d containedDepartures) Sweep(ctx context.Context, before time.Time) (err error) {
	defer d.p.recovered(&err, ofRepos)
	return d.Departures.Sweep(ctx, before)
}

func (d containedDepartures) Erase(ctx context.Context, ref graspsync.RepoRef) (err error) {
	defer d.p.recovered(&err, ofRepos)
	return d.Departures.Erase(ctx, ref)
}

// owned calls each for the repositories that Owned yields.
func (d containedDepartures) owned(ctx context.Context, owner graspsync.PubKey, each func(ref graspsync.RepoRef)) (err error) {
	defer d.p.recovered(&err, ofRepos)
	for ref, err := range d.Owned(ctx, owner) {
		if err != nil {
			return err
		}
		each(ref)
	}
	return nil
}
