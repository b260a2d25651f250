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
// Deletions and requests to vanish stay, because the deleted events would be fetched again, and are
// not served while blocked. The error wraps [ErrStillServed] for one that is not blocked, and
// [ErrNothingToPurge] for a repository without data.
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
	held, err := c.dropBlocked(ctx)
	err = errors.Join(err, c.applyRules(ctx, r.Subject))
	p, purgeErr := c.purge(ctx, r.Subject)
	p.Events, p.Waiting = p.Events+held, p.Waiting+held
	if errors.Is(purgeErr, ErrNothingToPurge) {
		if purgeErr = fmt.Errorf("it is blocked now, but %w", purgeErr); held > 0 {
			purgeErr = nil
		}
	}
	return p, errors.Join(err, purgeErr)
}

// ErrStillServed means that a purged event is still served.
var ErrStillServed = errors.New("deletions and requests to vanish stay, because their events would come back; removed or blocked, they are not served")

func (c *Control) purge(ctx context.Context, s rules.Subject) (Purged, error) {
	p := &purger{Control: c, removed: make(map[graspsync.EventID]bool)}
	switch s.Kind {
	case rules.Relay:
		p.addError(fmt.Errorf("%w of %s", ErrNothingToPurge, s))
	case rules.Author:
		author, _ := s.PubKey()
		p.purgeAuthor(ctx, author)
	case rules.Repository:
		ref, _ := s.Ref()
		if p.purgeRepository(ctx, ref); len(p.errs)+p.result.Events+len(p.result.Repositories) == 0 {
			p.addError(fmt.Errorf("%w of %s", ErrNothingToPurge, s))
		}
	case rules.Event:
		p.purgeEvent(ctx, s.Name)
	}
	return p.result, errors.Join(p.errs...)
}

func isTombstone(ev graspsync.Event) bool {
	return ev.Kind == graspsync.KindDeletion || ev.Kind == graspsync.KindVanish
}

type purger struct {
	*Control
	removed map[graspsync.EventID]bool
	result  Purged
	errs    []error // the first ones; an error does not stop the purge
}

const maxErrors = 10

func (p *purger) addError(err error) {
	if err != nil && len(p.errs) < maxErrors {
		p.errs = append(p.errs, err)
	}
}

func (p *purger) purgeEvent(ctx context.Context, id string) {
	p.eachStored(ctx, nostr.Filter{IDs: []string{id}}, func(ev graspsync.Event) {
		if _, hidden := p.cfg.Rules.ServeBlock(ev); isTombstone(ev) && !hidden {
			p.addError(ErrStillServed)
		}
		p.removeEvent(ctx, ev)
	})
	p.dropHeld(ctx, func(ev graspsync.Event) bool { return ev.Event.ID == id })
	// The event may no longer be stored, so its refs are removed from all repositories.
	pullRequest, err := graspsync.ParseEventID(id)
	p.addError(err)
	for ref, err := range p.cfg.Repositories.Owned(ctx, graspsync.PubKey{}) {
		if p.addError(err); err == nil {
			p.removePullRefs(ctx, pullRequest, ref)
		}
	}
}

func (p *purger) purgeAuthor(ctx context.Context, author graspsync.PubKey) {
	refs := p.repositories(ctx, author)
	announced := nostr.Filter{Kinds: []int{graspsync.KindAnnouncement}, Authors: []string{author.String()}}
	p.eachStored(ctx, announced, func(ev graspsync.Event) {
		if a, err := nip34.ParseAnnouncement(ev); err == nil {
			refs[a.Ref] = true
		}
	})
	for ref := range refs {
		p.purgeRepository(ctx, ref)
	}
	p.removeMatching(ctx, nostr.Filter{Authors: []string{author.String()}})
	p.dropHeld(ctx, func(ev graspsync.Event) bool { return ev.PubKey == author })
}

func (p *purger) repositories(ctx context.Context, owner graspsync.PubKey) map[graspsync.RepoRef]bool {
	all := make(map[graspsync.RepoRef]bool)
	for _, list := range []iter.Seq2[graspsync.RepoRef, error]{p.cfg.Repositories.Owned(ctx, owner), p.cfg.Repositories.Departed(ctx, owner)} {
		for ref, err := range list {
			if p.addError(err); err == nil {
				all[ref] = true
			}
		}
	}
	return all
}

func (p *purger) removeMatching(ctx context.Context, f nostr.Filter) {
	p.eachStored(ctx, f, func(ev graspsync.Event) { p.removeEvent(ctx, ev) })
}

