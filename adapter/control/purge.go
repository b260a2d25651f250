package control

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/rules"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Purged is the result of purge and remove. For a repository they remove its git data and the events that
// refer to no other hosted repository, for an author all events and repositories.
//
// Deletions and requests to vanish stay, because their events would return, and are not served while
// blocked. The error wraps [ErrStays] for one that is not blocked, and [ErrNothingToPurge] for a
// repository without data.
type Purged struct {
	Events       int                 `json:"events"`
	Waiting      int                 `json:"waiting"` // number of held events in Events
	Repositories []graspsync.RepoRef `json:"repositories,omitempty"`
}

func (c *Control) remove(ctx context.Context, r rules.Rule) (any, error) {
	if r.Subject.Kind == rules.Relay {
		return nil, fmt.Errorf("%w of %s", ErrNothingToPurge, r.Subject)
	}
	r.Action = rules.Block
	if err := c.cfg.Rules.Set(ctx, r); err != nil {
		return nil, err
	}
	waited, err := c.dismiss(ctx)
	err = errors.Join(err, c.act(ctx, r.Subject))
	p, purged := c.purge(ctx, r.Subject)
	p.Events, p.Waiting = p.Events+waited, p.Waiting+waited
	if errors.Is(purged, ErrNothingToPurge) {
		if purged = fmt.Errorf("it is blocked now, but %w", purged); waited > 0 {
			purged = nil
		}
	}
	return p, errors.Join(err, purged)
}

// ErrStays means that a purged event is still served.
var ErrStays = errors.New("deletions and requests to vanish stay, because their events would come back; removed or blocked, they are not served")

func (c *Control) purge(ctx context.Context, s rules.Subject) (Purged, error) {
	p := &purge{Control: c, gone: make(map[graspsync.EventID]bool)}
	switch s.Kind {
	case rules.Relay:
		p.fail(fmt.Errorf("%w of %s", ErrNothingToPurge, s))
	case rules.Author:
		author, _ := s.PubKey()
		p.author(ctx, author)
	case rules.Repository:
		ref, _ := s.Ref()
		if p.repository(ctx, ref); len(p.errs)+p.done.Events+len(p.done.Repositories) == 0 {
			p.fail(fmt.Errorf("%w of %s", ErrNothingToPurge, s))
		}
	case rules.Event:
		p.event(ctx, s.Name)
	}
	return p.done, errors.Join(p.errs...)
}

func stays(ev graspsync.Event) bool {
	return ev.Kind == graspsync.KindDeletion || ev.Kind == graspsync.KindVanish
}

type purge struct {
	*Control
	gone map[graspsync.EventID]bool
	done Purged
	errs []error // the first ones; an error does not stop the purge
}

const mostErrors = 10

func (p *purge) fail(err error) {
	if err != nil && len(p.errs) < mostErrors {
		p.errs = append(p.errs, err)
	}
}

func (p *purge) event(ctx context.Context, id string) {
	p.each(ctx, nostr.Filter{IDs: []string{id}}, func(ev graspsync.Event) {
		if _, hidden := p.cfg.Rules.ServeBlock(ev); stays(ev) && !hidden {
			p.fail(ErrStays)
		}
		p.remove(ctx, ev)
	})
	p.dismiss(ctx, func(ev graspsync.Event) bool { return ev.Event.ID == id })
	// The event may no longer be stored, so its refs are removed from all repositories.
	pull, err := graspsync.ParseEventID(id)
	p.fail(err)
	for ref, err := range p.cfg.Repositories.Owned(ctx, graspsync.PubKey{}) {
		if p.fail(err); err == nil {
			p.pull(ctx, pull, ref)
		}
	}
}

func (p *purge) author(ctx context.Context, author graspsync.PubKey) {
	refs := p.kept(ctx, author)
	announced := nostr.Filter{Kinds: []int{graspsync.KindAnnouncement}, Authors: []string{author.String()}}
	p.each(ctx, announced, func(ev graspsync.Event) {
		if a, err := nip34.ParseAnnouncement(ev); err == nil {
			refs[a.Ref] = true
		}
	})
	for ref := range refs {
		p.repository(ctx, ref)
	}
	p.events(ctx, nostr.Filter{Authors: []string{author.String()}})
	p.dismiss(ctx, func(ev graspsync.Event) bool { return ev.PubKey == author })
}

func (p *purge) kept(ctx context.Context, owner graspsync.PubKey) map[graspsync.RepoRef]bool {
	all := make(map[graspsync.RepoRef]bool)
	for _, list := range []iter.Seq2[graspsync.RepoRef, error]{p.cfg.Repositories.Owned(ctx, owner), p.cfg.Repositories.Departed(ctx, owner)} {
		for ref, err := range list {
			if p.fail(err); err == nil {
				all[ref] = true
			}
		}
	}
	return all
}

func (p *purge) events(ctx context.Context, f nostr.Filter) {
	p.each(ctx, f, func(ev graspsync.Event) { p.remove(ctx, ev) })
}

