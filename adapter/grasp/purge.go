package grasp

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/rules"
)

// Purged is what was removed.
type Purged struct {
	Events       int                 `json:"events"`
	Waiting      int                 `json:"waiting"` // of these, for git data
	Repositories []graspsync.RepoRef `json:"repositories,omitempty"`
}

// Purge removes what is here of a subject, at once and for good: an event; a repository with its git
// data and all that was said about it and nothing else of ours; an author's events and repositories.
// Deletions stay. Without a rule that blocks it, it may come again when a client submits it, or when
// it is forgotten that it was here: see Remove. The error says what is left; the call may be
// repeated.
func (c Control) Purge(ctx context.Context, s rules.Subject) (Purged, error) {
	p, err := c.purge(ctx, s)
	return p, c.done("purge", err, string(s.Kind), s.Name)
}

// Remove blocks a subject and purges it.
func (c Control) Remove(ctx context.Context, s rules.Subject, reason string) (p Purged, err error) {
	if s.Kind == rules.Relay {
		return p, fmt.Errorf("%w: %s", ErrNothingToPurge, s)
	}
	if err = c.set(ctx, rules.Rule{Action: rules.Block, Subject: s, Reason: reason, By: c.by}); err == nil {
		p, err = c.purge(ctx, s)
	}
	return p, c.done("remove", err, string(s.Kind), s.Name, reason)
}

func (c Control) purge(ctx context.Context, s rules.Subject) (p Purged, err error) {
	of := &purge{control: c.control, gone: make(map[graspsync.EventID]bool)}
	switch s.Kind {
	case rules.Relay:
		return p, fmt.Errorf("%w: %s", ErrNothingToPurge, s)
	case rules.Author:
		author, _ := s.PubKey()
		err = of.author(ctx, author)
	case rules.Repository:
		ref, _ := s.Ref()
		err = of.repository(ctx, ref)
	case rules.Event:
		id, perr := graspsync.ParseEventID(s.Name)
		if perr != nil {
			return p, perr
		}
		err = of.events(ctx, nostr.Filter{IDs: []string{s.Name}})
		if err == nil {
			err = of.dismiss(ctx, func(ev graspsync.Event) bool { return ev.ID == id })
		}
	}
	return of.done, err
}

// purge is one that is under way.
type purge struct {
	*control
	gone map[graspsync.EventID]bool
	done Purged
}

// removeAtOnce is how many events are read before they are removed: a store is not to be changed
// while it is read.
const removeAtOnce = 1_000

func (p *purge) author(ctx context.Context, author graspsync.PubKey) error {
	owned, err := p.find(ctx, nostr.Filter{Kinds: []int{graspsync.KindAnnouncement}, Authors: []string{author.String()}}, nil)
	if err != nil {
		return err
	}
	var errs []error
	for _, ev := range owned {
		if a, err := nip34.ParseAnnouncement(ev); err == nil {
			errs = append(errs, p.repository(ctx, a.Ref))
		}
	}
	errs = append(errs, p.events(ctx, nostr.Filter{Authors: []string{author.String()}}),
		p.dismiss(ctx, func(ev graspsync.Event) bool { return ev.PubKey == author }))
	return errors.Join(errs...)
}

// events removes what matches, deletions aside.
func (p *purge) events(ctx context.Context, f nostr.Filter) error {
	for {
		some, err := p.find(ctx, f, func(ev graspsync.Event) bool { return !p.gone[ev.ID] })
		if err != nil {
			return err
		}
		if len(some) == 0 {
			return nil
		}
		if err := p.remove(ctx, some); err != nil {
			return err
		}
	}
}

// find returns stored events, at most as many as are removed at once.
func (p *purge) find(ctx context.Context, f nostr.Filter, also func(graspsync.Event) bool) (out []graspsync.Event, err error) {
	for ev, err := range p.sync.Store().Events(ctx, f) {
		if err != nil {
			return nil, fmt.Errorf("looking for what is to go: %w", err)
		}
		if ev.Kind == graspsync.KindDeletion || ev.Kind == graspsync.KindVanish || also != nil && !also(ev) {
			continue
		}
		if out = append(out, ev); len(out) == removeAtOnce {
			break
		}
	}
	return out, nil
}

func (p *purge) remove(ctx context.Context, events []graspsync.Event) error {
	for _, ev := range events {
		p.gone[ev.ID] = true
		if err := p.sync.Remove(ctx, ev); err != nil {
			return fmt.Errorf("removing event %s: %w", ev.ID, err)
		}
		p.done.Events++
		if pr, err := nip34.ParsePullRequest(ev); err == nil {
			if err := p.pull(ctx, pr); err != nil {
				return err
			}
		}
	}
	return nil
}

// pull removes the refs of a pull request.
func (p *purge) pull(ctx context.Context, pr *nip34.PullRequest) error {
	for _, ref := range pr.Repos {
		err := whileInUse(ctx, func() error { return p.purgatory.RemovePull(ctx, ref, pr.ID) })
		if err != nil {
			return fmt.Errorf("removing the ref of pull request %s: %w", pr.ID, err)
		}
	}
	return nil
}

