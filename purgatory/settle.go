package purgatory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/ledger"
)

// need is what is missing of one repository, and where it may be had.
type need struct {
	ids            []nip34.ObjectID
	own, strangers []egress.URL
	entries        []filters.EventID // that wait for it
	members        map[filters.PubKey]struct{}
}

func (n need) urls() []egress.URL { return slices.Concat(n.own, n.strangers) }

// found is what a look has found.
type found struct {
	needs map[filters.RepoRef]need
	whole []filters.RepoRef // that lack nothing any more
}

// settle looks at everything under an identifier: refs are made what the newest
// authorised state says whose objects are here, and what needs nothing any more is
// released. It returns what is still missing. It may be called at any time, and again
// after any failure: what is done already is found done.
func (p *Purgatory) settle(ctx context.Context, identifier string, why causes) (found, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	defer cancel()
	done, err := p.naming.lock(ctx, identifier)
	if err != nil {
		return found{}, err
	}
	defer done()
	g, repos, err := p.locked(ctx, identifier, why)
	if err != nil {
		unlock(repos)
		return found{}, err
	}
	f, err := p.settleLocked(ctx, g)
	unlock(repos)
	err = errors.Join(err, p.removeDeleted(ctx, g))
	if why.check {
		err = errors.Join(err, p.adopt(ctx, g))
	}
	return f, err
}

// settleLocked is settle while the repositories are locked.
func (p *Purgatory) settleLocked(ctx context.Context, g *group) (found, error) {
	errs := []error{p.end(ctx, g)}
	p.align(ctx, g)
	errs = append(errs, p.release(ctx, g))
	needs := make(map[filters.RepoRef]need)
	for _, r := range g.repos {
		if r.failed == nil {
			if n := p.lacking(g, r); len(n.ids) > 0 {
				needs[r.ref] = n
			} else {
				r.failed = p.git.Tidy(ctx, r.dir)
			}
		}
		if r.failed != nil {
			errs = append(errs, fmt.Errorf("repository %s: %w", printable(r.ref.String()), r.failed))
		}
	}
	return p.note(g, needs), errors.Join(errs...)
}

// locked gathers what is known of an identifier while the repositories that it is
// about are locked. What was read before may be over by now, a state that a push was
// judged by, say: it only tells which to lock.
func (p *Purgatory) locked(ctx context.Context, identifier string, why causes) (g *group, repos []*repository, err error) {
	if g, err = p.gather(ctx, identifier, why.late); err != nil {
		return nil, nil, err
	}
	repos = p.concerned(g, why.check)
	cut := g.cut
	p.lock(ctx, g, repos)
	if g, err = p.gather(ctx, identifier, why.late); err != nil {
		return nil, repos, err
	}
	g.cut = cut
	for _, r := range repos {
		_, waits := g.waiting[r.ref]
		now := g.repository(r.ref)
		if r.active = now.active; r.active || waits {
			r.members = now.members
			g.repos = append(g.repos, r)
		}
	}
	return g, repos, nil
}