// each calls do for each matching stored event, again after an incomplete read.
func (p *purge) each(ctx context.Context, f nostr.Filter, do func(graspsync.Event)) {
	for {
		before := len(p.gone)
		var err error
		for ev, rerr := range p.cfg.Store.Events(ctx, f) {
			if err = rerr; err == nil && !p.gone[ev.ID] {
				do(ev)
			}
		}
		if !errors.Is(err, relaysync.ErrIncomplete) || ctx.Err() != nil || len(p.gone) == before {
			p.fail(err)
			return
		}
	}
}

// remove removes an event unless it stays, after the refs of a pull request, which a repeated command could
// not find otherwise, and again before a release creates them.
func (p *purge) remove(ctx context.Context, ev graspsync.Event) bool {
	if stays(ev) {
		return false
	}
	var repos []graspsync.RepoRef
	if pr, err := nip34.ParsePullRequest(ev); err == nil {
		repos = pr.Repos
	}
	if !p.pull(ctx, ev.ID, repos...) {
		return false
	}
	if err := p.cfg.Remove(ctx, ev); err != nil {
		p.fail(fmt.Errorf("removing event %s: %w", ev.ID, err))
		return false
	}
	p.gone[ev.ID] = true
	p.done.Events++
	p.pull(ctx, ev.ID, repos...)
	return true
}

func (p *purge) pull(ctx context.Context, id graspsync.EventID, in ...graspsync.RepoRef) bool {
	for _, ref := range in {
		err := whenUnused(ctx, func() error { return p.cfg.Purgatory.RemovePull(ctx, ref, id) })
		if err != nil {
			p.fail(fmt.Errorf("removing the ref of pull request %s from %s: %w", id, graspsync.Printable(ref.String()), err))
			return false
		}
	}
	return true
}

func (p *purge) dismiss(ctx context.Context, which func(graspsync.Event) bool) {
	n, err := p.cfg.Purgatory.Drop(ctx, which)
	p.done.Events, p.done.Waiting = p.done.Events+n, p.done.Waiting+n
	p.fail(err)
}

// repository starts with announcement and states, which ends the service.
func (p *purge) repository(ctx context.Context, ref graspsync.RepoRef) {
	p.events(ctx, nostr.Filter{
		Kinds: []int{graspsync.KindAnnouncement, graspsync.KindState}, Authors: []string{ref.Owner.String()},
		Tags: nostr.TagMap{"d": {ref.Identifier}},
	})
	p.dismiss(ctx, func(ev graspsync.Event) bool { return concerns(ev, ref) })
	p.said(ctx, ref)
	hasGit := p.kept(ctx, ref.Owner)[ref]
	err := whenUnused(ctx, func() error { return p.cfg.Purgatory.RemoveRepository(ctx, ref) })
	if p.fail(err); err == nil && hasGit {
		p.done.Repositories = append(p.done.Repositories, ref)
	}
}

func concerns(ev graspsync.Event, ref graspsync.RepoRef) bool {
	if ev.Kind == graspsync.KindAnnouncement || ev.Kind == graspsync.KindState {
		return ev.PubKey == ref.Owner && ev.Tags.GetD() == ref.Identifier
	}
	of := nip34.Addresses(ev.Event)
	return len(of) > 0 && !slices.ContainsFunc(of, func(a graspsync.Address) bool {
		other, is := a.Repo()
		return is && other != ref
	})
}

const (
	mostSteps = 16
	perFilter = 100
)

// said removes the events that refer to a repository, directly or indirectly.
func (p *purge) said(ctx context.Context, ref graspsync.RepoRef) {
	next := filtersFor("aAq", []string{ref.String()})
	for range mostSteps {
		var ids, at []string
		for _, f := range next {
			p.each(ctx, f, func(ev graspsync.Event) {
				if p.belongsElsewhere(ctx, ev, ref) || !p.remove(ctx, ev) {
					return
				}
				ids = append(ids, ev.ID.String())
				if a, ok := ev.Address(); ok {
					at = append(at, a.String())
				}
			})
		}
		if len(ids) == 0 {
			break
		}
		next = append(filtersFor("eEq", ids), filtersFor("aAq", at)...)
	}
}

// belongsElsewhere reports whether an event may refer to another hosted repository.
func (p *purge) belongsElsewhere(ctx context.Context, ev graspsync.Event, ref graspsync.RepoRef) bool {
	for _, a := range nip34.Addresses(ev.Event) {
		other, is := a.Repo()
		if !is || other == ref {
			continue
		}
		about, _, err := p.cfg.Purgatory.Announced(ctx, other)
		if p.fail(err); err != nil || about != nil && p.cfg.Lists(about) {
			return true
		}
	}
	return false
}

func filtersFor(tags string, values []string) (out []nostr.Filter) {
	for some := range slices.Chunk(values, perFilter) {
		for _, tag := range tags {
			out = append(out, nostr.Filter{Tags: nostr.TagMap{string(tag): some}})
		}
	}
	return out
}

const (
	waitUnused = 30 * time.Second // maximum wait for a repository in use
	everyUse   = 100 * time.Millisecond
)

func whenUnused(ctx context.Context, do func() error) error {
	by := time.Now().Add(waitUnused)
	for {
		err := do()
		if !errors.Is(err, purgatory.ErrInUse) || time.Now().After(by) {
			return err
		}
		select {
		case <-time.After(everyUse):
		case <-ctx.Done():
			return err
		}
	}
}
