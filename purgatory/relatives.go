package purgatory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/ledger"
)

// maxGenerations is through how many others somebody is listed at most whose announcement is
// read: each is a question to the Store.
const maxGenerations = 16

// known is how much of those is read whom some owners list: each has their own, whatever
// the others list. Bounds that are shared are for what is taken in: free keys must not have
// the announcement of a maintainer forgotten that is here.
func known(most nip34.Bounds) nip34.Bounds {
	most.Sure, most.Each = most.Each, nip34.MaxMaintainers
	return most
}

// family returns who has a say in the repositories of some announcements with an
// identifier, of which some are served: that may take those of others, whose repositories
// are not ours. Of these only those count that are listed: what else is stored is not read.
func (p *Purgatory) family(ctx context.Context, identifier string, served, waiting []*nip34.Announcement, relatives []heldRelative) (*nip34.Family, error) {
	all := slices.Concat(served, waiting)
	ours, waits := nip34.Owners(served), nip34.Owners(waiting)
	for _, h := range relatives {
		all = append(all, h.announcement)
	}
	f := p.cfg.Membership.Family(identifier, all)
	of, is := p.relay.(Related)
	if !is {
		return f, nil
	}
	asked := make(map[filters.PubKey]struct{})
	now := time.Now()
	for step := range maxGenerations {
		var ask []filters.PubKey
		about := func(who filters.PubKey) {
			if _, again := asked[who]; !again {
				asked[who] = struct{}{}
				ask = append(ask, who)
			}
		}
		if step == 0 { // they may have taken theirs from us
			for _, who := range slices.Concat(ours, waits) {
				about(who)
			}
		}
		byServed, _ := f.Wanted(ours, known(nip34.ServedBounds()))
		byWaiting, _ := f.Wanted(waits, known(nip34.WaitingBounds()))
		for _, wanted := range []map[filters.PubKey]filters.PubKey{byServed, byWaiting} {
			for who := range wanted {
				about(who)
			}
		}
		if len(ask) == 0 {
			break
		}
		slices.SortFunc(ask, filters.PubKey.Compare)
		stored, err := of.Relatives(ctx, identifier, ask)
		if err != nil {
			return nil, fmt.Errorf("reading announcements of others: %w", err)
		}
		before := len(all)
		for _, a := range stored {
			if !hasExpired(a.Event, now) {
				all = append(all, a)
			}
		}
		if len(all) == before {
			break
		}
		f = p.cfg.Membership.Family(identifier, all)
	}
	return f, nil
}

// heldRelatives returns the announcements of those who are listed by what waits.
func (p *Purgatory) heldRelatives(identifier string) (out []heldRelative) {
	p.mu.Lock()
	entries := p.ledger.Relatives(identifier)
	p.mu.Unlock()
	for _, e := range entries {
		out = append(out, heldRelative{e, e.Announces})
	}
	return out
}

// wanting is who wants announcements of others under an identifier.
type wanting struct {
	served, waiting map[filters.PubKey]filters.PubKey // by whom
}

// wanting returns that. What has expired softly wants what it did: it may be revived.
func (p *Purgatory) wanting(ctx context.Context, identifier string, served []*nip34.Announcement, relatives []heldRelative) (w wanting, err error) {
	p.mu.Lock()
	entries := p.ledger.Announcements(identifier, true)
	p.mu.Unlock()
	var waiting []*nip34.Announcement
	for _, e := range entries {
		waiting = append(waiting, e.Announces)
	}
	family, err := p.family(ctx, identifier, served, waiting, relatives)
	if err != nil {
		return w, err
	}
	w.served, _ = family.Wanted(nip34.Owners(served), nip34.ServedBounds())
	w.waiting, _ = family.Wanted(nip34.Owners(waiting), nip34.WaitingBounds())
	return w, nil
}

// holdRelative takes in an announcement that makes no repository ours. What somebody wants
// whose repository is served may be stored. What is wanted by those only who wait themselves
// waits with them, at the cost of one of them, and so does for a while, at the cost of its
// author, what takes the place of one that waits. e is to be held if held is true.
func (p *Purgatory) holdRelative(ctx context.Context, e *ledger.Entry) (_ Answer, hold bool, err error) {
	identifier := e.Repos[0].Identifier
	served, err := p.relay.Announcements(ctx, identifier)
	if err != nil {
		return Answer{}, false, fmt.Errorf("reading announcements: %w", err)
	}
	relatives := p.heldRelatives(identifier)
	w, err := p.wanting(ctx, identifier, served, relatives)
	if err != nil {
		return Answer{}, false, err
	}
	if _, is := w.served[e.Author]; is {
		return Answer{Decision: Pass}, false, nil
	}
	e.Class = ledger.Relative
	by, is := w.waiting[e.Author]
	_, leaves := p.waiting(e.Repos[0])
	switch {
	case is:
		e.For = by
	case leaves:
		e.For = e.Author
	default:
		p.stats.drop("listed")
		return Answer{Refused, reasonListed}, false, nil
	}
	return Answer{}, true, nil
}

// settleRelatives has those stored whom somebody wants by now whose repository is served,
// and ends the waiting of those whom nobody wants.
func (p *Purgatory) settleRelatives(ctx context.Context, g *group) error {
	if len(g.relatives) == 0 {
		return nil
	}
	served := make([]*nip34.Announcement, 0, len(g.accepted))
	for _, a := range g.accepted {
		served = append(served, a)
	}
	w, err := p.wanting(ctx, g.identifier, served, g.relatives)
	if err != nil {
		return err
	}
	var errs []error
	for _, h := range g.relatives {
		by, waits := w.waiting[h.entry.Author]
		_, is := w.served[h.entry.Author]
		switch {
		case is:
			err := p.save(ctx, h.entry)
			switch {
			case errors.Is(err, ErrRefused):
				err = p.forget(ctx, h.entry, NotStored)
			case errors.Is(err, errOver):
				err = nil
			}
			errs = append(errs, err)
		case h.entry.For == h.entry.Author: // until its time is over
		case !waits:
			errs = append(errs, p.forget(ctx, h.entry, Unwanted))
		case by != h.entry.For:
			errs = append(errs, p.charge(ctx, h.entry, by))
		}
	}
	return errors.Join(errs...)
}

// charge has a relative count for somebody else who wants it.
func (p *Purgatory) charge(ctx context.Context, e ledger.Entry, to filters.PubKey) error {
	unlock, err := p.writing.lock(ctx, e.ID)
	if err != nil {
		return err
	}
	defer unlock()
	p.mu.Lock()
	_, waits := p.ledger.Get(e.ID)
	p.mu.Unlock()
	if !waits {
		return nil
	}
	e.For = to
	if err := p.write(ctx, e); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ledger.Put(e)
	return nil
}
