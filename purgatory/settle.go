package purgatory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/ledger"
)

// need is what is missing of one repository, and where it may be had.
type need struct {
	ids            []nip34.ObjectID
	states         []nip34.ObjectID // of them, those of states; in order
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
	err = errors.Join(err, p.endElsewhere(ctx, g), p.removeDeleted(ctx, g))
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
		if err := errors.Join(r.failed, r.trouble); err != nil {
			errs = append(errs, fmt.Errorf("repository %s: %w", printable(r.ref.String()), err))
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
	cut, touched := g.cut, g.touched
	p.lock(ctx, g, repos)
	if g, err = p.gather(ctx, identifier, why.late); err != nil {
		return nil, repos, err
	}
	g.cut, g.touched = cut, touched
	for _, r := range repos {
		_, waits := g.waiting[r.ref]
		now := g.repository(r.ref)
		if r.active = now.active; r.active || waits {
			r.members = now.members
			r.pushed = p.pushedTo(r.ref)
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
		if g.elsewhere(o.entry) || o.hasRepository() {
			continue
		}
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
			p.doubt(r.ref, journal{}) // one ref is there or not: only locks can be left
			errs = append(errs, fmt.Errorf("removing a ref: %w", err))
			continue
		}
		r.refs = r.refs.apply(change, nip34.RefName{})
	}
	return errors.Join(errs...)
}

// hasRepository reports whether an entry is the announcement of a repository that nobody
// announces any more.
func (o ended) hasRepository() bool {
	return o.entry.Class == ledger.Announcement && o.fate != Replaced
}

// removeDeleted removes the repositories of announcements that were deleted while they
// waited, and strikes these off after that: nobody else would know of a repository that
// a crash, or a fetch under way, has left.
func (p *Purgatory) removeDeleted(ctx context.Context, g *group) error {
	var errs []error
	for _, o := range g.over {
		if !o.hasRepository() {
			continue
		}
		err := p.removeRepository(ctx, o.entry.Repos[0])
		if err == nil {
			err = p.forget(ctx, o.entry, o.fate)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// removeRepository removes a repository, unless somebody brought data to it. The error
// wraps ErrInUse if somebody is at it.
func (p *Purgatory) removeRepository(ctx context.Context, ref filters.RepoRef) error {
	leave, free := p.engine.fetches.take(ref)
	if !free {
		return fmt.Errorf("removing a repository: %w", ErrInUse)
	}
	defer leave()
	err := p.repos.Remove(ctx, ref)
	if errors.Is(err, ErrInUse) {
		dir, unlock, lerr := p.enter(ctx, ref, leastLockWait)
		if lerr != nil {
			return errors.Join(err, lerr)
		}
		defer unlock()
		refs, rerr := p.git.Refs(ctx, dir)
		if rerr == nil && len(refs.At) > 0 {
			return nil
		}
		err = errors.Join(err, rerr)
	}
	if err != nil {
		return fmt.Errorf("removing a repository: %w", err)
	}
	return nil
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
			p.notePushed(g, r)
		} else {
			p.touchNow(r.ref) // what waited for it may be released without it
		}
	}
	for ref, number := range g.touched {
		// One that needed no look, since nothing is to be done there, is done with.
		if ok, tried := looked[ref]; ok || (!tried && !g.cut) {
			p.untouch(ref, number)
		}
	}
	if len(g.states) == 0 {
		delete(p.pushed, g.identifier)
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
	CreatedAt nostr.Timestamp // seconds, Unix time
	ID        filters.EventID
}
