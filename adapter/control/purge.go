package control

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/rules"
	relaysync "github.com/graspsync/graspsync/sync"
)

// Purged is the result of purge and remove. For a repository they remove its git data and the
// events that refer to no other hosted repository, for an author all events and repositories.
// Without a block a purged subject can return.
//
// Deletions and requests to vanish stay stored, because their events would return; they are not
// served while blocked. The error wraps [ErrStays] for such an event that is not blocked, and
// [ErrNothingToPurge] for a repository without data. After other errors the command may be
// repeated.
type Purged struct {
	Events  int `json:"events"`
	Waiting int `json:"waiting"` // number of held events in Events
	// Withheld is the number of deletions and requests to vanish that stay and are not served.
	Withheld     int                 `json:"withheld,omitempty"`
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
	acted := c.act(ctx, r.Subject)
	p, purged := c.purge(ctx, r.Subject)
	p.Events, p.Waiting = p.Events+waited, p.Waiting+waited
	if errors.Is(purged, ErrNothingToPurge) {
		if purged = fmt.Errorf("it is blocked now, but %w", purged); waited > 0 {
			purged = nil
		}
	}
	if acted != nil { // a repeated attempt may succeed after the purge
		acted = c.act(ctx, r.Subject)
	}
	return p, errors.Join(err, acted, purged)
}

func (c *Control) purge(ctx context.Context, s rules.Subject) (p Purged, err error) {
	of := &purge{Control: c, gone: make(map[graspsync.EventID]bool)}
	switch s.Kind {
	case rules.Relay:
		return p, fmt.Errorf("%w of %s", ErrNothingToPurge, s)
	case rules.Author:
		author, _ := s.PubKey()
		err = of.author(ctx, author)
	case rules.Repository:
		ref, _ := s.Ref()
		if err = of.repository(ctx, ref); err == nil && of.done.Events+len(of.done.Repositories) == 0 {
			err = fmt.Errorf("%w of %s", ErrNothingToPurge, s)
		}
	case rules.Event:
		id, perr := graspsync.ParseEventID(s.Name)
		if perr != nil {
			return p, perr
		}
		err = errors.Join(of.events(ctx, nostr.Filter{IDs: []string{s.Name}}),
			of.dismiss(ctx, func(ev graspsync.Event) bool { return ev.ID == id }), of.refs(ctx, id),
			of.staying(ctx, nostr.Filter{IDs: []string{s.Name}}))
	}
	return of.done, err
}

// ErrStays is wrapped by errors of purge for a deletion or request to vanish that is still served.
var ErrStays = errors.New("deletions and requests to vanish stay, because their events would come back; removed or blocked, they are not served")

// staying counts the matching events that stay and are not served, and returns ErrStays if one is
// served.
func (p *purge) staying(ctx context.Context, f nostr.Filter) (err error) {
	for ev, rerr := range p.cfg.Store.Events(ctx, f) {
		switch {
		case errors.Is(rerr, relaysync.ErrIncomplete):
		case rerr != nil:
			return fmt.Errorf("searching remaining events: %w", rerr)
		case !stays(ev):
		default:
			if _, is := p.cfg.Rules.Hides(ev); is {
				p.done.Withheld++
			} else {
				err = ErrStays
			}
		}
	}
	return err
}

func stays(ev graspsync.Event) bool {
	return ev.Kind == graspsync.KindDeletion || ev.Kind == graspsync.KindVanish
}

type purge struct {
	*Control
	gone map[graspsync.EventID]bool
	done Purged
}