// eachStored calls do for each matching stored event. It repeats incomplete reads while events are
// removed.
func (p *purger) eachStored(ctx context.Context, f nostr.Filter, do func(graspsync.Event)) {
	for {
		before := len(p.removed)
		var err error
		for ev, rerr := range p.cfg.Store.Events(ctx, f) {
			if err = rerr; err == nil && !p.removed[ev.ID] {
				do(ev)
			}
		}
		if !errors.Is(err, relaysync.ErrIncomplete) || ctx.Err() != nil || len(p.removed) == before {
			p.addError(err)
			return
		}
	}
}

// removeEvent removes an event unless it is a tombstone. The refs of a pull request are removed first,
// because a repeated command could not find them, and again later, because a release may create refs.
func (p *purger) removeEvent(ctx context.Context, ev graspsync.Event) bool {
	if isTombstone(ev) {
		return false
	}
	var repos []graspsync.RepoRef
	if pr, err := nip34.ParsePullRequest(ev); err == nil {
		repos = pr.Repos
	}
	if !p.removePullRefs(ctx, ev.ID, repos...) {
		return false
	}
	if err := p.cfg.Remove(ctx, ev); err != nil {
		p.addError(fmt.Errorf("removing event %s: %w", ev.ID, err))
		return false
	}
	p.removed[ev.ID] = true
	p.result.Events++
	p.removePullRefs(ctx, ev.ID, repos...)
	return true
}

func (p *purger) removePullRefs(ctx context.Context, id graspsync.EventID, in ...graspsync.RepoRef) bool {
	for _, ref := range in {
		err := whenUnused(ctx, func() error { return p.cfg.Purgatory.RemovePull(ctx, ref, id) })
		if err != nil {
			p.addError(fmt.Errorf("removing the ref of pull request %s from %s: %w", id, graspsync.Printable(ref.String()), err))
			return false
		}
	}
	return true
}

func (p *purger) dropHeld(ctx context.Context, which func(graspsync.Event) bool) {
	n, err := p.cfg.Purgatory.Drop(ctx, which)
	p.result.Events, p.result.Waiting = p.result.Events+n, p.result.Waiting+n
	p.addError(err)
}

// purgeRepository starts with announcement and states, which ends the service.
func (p *purger) purgeRepository(ctx context.Context, ref graspsync.RepoRef) {
	p.removeMatching(ctx, nostr.Filter{
		Kinds: []int{graspsync.KindAnnouncement, graspsync.KindState}, Authors: []string{ref.Owner.String()},
		Tags: nostr.TagMap{"d": {ref.Identifier}},
	})
	p.dropHeld(ctx, func(ev graspsync.Event) bool { return concerns(ev, ref) })
	p.removeReferences(ctx, ref)
	hasGit := p.repositories(ctx, ref.Owner)[ref]
	err := whenUnused(ctx, func() error { return p.cfg.Purgatory.RemoveRepository(ctx, ref) })
	if p.addError(err); err == nil && hasGit {
		p.result.Repositories = append(p.result.Repositories, ref)
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
	maxHops         = 16
	valuesPerFilter = 100
)

// removeReferences removes the events that refer to a repository, directly or over fewer than
// maxHops other events.
func (p *purger) removeReferences(ctx context.Context, ref graspsync.RepoRef) {
	next := filtersFor("aAq", []string{ref.String()})
	for range maxHops {
		var ids, at []string
		for _, f := range next {
			p.eachStored(ctx, f, func(ev graspsync.Event) {
				if p.belongsElsewhere(ctx, ev, ref) || !p.removeEvent(ctx, ev) {
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
func (p *purger) belongsElsewhere(ctx context.Context, ev graspsync.Event, ref graspsync.RepoRef) bool {
	for _, a := range nip34.Addresses(ev.Event) {
		other, is := a.Repo()
		if !is || other == ref {
			continue
		}
		about, _, err := p.cfg.Purgatory.Announced(ctx, other)
		if p.addError(err); err != nil || about != nil && p.cfg.Lists(about) {
			return true
		}
	}
	return false
}

func filtersFor(tags string, values []string) (out []nostr.Filter) {
	for some := range slices.Chunk(values, valuesPerFilter) {
		for _, tag := range tags {
			out = append(out, nostr.Filter{Tags: nostr.TagMap{string(tag): some}})
		}
	}
	return out
}

const (
	maxWaitInUse = 30 * time.Second // maximum wait for a repository in use
	retryEvery   = 100 * time.Millisecond
)

func whenUnused(ctx context.Context, do func() error) error {
	by := time.Now().Add(maxWaitInUse)
	for {
		err := do()
		if !errors.Is(err, purgatory.ErrInUse) || time.Now().After(by) {
			return err
		}
		select {
		case <-time.After(retryEvery):
		case <-ctx.Done():
			return err
		}
	}
}
