package purgatory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/ledger"
	"github.com/graspsync/graspsync/purgatory/internal/stopwatch"
)

// need is what is missing of one repository, and where it may be had.
type need struct {
	ids            []nip34.ObjectID
	states         []nip34.ObjectID                    // of them, those of states; in order
	authors        map[nip34.ObjectID]graspsync.PubKey // of pull requests that name the others; zero: there are several
	own, strangers []graspsync.URL
	entries        []graspsync.EventID // that wait for it
	members        map[graspsync.PubKey]struct{}
}

// named notes who names an object in a pull request.
func (n *need) named(pr *nip34.PullRequest) {
	if n.authors == nil {
		n.authors = make(map[nip34.ObjectID]graspsync.PubKey)
	}
	by, again := n.authors[pr.Tip]
	if !again {
		by = pr.Author
	}
	if by != pr.Author {
		by = graspsync.PubKey{}
	}
	n.authors[pr.Tip] = by
}

// whose says for whom an object is gathered that only pull requests name.
func (n need) whose(id nip34.ObjectID) whose {
	if by := n.authors[id]; by != (graspsync.PubKey{}) {
		return whose{author: by}
	}
	return whose{id: id} // to name what another one names as well makes it nobody else's
}

func (n need) urls() []graspsync.URL { return slices.Concat(n.own, n.strangers) }

// found is what a look has found.
type found struct {
	need   need
	whole  bool // it lacks nothing any more
	gained bool // it has something that it lacked
	walked bool // there was time enough for the histories that states name
}

// crowdShare is how many times its share of time a look waits at most for places in which
// git may run, which others have: the repository is locked meanwhile.
const crowdShare = 6

// settle looks at a repository: refs are made what the newest authorised state says whose
// objects are here, and what needs nothing any more is released. It returns what is still
// missing. It may be called at any time, and again after any failure: what is done
// already is found done. The error wraps errLong if histories were not walked within
// share, which is time of git in this repository, whatever it has to wait for others.
func (p *Purgatory) settle(ctx context.Context, ref graspsync.RepoRef, why causes, share time.Duration) (_ found, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.fixed.Timeout)
	defer cancel()
	done, err := p.naming.lock(ctx, ref)
	if err != nil {
		return found{}, err
	}
	defer done()
	number := p.looking(ref)
	defer func() { p.looked(ref, number, err) }()
	g, r, err := p.open(ctx, ref, why.late)
	if err != nil {
		p.touch(ref) // what waited for it may be released without it
		return found{}, err
	}
	defer p.unpin(g)
	if r == nil {
		if p.stillWaits(g, ref) {
			p.touch(ref)
			return found{}, fmt.Errorf("repository %s: its announcement may be about to expire: %w", graspsync.Printable(ref.String()), ErrInUse)
		}
		return p.noteGone(ref, number), p.leaves(ctx, g, ref)
	}
	r.watch, r.until = stopwatch.New(crowdShare*share, ErrCrowded), share
	f, err := p.settleLocked(ctx, g, r, number)
	r.unlock()
	err = errors.Join(err, p.endElsewhere(ctx, g))
	if why.check {
		err = errors.Join(err, p.adoptIn(ctx, ref, r))
	}
	return f, err
}

// stillWaits reports whether a repository that a look took for nobody's has an announcement
// that waits. It was being ended by the clock, which decides alone what becomes of the
// repository: there may be something in it.
func (p *Purgatory) stillWaits(g *group, ref graspsync.RepoRef) bool {
	p.mu.Lock()
	waiting := p.ledger.Announcements(ref.Identifier, false)
	p.mu.Unlock()
	return slices.ContainsFunc(waiting, func(e ledger.Entry) bool {
		return e.Repos[0] == ref &&
			!slices.ContainsFunc(g.over, func(o ended) bool { return o.entry.ID == e.ID })
	})
}

// looking notes that a repository is looked at, and returns when it was touched last.
func (p *Purgatory) looking(ref graspsync.RepoRef) (number uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.looks[ref] = struct{}{}
	return p.touched[ref.Identifier][ref]
}

// looked notes that the look is over. One that had too little time is gone on with at once.
func (p *Purgatory) looked(ref graspsync.RepoRef, number uint64, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.looks, ref)
	if err != nil && !errors.Is(err, errLong) {
		p.lookedAt(ref, number)
	}
}

