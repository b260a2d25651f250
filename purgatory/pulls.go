package purgatory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/ledger"
)

// A pull request can be for several repositories, under several identifiers. It is
// stored when its ref is in the first that is served: one that fails, or that has no
// data, must not hold up the others. For those of ours that do not have the ref yet it
// waits on, unseen, until they have, or until its time is over. After a crash it is
// stored again, which changes nothing.

// releasePull stores a pull request and strikes it off, as far as may be.
func (p *Purgatory) releasePull(ctx context.Context, g *group, h heldPull) (done bool, err error) {
	var has []filters.RepoRef
	active := false
	for _, r := range g.repos {
		if r.failed == nil && slices.Contains(h.pull.Repos, r.ref) && r.refs.At[nip34.EventRef(h.entry.ID)] == h.pull.Tip {
			has, active = append(has, r.ref), active || r.active
		}
	}
	if len(h.pull.Repos) == 1 {
		if active {
			err = p.save(ctx, h.entry)
		}
		return active && err == nil, err
	}
	if served := p.isServed(h.entry.ID); !served && !active {
		return false, nil
	} else if !served {
		if err := p.store(ctx, h.entry); err != nil {
			return false, err
		}
	}
	if lacks, err := p.lackRef(ctx, g, h, p.serve(h.entry.ID, has)); err != nil || lacks {
		return false, err
	}
	return true, p.strikeOff(ctx, h.entry)
}

// lackRef reports whether any repository of ours that a pull request names is not
// among those that have its ref, and could have it.
func (p *Purgatory) lackRef(ctx context.Context, g *group, h heldPull, has map[filters.RepoRef]struct{}) (bool, error) {
	for _, ref := range h.pull.Repos {
		if _, ok := has[ref]; ok {
			continue
		}
		if slices.ContainsFunc(g.repos, func(r *repository) bool {
			return r.ref == ref && r.failed == nil && r.refs.Format != h.pull.Tip.Format()
		}) {
			continue
		}
		if waiting, ok := p.waiting(ref); ok && !waiting.Soft {
			return true, nil
		}
		if ours, err := p.accepted(ctx, ref); err != nil || ours {
			return ours, err
		}
	}
	return false, nil
}

// serve notes that a pull request is stored, and where its ref is. It returns all
// repositories that have it.
func (p *Purgatory) serve(id filters.EventID, has []filters.RepoRef) map[filters.RepoRef]struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.served[id] == nil {
		p.served[id] = make(map[filters.RepoRef]struct{})
	}
	for _, ref := range has {
		p.served[id][ref] = struct{}{}
	}
	return maps.Clone(p.served[id])
}

// isServed reports whether a pull request waits on though it is stored.
func (p *Purgatory) isServed(id filters.EventID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.served[id] != nil
}

// elsewhere reports whether an entry is a pull request for repositories with other
// identifiers as well, which are not locked with these.
func (g *group) elsewhere(e ledger.Entry) bool {
	return e.Class == ledger.PullRequest &&
		slices.ContainsFunc(e.Repos, func(ref filters.RepoRef) bool { return ref.Identifier != g.identifier })
}

// endElsewhere is end for these: no repository is locked.
func (p *Purgatory) endElsewhere(ctx context.Context, g *group) error {
	var errs []error
	for _, o := range g.over {
		if !g.elsewhere(o.entry) {
			continue
		}
		var failed []error
		for _, ref := range o.entry.Repos {
			failed = append(failed, p.dropRef(ctx, ref, o.entry.ID))
		}
		err := errors.Join(failed...)
		if err == nil {
			err = p.forget(ctx, o.entry, o.fate)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// store has the relay store an event.
func (p *Purgatory) store(ctx context.Context, e ledger.Entry) error {
	if err := p.relay.Save(ctx, e.Event); err != nil {
		return fmt.Errorf("storing a released event: %w", err)
	}
	p.step("stored")
	return nil
}

// strikeOff ends the waiting of what is stored.
func (p *Purgatory) strikeOff(ctx context.Context, e ledger.Entry) error {
	if err := p.forget(ctx, e, Released); err != nil {
		return err
	}
	p.step("struck off")
	return nil
}