func (p *purge) author(ctx context.Context, author graspsync.PubKey) error {
	left := make(map[graspsync.RepoRef]error) // error by repository, nil if it was removed
	repository := func(ref graspsync.RepoRef) {
		if err, tried := left[ref]; !tried || err != nil {
			left[ref] = p.repository(ctx, ref)
		}
	}
	announced := nostr.Filter{Kinds: []int{graspsync.KindAnnouncement}, Authors: []string{author.String()}}
	errs := []error{p.each(ctx, announced, func(ev graspsync.Event) error {
		a, err := nip34.ParseAnnouncement(ev)
		if err != nil {
			return nil //nolint:nilerr // it is none, and goes with what else is theirs
		}
		repository(a.Ref)
		return nil
	})}
	for _, refs := range []iter.Seq2[graspsync.RepoRef, error]{p.cfg.Repositories.Owned(ctx, author), p.cfg.Repositories.Departed(ctx, author)} {
		kept, err := listed(refs)
		errs = append(errs, err)
		for _, ref := range kept {
			repository(ref)
		}
	}
	errs = append(errs, some(slices.Collect(maps.Values(left))))
	errs = append(errs, p.events(ctx, nostr.Filter{Authors: []string{author.String()}}),
		p.dismiss(ctx, func(ev graspsync.Event) bool { return ev.PubKey == author }))
	staying := nostr.Filter{Kinds: []int{graspsync.KindDeletion, graspsync.KindVanish}, Authors: []string{author.String()}}
	if err := p.staying(ctx, staying); !errors.Is(err, ErrStays) { // an author who is not blocked keeps them
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func listed(refs iter.Seq2[graspsync.RepoRef, error]) (all []graspsync.RepoRef, err error) {
	for ref, err := range refs {
		if err != nil {
			return all, fmt.Errorf("searching events to remove: %w", err)
		}
		all = append(all, ref)
	}
	return all, nil
}

func (p *purge) events(ctx context.Context, f nostr.Filter) error {
	return p.each(ctx, f, func(ev graspsync.Event) error { return p.remove(ctx, ev) })
}

const (
	perFilter  = 100
	mostErrors = 10
)

// each calls do for each matching stored event except deletions, again after an incomplete read. Errors
// of do do not stop it.
func (p *purge) each(ctx context.Context, f nostr.Filter, do func(graspsync.Event) error) error {
	for {
		var failed []error
		var err error
		before := len(p.gone)
		for ev, rerr := range p.cfg.Store.Events(ctx, f) {
			if err = rerr; err == nil && !stays(ev) && !p.gone[ev.ID] {
				failed = append(failed, do(ev))
			}
		}
		if err != nil && !errors.Is(err, relaysync.ErrIncomplete) {
			err = fmt.Errorf("searching events to remove: %w", err)
		} else if err != nil && ctx.Err() == nil && len(p.gone) > before {
			continue
		}
		return errors.Join(err, some(failed))
	}
}

func some(errs []error) error {
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if more := len(errs) - mostErrors; more > 0 {
		errs = append(errs[:mostErrors:mostErrors], fmt.Errorf("and %d more", more))
	}
	return errors.Join(errs...)
}

// remove removes an event, after the refs of a pull request, because a repeated command needs the
// event to find them. A release may have created them in between.
func (p *purge) remove(ctx context.Context, ev graspsync.Event) error {
	pr, err := nip34.ParsePullRequest(ev)
	if err != nil {
		pr = &nip34.PullRequest{} // no pull request
	}
	if err := p.pull(ctx, ev.ID, pr.Repos); err != nil {
		return err
	}
	if err := p.cfg.Remove(ctx, ev); err != nil {
		return fmt.Errorf("removing event %s: %w", ev.ID, err)
	}
	p.gone[ev.ID] = true
	p.done.Events++
	return p.pull(ctx, ev.ID, pr.Repos)
}

func (p *purge) pull(ctx context.Context, id graspsync.EventID, in []graspsync.RepoRef) error {
	for _, ref := range in {
		err := whenUnused(ctx, func() error { return p.cfg.Purgatory.RemovePull(ctx, ref, id) })
		if err != nil {
			return fmt.Errorf("removing the ref of pull request %s from %s: %w", id, graspsync.Printable(ref.String()), err)
		}
	}
	return nil
}

// refs removes the refs of an event from all repositories, because it may no longer be stored.
func (p *purge) refs(ctx context.Context, id graspsync.EventID) error {
	all, err := listed(p.cfg.Repositories.Owned(ctx, graspsync.PubKey{}))
	errs := []error{err}
	for _, ref := range all {
		if err := p.pull(ctx, id, []graspsync.RepoRef{ref}); err != nil && len(errs) < mostErrors {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (p *purge) dismiss(ctx context.Context, which func(graspsync.Event) bool) error {
	n, err := p.cfg.Purgatory.Drop(ctx, which)
	p.done.Events, p.done.Waiting = p.done.Events+n, p.done.Waiting+n
	return err
}

// repository starts with announcement and states, which takes the repository out of service.
func (p *purge) repository(ctx context.Context, ref graspsync.RepoRef) error {
	own := nostr.Filter{
		Kinds: []int{graspsync.KindAnnouncement, graspsync.KindState}, Authors: []string{ref.Owner.String()},
		Tags: nostr.TagMap{"d": {ref.Identifier}},
	}
	errs := []error{
		p.events(ctx, own), p.dismiss(ctx, func(ev graspsync.Event) bool { return concerns(ev, ref) }), p.said(ctx, ref),
	}
	had, err := p.hasGit(ctx, ref)
	errs = append(errs, err)
	err = whenUnused(ctx, func() error { return p.cfg.Purgatory.RemoveRepository(ctx, ref) })
	if err == nil && had {
		p.done.Repositories = append(p.done.Repositories, ref)
	}
	return errors.Join(append(errs, err)...)
}

func (p *purge) hasGit(ctx context.Context, ref graspsync.RepoRef) (bool, error) {
	owned, err := listed(p.cfg.Repositories.Owned(ctx, ref.Owner))
	departed, derr := listed(p.cfg.Repositories.Departed(ctx, ref.Owner))
	return slices.Contains(owned, ref) || slices.Contains(departed, ref), errors.Join(err, derr)
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

const mostSteps = 16

// said removes the events that refer to a repository, then the events that refer to these, and so
// on.
func (p *purge) said(ctx context.Context, ref graspsync.RepoRef) error {
	next := filtersFor("aA", []string{ref.String()})
	var errs []error
	for range mostSteps {
		var ids, at []string
		for _, f := range next {
			errs = append(errs, p.each(ctx, f, func(ev graspsync.Event) error {
				belongs, err := p.belongsElsewhere(ctx, ev, ref)
				if err != nil || belongs {
					return err
				}
				if err := p.remove(ctx, ev); err != nil {
					return err
				}
				ids = append(ids, ev.ID.String())
				if a, ok := ev.Address(); ok {
					at = append(at, a.String())
				}
				return nil
			}))
		}
		if len(ids) == 0 {
			break
		}
		next = append(filtersFor("eE", ids), filtersFor("aA", at)...)
	}
	return errors.Join(errs...)
}

// belongsElsewhere reports whether an event refers to another hosted repository.
func (p *purge) belongsElsewhere(ctx context.Context, ev graspsync.Event, ref graspsync.RepoRef) (bool, error) {
	for _, a := range nip34.Addresses(ev.Event) {
		other, is := a.Repo()
		if !is || other == ref {
			continue
		}
		about, _, err := p.cfg.Purgatory.Announced(ctx, other)
		if err != nil {
			return false, err
		}
		if about != nil && p.cfg.Lists(about) {
			return true, nil
		}
	}
	return false, nil
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
