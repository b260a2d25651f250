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

// maxOwners is up to how many owners it is looked whether they have taken from us since what
// waits, under one identifier: who did not say so is believed.
const maxOwners = 256

// family returns who has a say in the repositories of some announcements with an
// identifier: that may take those of others, whose repositories are not ours. Of these only
// those count that are listed: what else is stored is not read.
func (p *Purgatory) family(ctx context.Context, identifier string, ours []*nip34.Announcement, waiting []heldRelative) (*nip34.Family, error) {
	all := slices.Clip(ours)
	for _, h := range waiting {
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
		if step == 0 && len(ours) <= maxOwners {
			for _, a := range ours {
				asked[a.Ref.Owner] = struct{}{}
				ask = append(ask, a.Ref.Owner)
			}
		}
		wanted, _ := f.Wanted(nip34.Owners(ours), nip34.ServedBounds())
		for who := range wanted {
			if _, again := asked[who]; !again {
				asked[who] = struct{}{}
				ask = append(ask, who)
			}
		}
		if len(ask) == 0 {
			break
		}
		slices.SortFunc(ask, filters.PubKey.Compare)
		relatives, err := of.Relatives(ctx, identifier, ask)
		if err != nil {
			return nil, fmt.Errorf("reading announcements of others: %w", err)
		}
		before := len(all)
		for _, a := range relatives {
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
		if a, err := nip34.ParseAnnouncement(e.Event); err == nil {
			out = append(out, heldRelative{e, a})
		}
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
	all := slices.Clip(served)
	var owners []filters.PubKey
	for _, e := range entries {
		if a, err := nip34.ParseAnnouncement(e.Event); err == nil {
			all, owners = append(all, a), append(owners, e.Author)
		}
	}
	family, err := p.family(ctx, identifier, all, relatives)
	if err != nil {
		return w, err
	}
	w.served, _ = family.Wanted(nip34.Owners(served), nip34.ServedBounds())
	w.waiting, _ = family.Wanted(owners, nip34.WaitingBounds())
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