func (p *purge) dismiss(ctx context.Context, which func(graspsync.Event) bool) error {
	n, err := p.purgatory.Dismiss(ctx, which)
	p.done.Events, p.done.Waiting = p.done.Events+n, p.done.Waiting+n
	return err
}

// repository removes a repository and what is about it. Its announcement and its states go first: then
// it is out of service.
func (p *purge) repository(ctx context.Context, ref graspsync.RepoRef) error {
	own := nostr.Filter{
		Kinds: []int{graspsync.KindAnnouncement, graspsync.KindState}, Authors: []string{ref.Owner.String()},
		Tags: nostr.TagMap{"d": {ref.Identifier}},
	}
	err := errors.Join(p.events(ctx, own), p.dismiss(ctx, func(ev graspsync.Event) bool { return concerns(ev, ref) }))
	if err != nil {
		return err
	}
	if err := p.said(ctx, ref); err != nil {
		return err
	}
	if err := whileInUse(ctx, func() error { return p.purgatory.RemoveRepository(ctx, ref) }); err != nil {
		return err
	}
	p.done.Repositories = append(p.done.Repositories, ref)
	return nil
}

// concerns reports whether an event that waits is about a repository, and no other.
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

// mostSteps is how far what is said about something is followed; what is stored has come here by at
// most so many steps.
const mostSteps = 16

// said removes what was said about a repository: what names it, what names that, and so on, unless it
// names something that stays as well.
func (p *purge) said(ctx context.Context, ref graspsync.RepoRef) error {
	names := []string{ref.String()}
	next := filtersFor("aAq", names)
	for range mostSteps {
		var found []graspsync.Event
		for _, f := range next {
			some, err := p.goes(ctx, f, ref)
			if err != nil {
				return err
			}
			found = append(found, some...)
		}
		if len(found) == 0 {
			return nil
		}
		var ids, at []string
		for _, ev := range found {
			ids = append(ids, ev.ID.String())
			if a, ok := ev.Address(); ok {
				at = append(at, a.String())
			}
		}
		next = append(filtersFor("eEq", ids), filtersFor("aAq", at)...)
	}
	return nil
}

// goes removes what matches and names nothing that stays, and returns it.
func (p *purge) goes(ctx context.Context, f nostr.Filter, ref graspsync.RepoRef) (out []graspsync.Event, err error) {
	for {
		some, err := p.find(ctx, f, func(ev graspsync.Event) bool { return !p.gone[ev.ID] })
		if err != nil || len(some) == 0 {
			return out, err
		}
		var stays []graspsync.Event
		for _, ev := range some {
			belongs, err := p.belongsElsewhere(ctx, ev, ref)
			if err != nil {
				return out, err
			}
			if belongs {
				stays = append(stays, ev)
				continue
			}
			if err := p.remove(ctx, []graspsync.Event{ev}); err != nil {
				return out, err
			}
			out = append(out, ev)
		}
		if len(some) < removeAtOnce {
			return out, nil
		}
		if len(stays) == removeAtOnce { // else the others would never be found
			return out, fmt.Errorf("%d events that name %s belong to others as well: not all was looked at", len(stays), ref)
		}
	}
}

// belongsElsewhere reports whether an event names another repository of ours, or something that is
// stored and stays.
func (p *purge) belongsElsewhere(ctx context.Context, ev graspsync.Event, ref graspsync.RepoRef) (bool, error) {
	for _, a := range nip34.Addresses(ev.Event) {
		other, is := a.Repo()
		if !is || other == ref {
			continue
		}
		about, _, err := p.purgatory.Announced(ctx, other)
		if err != nil {
			return false, err
		}
		if about != nil && p.lists(about) {
			return true, nil
		}
	}
	var others []graspsync.EventID
	for _, id := range nip34.EventRefs(ev.Event) {
		if !p.gone[id] && id != ev.ID {
			others = append(others, id)
		}
	}
	if len(others) == 0 {
		return false, nil
	}
	return p.anyElsewhere(ctx, others, ref)
}

// anyElsewhere reports whether one of some events is stored that is not about a repository.
func (p *purge) anyElsewhere(ctx context.Context, ids []graspsync.EventID, ref graspsync.RepoRef) (bool, error) {
	f := nostr.Filter{}
	for _, id := range ids {
		f.IDs = append(f.IDs, id.String())
	}
	for ev, err := range p.sync.Store().Events(ctx, f) {
		if err != nil {
			return false, fmt.Errorf("looking for what is to go: %w", err)
		}
		if !concerns(ev, ref) && len(nip34.Addresses(ev.Event)) > 0 {
			return true, nil
		}
	}
	return false, nil
}

// perFilter is how many values a filter has.
const perFilter = 100

func filtersFor(tags string, values []string) (out []nostr.Filter) {
	for some := range slices.Chunk(values, perFilter) {
		for _, tag := range tags {
			out = append(out, nostr.Filter{Tags: nostr.TagMap{string(tag): some}})
		}
	}
	return out
}
