package purgatory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/purgatory/internal/ledger"
)

// adopt looks for refs of events in the repositories of a group, and has those wait
// for their events whose event is not here: what was pushed when the process was
// killed before anybody could be told, whose ref could not be removed, or whose event
// was served and then deleted. It is called without the locks of the repositories.
//
// Nothing of that is removed at once: who has lost events gets them again by sync, and
// must not have lost their data by then.
func (p *Purgatory) adopt(ctx context.Context, g *group) error {
	if _, knows := p.relay.(Knower); !knows {
		return nil // the refs of what is served look the same
	}
	looked := make(map[filters.RepoRef]*repository)
	for _, r := range g.repos {
		looked[r.ref] = r
	}
	all := slices.Collect(maps.Keys(g.accepted))
	for ref := range g.waiting {
		if g.accepted[ref] == nil {
			all = append(all, ref)
		}
	}
	if most := p.cfg.MaxRepositories; len(all) > most { // the others have their turn
		rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		all = all[:most]
	}
	var errs []error
	for _, ref := range all {
		errs = append(errs, p.adoptIn(ctx, ref, looked[ref]))
	}
	return errors.Join(errs...)
}

// adoptIn is adopt for one repository, which may have been looked at already.
func (p *Purgatory) adoptIn(ctx context.Context, ref filters.RepoRef, looked *repository) error {
	var refs Refs
	var err error
	switch {
	case looked == nil:
		refs, err = p.refsOf(ctx, ref)
	case looked.failed == nil:
		refs = looked.refs
	}
	if err != nil {
		return err
	}
	for name := range refs.At {
		id, ok := eventOf(name)
		if !ok || !p.roomFor(ref, id) {
			continue
		}
		if err := p.pushedFor(ctx, ref, id); err != nil {
			return err
		}
	}
	return nil
}

// roomFor reports whether data that was pushed for an event has room, or waits
// already.
func (p *Purgatory) roomFor(ref filters.RepoRef, id filters.EventID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, waits := p.ledger.Get(id); waits {
		_, _, room := p.ledger.Join(id, ref)
		return room
	}
	return p.ledger.Check(time.Now(), placeholder(ref, id)) != ledger.PushedFull
}

// refsOf reads the refs of a repository; there are none if it is not there.
func (p *Purgatory) refsOf(ctx context.Context, ref filters.RepoRef) (Refs, error) {
	dir, unlock, err := p.repos.Lock(ctx, ref)
	if errors.Is(err, ErrNoRepository) {
		return Refs{}, nil
	}
	if err != nil {
		return Refs{}, fmt.Errorf("locking repository: %w", err)
	}
	defer unlock()
	return p.git.Refs(ctx, dir)
}
