package purgatory

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"time"

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
	each(func(r *repository) error { return p.share(ctx, g, r) })
	each(func(r *repository) error { return p.alignOne(ctx, g, r) })
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

func setOf(ids []nip34.ObjectID) map[nip34.ObjectID]struct{} {
	out := make(map[nip34.ObjectID]struct{}, len(ids))
	for _, id := range ids {
		out[id] = struct{}{}
	}
	return out
}

// share gives a repository what it lacks and another one of ours has: what is needed
// is for each of them to say, where it came first does not matter.
func (p *Purgatory) share(ctx context.Context, g *group, r *repository) error {
	sharer, ok := p.git.(Sharer)
	if !ok {
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
		if err := sharer.Share(ctx, o.dir, r.dir, ids); err != nil {
			return fmt.Errorf("sharing objects: %w", err)
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

// move changes refs. What is going to change is written down before, so that after a
// crash the repository is looked at before anybody reads it: git that is killed in a
// transaction may leave a part of it.
func (p *Purgatory) move(ctx context.Context, r *repository, changes []RefChange, head nip34.RefName) error {
	j := journal{Repo: r.ref.String(), At: time.Now().UTC(), Head: head.String()}
	for _, c := range changes {
		j.Changes = append(j.Changes, journalChange{c.Name.String(), c.Old.String(), c.New.String()})
	}
	data, err := json.Marshal(j)
	if err != nil {
		return fmt.Errorf("writing the journal: %w", err)
	}
	key := keyAligning + hashed(r.ref)
	if err := p.keep.put(ctx, key, data); err != nil {
		return err
	}
	p.step("journalled")
	if err := p.git.Align(ctx, r.dir, changes, head); err != nil {
		return fmt.Errorf("moving refs: %w", err)
	}
	p.step("aligned")
	return p.keep.drop(ctx, key)
}
