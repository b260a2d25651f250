package purgatory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/ledger"
)

// A pull request can be for several repositories, under several identifiers. It is
// stored when its ref is in the first that is served: one that fails, or that has no
// data, must not hold up the others. For those of ours that do not have the ref yet it
// waits on, unseen, until they have, or until its time is over. After a crash it is
// stored again, which changes nothing.

// releasePull stores a pull request and strikes it off, as far as may be.
func (p *Purgatory) releasePull(ctx context.Context, r *repository, h heldPull) (done bool, err error) {
	has := slices.Contains(h.pull.Repos, r.ref) && r.refs.At[nip34.EventRef(h.entry.ID)] == h.pull.Tip
	if len(h.pull.Repos) == 1 {
		if has && r.active {
			err = p.save(ctx, h.entry)
		}
		if errors.Is(err, errOver) {
			return true, nil
		}
		return has && r.active && err == nil, err
	}
	unlock, err := p.storing.lock(ctx, h.entry.ID) // its other repositories may have it as well
	if err != nil {
		return false, err
	}
	defer unlock()
	if served := p.isServed(h.entry.ID); !served && !(has && r.active) {
		return false, nil
	} else if !served {
		if err := p.store(ctx, h.entry); err != nil {
			return false, err
		}
	}
	if lacks, err := p.lackRef(ctx, r, h, p.serve(h.entry.ID, r.ref, has)); err != nil || lacks {
		return false, err
	}
	return true, p.strikeOff(ctx, h.entry)
}

// lackRef reports whether any repository of ours that a pull request names is not
// among those that have its ref, and could have it.
func (p *Purgatory) lackRef(ctx context.Context, r *repository, h heldPull, has map[graspsync.RepoRef]struct{}) (bool, error) {
	for _, ref := range h.pull.Repos {
		if _, ok := has[ref]; ok {
			continue
		}
		if r.ref == ref && r.refs.Format != h.pull.Tip.Format() {
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

// serve notes that a pull request is stored, and whether a repository has its ref. It
// returns all repositories that have it.
func (p *Purgatory) serve(id graspsync.EventID, ref graspsync.RepoRef, has bool) map[graspsync.RepoRef]struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.served[id] == nil {
		p.served[id] = make(map[graspsync.RepoRef]struct{})
	}
	if has {
		p.served[id][ref] = struct{}{}
	}
	return maps.Clone(p.served[id])
}

// isServed reports whether a pull request waits on though it is stored.
func (p *Purgatory) isServed(id graspsync.EventID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.served[id] != nil
}

// elsewhere reports whether an entry is a pull request for several repositories, of which
// one is locked at a time.
func elsewhere(e ledger.Entry) bool { return e.Class == ledger.PullRequest && len(e.Repos) > 1 }

// endElsewhere is end for these: no repository is locked.
func (p *Purgatory) endElsewhere(ctx context.Context, g *group) error {
	var errs []error
	for _, o := range g.over {
		if !elsewhere(o.entry) {
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
