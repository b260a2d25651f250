package purgatory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/nip34"
)

// align finds out which objects are missing, has repositories of ours give each other
// what they have, and makes refs what they should be.
func (p *Purgatory) align(ctx context.Context, g *group) {
	each := func(f func(r *repository) error) {
		for _, r := range g.repos {
			if r.failed == nil {
				r.failed = f(r)
			}
		}
	}
	each(func(r *repository) error { return p.lookFor(ctx, r, g.named(r)) })
	each(func(r *repository) error { return p.takeStaged(ctx, g, r) })
	each(func(r *repository) error { return p.share(ctx, g, r) })
	err := p.again(ctx, g)
	each(func(*repository) error { return err })
	each(func(r *repository) error { return p.alignOne(ctx, g, r) })
}

// again asks anew who decides, what is stored and what was deleted: to walk histories
// may have taken minutes. What came meanwhile was not looked for, and has its own turn.
func (p *Purgatory) again(ctx context.Context, g *group) error {
	if !slices.ContainsFunc(g.repos, func(r *repository) bool { return len(r.asked) > 0 }) {
		return nil
	}
	now, err := p.gather(ctx, g.identifier, g.late)
	if err != nil {
		return err
	}
	known := make(map[filters.EventID]bool)
	for _, h := range g.states {
		known[h.entry.ID] = true
	}
	for _, h := range g.pulls {
		known[h.entry.ID] = true
	}
	g.states = slices.DeleteFunc(now.states, func(h heldState) bool { return !known[h.entry.ID] })
	g.pulls = slices.DeleteFunc(now.pulls, func(h heldPull) bool { return !known[h.entry.ID] })
	g.accepted, g.waiting, g.all, g.stored = now.accepted, now.waiting, now.all, now.stored
	g.repos = slices.DeleteFunc(g.repos, func(r *repository) bool {
		r.members, r.active = p.cfg.Membership.Set(r.ref, g.all), g.accepted[r.ref] != nil
		_, waits := g.waiting[r.ref]
		return !r.active && !waits
	})
	return nil
}

// named returns the objects that a repository should have, each once, in order.
func (g *group) named(r *repository) (ids []nip34.ObjectID) {
	for _, s := range g.concerning(r) {
		objects, _ := objectsOf(s, r.refs.Format)
		ids = append(ids, objects...)
	}
	for _, h := range g.pulls {
		if slices.Contains(h.pull.Repos, r.ref) {
			ids = append(ids, h.pull.Tip)
		}
	}
	ids = slices.DeleteFunc(ids, func(id nip34.ObjectID) bool { return id.Format() != r.refs.Format })
	slices.SortFunc(ids, compareIDs)
	return slices.Compact(ids)
}

// lookFor finds out which objects are missing.
func (p *Purgatory) lookFor(ctx context.Context, r *repository, ids []nip34.ObjectID) error {
	r.asked, r.missing = setOf(ids), nil
	if len(ids) == 0 {
		return nil
	}
	missing, err := p.git.Missing(ctx, r.dir, ids)
	r.missing = setOf(missing)
	return err
}

func setOf[K comparable](ids []K) map[K]struct{} {
	out := make(map[K]struct{}, len(ids))
	for _, id := range ids {
		out[id] = struct{}{}
	}
	return out
}

// share gives a repository what it lacks and another one of ours has: what is needed
// is for each of them to say, where it came first does not matter.
func (p *Purgatory) share(ctx context.Context, g *group, r *repository) error {
	if p.git.sharer == nil {
		return nil
	}
	shared := false
	for _, o := range g.repos {
		var ids []nip34.ObjectID
		for id := range r.missing {
			if o != r && o.failed == nil && o.has(id) {
				ids = append(ids, id)
			}
		}
		if len(ids) == 0 {
			continue
		}
		slices.SortFunc(ids, compareIDs)
		if err := p.git.share(ctx, o.dir, r.dir, ids); err != nil {
			// Another owner's repository must not keep this one from being dealt with.
			r.trouble = errors.Join(r.trouble, fmt.Errorf("sharing objects: %w", err))
			continue
		}
		p.step("shared")
		shared = true
		for _, id := range ids {
			delete(r.missing, id)
		}
	}
	if !shared {
		return nil
	}
	return p.lookFor(ctx, r, slices.SortedFunc(maps.Keys(r.asked), compareIDs))
}

// alignOne makes the refs of a repository what they should be. That may make it
// active, and then another state may decide: one without refs, that is.
func (p *Purgatory) alignOne(ctx context.Context, g *group, r *repository) error {
	for range 2 {
		before := r.active
		r.decides = g.authoritative(r)
		changes, head := g.changes(r)
		if len(changes) > 0 || !head.IsZero() {
			if err := p.move(ctx, r, changes, head); err != nil {
				return err
			}
			r.refs = r.refs.apply(changes, head)
		}
		// Data of its own makes an announcement one to be released.
		if r.active = r.active || r.refs.hasState(); r.active == before {
			return nil
		}
	}
	return nil
}