// end strikes off what does not wait any more, after the refs of pull requests that
// will not be served.
func (p *Purgatory) end(ctx context.Context, g *group) error {
	var errs []error
	for _, o := range g.over {
		err := p.dropHere(ctx, g, o.entry)
		if err == nil {
			err = p.forget(ctx, o.entry, o.fate)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// dropHere removes the ref of an event from the repositories that are locked.
func (p *Purgatory) dropHere(ctx context.Context, g *group, e ledger.Entry) error {
	var errs []error
	for _, r := range g.repos {
		name := nip34.EventRef(e.ID)
		at, exists := r.refs.At[name]
		if r.failed != nil || !exists {
			continue
		}
		change := []RefChange{{Name: name, Old: at}}
		if err := p.git.Align(ctx, r.dir, change, nip34.RefName{}); err != nil {
			errs = append(errs, fmt.Errorf("removing a ref: %w", err))
			continue
		}
		r.refs = r.refs.apply(change, nip34.RefName{})
	}
	return errors.Join(errs...)
}

// removeDeleted removes the repositories of announcements that were deleted while they
// waited. One that somebody brought data to stays.
func (p *Purgatory) removeDeleted(ctx context.Context, g *group) error {
	var errs []error
	for _, o := range g.over {
		if o.entry.Class != ledger.Announcement || o.fate == Replaced {
			continue
		}
		leave, free := p.engine.fetches.take(o.entry.Repos[0])
		if !free {
			continue
		}
		err := p.repos.Remove(ctx, o.entry.Repos[0])
		leave()
		if err != nil && !errors.Is(err, ErrInUse) {
			errs = append(errs, fmt.Errorf("removing a repository: %w", err))
		}
	}
	return errors.Join(errs...)
}

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

// concerning returns the states that a repository is concerned with: those that
// wait, and the newest one that is stored.
func (g *group) concerning(r *repository) (out []*nip34.State) {
	for _, h := range g.states {
		if r.isMember(h.state.Ref.Owner) {
			out = append(out, h.state)
		}
	}
	if s := g.newestStored(r); s != nil {
		out = append(out, s)
	}
	return out
}

func (g *group) newestStored(r *repository) (newest *nip34.State) {
	for _, s := range g.stored {
		if r.isMember(s.Ref.Owner) && (newest == nil || nip34.Newer(s.Version(), newest.Version())) {
			newest = s
		}
	}
	return newest
}

// here reports whether every object that a state names is in the repository.
func (r *repository) here(s *nip34.State) bool {
	ids, fits := objectsOf(s, r.refs.Format)
	return fits && !slices.ContainsFunc(ids, r.lacks)
}

// has reports whether an object is known to be here; lacks, whether it is not known to
// be.
func (r *repository) has(id nip34.ObjectID) bool {
	_, asked := r.asked[id]
	_, missing := r.missing[id]
	return asked && !missing
}

func (r *repository) lacks(id nip34.ObjectID) bool { return !r.has(id) }

// authoritative returns the state that decides about the refs of a repository: the
// newest one that is stored, or that waits and whose objects are here. Nil if there
// is none, or if its objects are not here. One without refs says nothing about a
// repository that is not served yet.
func (g *group) authoritative(r *repository) *nip34.State {
	newest := g.newestStored(r)
	for _, h := range g.states {
		if !r.isMember(h.state.Ref.Owner) || !r.here(h.state) || (len(h.state.Refs) == 0 && !r.active) {
			continue
		}
		if newest == nil || nip34.Newer(h.state.Version(), newest.Version()) {
			newest = h.state
		}
	}
	if newest == nil || !r.here(newest) || (len(newest.Refs) == 0 && !r.active) {
		return nil
	}
	return newest
}

// changes returns what becomes of the refs of a repository.
func (g *group) changes(r *repository) (changes []RefChange, head nip34.RefName) {
	if r.decides != nil {
		changes, head = changesFor(r.refs, r.decides)
	}
	for _, h := range g.pulls {
		name := nip34.EventRef(h.entry.ID)
		if slices.Contains(h.pull.Repos, r.ref) && r.has(h.pull.Tip) && r.refs.At[name] != h.pull.Tip {
			changes = append(changes, RefChange{Name: name, Old: r.refs.At[name], New: h.pull.Tip})
		}
	}
	return changes, head
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

// lacking returns what a repository lacks for what waits, and for the newest state
// that is stored.
func (p *Purgatory) lacking(g *group, r *repository) need {
	n := need{members: r.members}
	for _, h := range g.states {
		if ids := r.absent(h.state); r.isMember(h.state.Ref.Owner) && len(ids) > 0 {
			n.ids = append(n.ids, ids...)
			n.entries = append(n.entries, h.entry.ID)
		}
	}
	if s := g.newestStored(r); s != nil {
		ids := r.absent(s)
		n.ids = append(n.ids, ids...)
		if e, waits := g.waiting[r.ref]; waits && len(ids) > 0 {
			n.entries = append(n.entries, e.ID)
		}
	}
	for _, h := range g.pulls {
		if slices.Contains(h.pull.Repos, r.ref) && h.pull.Tip.Format() == r.refs.Format && r.lacks(h.pull.Tip) {
			n.ids = append(n.ids, h.pull.Tip)
			n.entries = append(n.entries, h.entry.ID)
		}
	}
	slices.SortFunc(n.ids, compareIDs)
	n.ids = slices.Compact(n.ids)
	n.own, n.strangers = p.urls(g, r)
	return n
}

// absent returns the objects of a state that a repository lacks; none if it could not
// have them.
func (r *repository) absent(s *nip34.State) []nip34.ObjectID {
	ids, fits := objectsOf(s, r.refs.Format)
	if !fits {
		return nil
	}
	return slices.DeleteFunc(ids, r.has)
}

// note remembers what is missing under an identifier, and returns it with what is
// not any more. Of what could not be looked at it is not known.
func (p *Purgatory) note(g *group, needs map[filters.RepoRef]need) found {
	p.mu.Lock()
	defer p.mu.Unlock()
	old := p.needs[g.identifier]
	looked := make(map[filters.RepoRef]bool)
	for _, r := range g.repos {
		looked[r.ref] = r.failed == nil
		if r.failed == nil {
			delete(p.touched, r.ref)
		}
	}
	f := found{needs: needs}
	all := maps.Clone(needs)
	for ref, n := range old {
		ok, tried := looked[ref]
		switch _, lacks := needs[ref]; {
		case lacks:
		case (tried && !ok) || (!tried && g.cut):
			all[ref] = n
		default:
			f.whole = append(f.whole, ref)
		}
	}
	if len(all) == 0 {
		delete(p.needs, g.identifier)
	} else {
		p.needs[g.identifier] = all
	}
	return f
}

// Stamp is what reconciliation needs to know of an event that waits.
type Stamp struct {
	CreatedAt nostr.Timestamp
	ID        filters.EventID
}
