package purgatory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/ledger"
)

// Staged tells that a push has brought data for events to a repository which lies where
// a [Stager] keeps it: one of them may have come meanwhile.
func (p *Purgatory) Staged(ref graspsync.RepoRef, ids []graspsync.EventID) {
	p.mu.Lock()
	waits := slices.ContainsFunc(ids, func(id graspsync.EventID) bool {
		e, ok := p.ledger.Get(id)
		return ok && e.Class == ledger.PullRequest
	})
	p.mu.Unlock()
	if waits {
		p.touch(ref)
		p.tell(look{identifier: ref.Identifier})
	}
}

// takeStaged gives a repository what was pushed for pull requests before they came. Of
// several who have pushed for one it is the event that says whose data it is. The rest
// goes.
func (p *Purgatory) takeStaged(ctx context.Context, g *group, r *repository) {
	if p.stager.of == nil || p.git.taker == nil {
		return
	}
	for _, h := range g.pulls {
		if !slices.Contains(h.pull.Repos, r.ref) {
			continue
		}
		uploads := p.stager.staged(r.ref, h.entry.ID)
		if len(uploads) == 0 || p.tookLong(h.entry.ID) {
			continue
		}
		err := p.takeOne(ctx, r, h.pull, uploads)
		if errors.Is(err, errNoRoom) {
			p.stats.drop("pull_refs")
			continue // for now
		}
		if err != nil {
			// It is tried again; nothing else waits for that.
			if errors.Is(err, errLong) { // no reason to take the repository for a slow one
				p.noteLong(h.entry.ID)
				err = errors.New(err.Error())
			}
			r.trouble = errors.Join(r.trouble, fmt.Errorf("taking what was pushed: %w", err))
			continue
		}
		p.stager.unstage(r.ref, h.entry.ID)
		p.step("unstaged")
	}
}

// tookLong reports whether data of an event took long to walk a short time ago.
func (p *Purgatory) tookLong(id graspsync.EventID) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.takes[id]) < longAgain
}

func (p *Purgatory) noteLong(id graspsync.EventID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, waits := p.ledger.Get(id); waits {
		p.takes[id] = time.Now()
	}
}

// errNoRoom says that a pull request may have no ref.
var errNoRoom = errors.New("no room for a pull request")

// takeOne takes the tip of a pull request from the first upload that has it with all that
// it needs. That none has is no error.
func (p *Purgatory) takeOne(ctx context.Context, r *repository, pr *nip34.PullRequest, uploads []Upload) error {
	tip := pr.Tip
	for _, u := range uploads {
		if !r.lacks(tip) || tip.Format() != r.refs.Format {
			return nil
		}
		if u.Tip != tip {
			continue
		}
		if room, err := p.hasRoom(ctx, r, pr, u.Bytes); err != nil || !room {
			return cmp.Or(err, errNoRoom)
		}
		done, err := p.engine.fetches.reserve(ctx, r.ref, true, u.Bytes) // what lies there counts for nobody yet
		if err != nil {
			return err
		}
		err = r.work(ctx, r.left()/2, func(ctx context.Context) error { return p.git.take(ctx, r.dir, u.Dir, []nip34.ObjectID{tip}) })
		done()
		switch {
		case err == nil:
			p.step("taken")
			delete(r.missing, tip)
			r.found[tip] = struct{}{}
			r.gained = true
		case errors.Is(err, ErrNotServed):
			p.stats.drop("incomplete")
		default:
			return err
		}
	}
	return nil
}

// arrivedPull has a pull request wait that somebody else has stored, if its data was
// pushed before: it is stored already, but has no ref.
func (e *engine) arrivedPull(ctx context.Context, ev *nostr.Event) {
	pr, err := nip34.ParsePullRequest(ev)
	if err != nil || e.p.stager.of == nil || !slices.ContainsFunc(pr.Repos, func(ref graspsync.RepoRef) bool {
		return len(e.p.stager.staged(ref, pr.ID)) > 0
	}) {
		return
	}
	e.wg.Go(func() {
		if _, err := e.p.Submit(ctx, ev, false); err != nil && ctx.Err() == nil {
			e.p.cfg.Logger.Warn("what was pushed for an event could not be taken", keyEvent, pr.ID.String(), keyError, graspsync.Printable(err.Error()))
		}
	})
}

// containedStager is a Stager whose panics are contained: it has nothing then.
type containedStager struct {
	of Stager // nil: there is none
	p  *Purgatory
}

func (s containedStager) staged(ref graspsync.RepoRef, id graspsync.EventID) (out []Upload) {
	defer s.recovered()
	return s.of.Staged(ref, id)
}

func (s containedStager) unstage(ref graspsync.RepoRef, id graspsync.EventID) {
	defer s.recovered()
	s.of.Unstage(ref, id)
}

func (s containedStager) recovered() {
	if r := recover(); r != nil {
		s.p.panicked(r, ofRepos)
	}
}