// settleLocked is settle while the repository is locked.
func (p *Purgatory) settleLocked(ctx context.Context, g *group, r *repository, number uint64) (found, error) {
	errs := []error{p.end(ctx, g, r)}
	walked := false
	if r.failed = p.align(ctx, g, r, g.decided(r)); r.failed == nil {
		walked = !errors.Is(r.trouble, errLong) && !errors.Is(r.trouble, ErrCrowded)
		p.alignOthers(ctx, g, r)
		errs = append(errs, p.release(ctx, g, r))
		r.failed = p.alignPulls(ctx, g, r)
	}
	if r.failed == nil {
		errs = append(errs, p.releasePulls(ctx, g, r))
	}
	var n need
	if r.failed == nil {
		if n = p.lacking(g, r); len(n.ids) == 0 && r.trouble == nil {
			r.failed = p.git.Tidy(ctx, r.dir)
		}
	}
	if err := errors.Join(r.failed, r.trouble); err != nil {
		errs = append(errs, fmt.Errorf("repository %s: %w", graspsync.Printable(r.ref.String()), err))
	}
	f := p.note(g, r, n, number)
	f.walked = walked
	return f, errors.Join(errs...)
}

// end strikes off what does not wait any more, after the refs of pull requests that
// will not be served.
func (p *Purgatory) end(ctx context.Context, g *group, r *repository) error {
	var errs []error
	for _, o := range g.over {
		if elsewhere(o.entry) || g.ends(o) {
			continue
		}
		err := p.dropHere(ctx, r, o.entry)
		if err == nil {
			err = p.forget(ctx, o.entry, o.fate)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// dropHere removes the ref of an event from the repository that is locked.
func (p *Purgatory) dropHere(ctx context.Context, r *repository, e ledger.Entry) error {
	name := nip34.EventRef(e.ID)
	at, exists := r.refs.At[name]
	if !exists {
		return nil
	}
	change := RefChange{Name: name, Old: at}
	if err := p.rations.remove(ctx, r.ref, r.dir, r.refs, change); err != nil {
		return err
	}
	r.refs = r.refs.apply([]RefChange{change}, nip34.RefName{})
	return nil
}

// ends reports whether what is over is the announcement of a repository that nobody announces
// any more, and that goes with it.
func (g *group) ends(o ended) bool {
	return o.entry.Class == ledger.Announcement && o.fate != Replaced && !g.isOurs(o.entry.Repos[0])
}

// note remembers what a repository lacks. If it could not be dealt with it is as before.
func (p *Purgatory) note(g *group, r *repository, n need, number uint64) found {
	p.mu.Lock()
	defer p.mu.Unlock()
	if r.failed != nil {
		p.touchNow(r.ref)
		return found{}
	}
	p.notePushed(g, r)
	p.noteUnfit(r)
	p.untouch(r.ref, number)
	gained := r.gained || slices.ContainsFunc(p.needs[g.identifier][r.ref].ids, r.has)
	if len(n.ids) == 0 {
		return found{whole: p.needsNothing(r.ref), gained: gained}
	}
	if p.needs[g.identifier] == nil {
		p.needs[g.identifier] = make(map[graspsync.RepoRef]need)
	}
	p.needs[g.identifier][r.ref] = n
	return found{need: n, gained: gained}
}

// noteGone is note for a repository that nobody announces.
func (p *Purgatory) noteGone(ref graspsync.RepoRef, number uint64) found {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.untouch(ref, number)
	return found{whole: p.forgetRepository(ref)}
}

// forgetRepository forgets what was found out about a repository, and reports whether it
// lacked anything. It is called with mu held.
func (p *Purgatory) forgetRepository(ref graspsync.RepoRef) bool {
	delete(p.walked, ref)
	delete(p.unfit, ref)
	p.rations.forget(ref)
	p.upkeep.forget(ref)
	return p.needsNothing(ref)
}

// needsNothing notes that a repository lacks nothing, and reports whether it did. It is
// called with mu held.
func (p *Purgatory) needsNothing(ref graspsync.RepoRef) bool {
	of := p.needs[ref.Identifier]
	_, did := of[ref]
	delete(of, ref)
	if len(of) == 0 {
		delete(p.needs, ref.Identifier)
	}
	return did
}

// Stamp is what reconciliation needs to know of an event that waits.
type Stamp struct {
	CreatedAt nostr.Timestamp // seconds, Unix time
	ID        graspsync.EventID
}
