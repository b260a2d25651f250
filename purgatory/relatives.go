package purgatory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/ledger"
	"github.com/graspsync/graspsync/state"
)

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
	f := p.families.of(p.cfg.Membership, identifier, all)
	of, is := p.relay.(Related)
	if !is {
		return f, nil
	}
	asked := make(map[graspsync.PubKey]struct{})
	now := time.Now()
	for step := range nip34.MaxGenerations { // each is a question to the Store
		var ask []graspsync.PubKey
		about := func(who graspsync.PubKey) {
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
		for _, wanted := range []map[graspsync.PubKey]graspsync.PubKey{byServed, byWaiting} {
			for who := range wanted {
				about(who)
			}
		}
		if len(ask) == 0 {
			break
		}
		slices.SortFunc(ask, graspsync.PubKey.Compare)
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
		f = p.families.of(p.cfg.Membership, identifier, all)
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
	family  *nip34.Family
	served  map[graspsync.PubKey]graspsync.PubKey   // by whom
	waiting map[graspsync.PubKey]graspsync.PubKey   // there is room for whose, by one of those who want it
	by      map[graspsync.PubKey][]graspsync.PubKey // all owners of what waits who want it
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
	if w.family, err = p.family(ctx, identifier, served, waiting, relatives); err != nil {
		return w, err
	}
	w.served, _ = w.family.Wanted(nip34.Owners(served), nip34.ServedBounds())
	w.waiting, _ = w.family.Wanted(nip34.Owners(waiting), nip34.WaitingBounds())
	w.by = w.family.Wanters(nip34.Owners(waiting), nip34.WaitingBounds().Each)
	return w, nil
}

// payers returns for whom an announcement may count that waits with theirs, in the order in
// which they are asked: none if there is no room for it. First come those who list its author
// and are listed back: nobody else can come before these, or be one of them unasked.
func (w wanting) payers(a *nip34.Announcement) []graspsync.PubKey {
	if _, is := w.waiting[a.Ref.Owner]; !is {
		return nil
	}
	rank := func(owner graspsync.PubKey) int {
		of := w.family.Announcement(owner)
		switch {
		case of == nil || !slices.Contains(of.Maintainers, a.Ref.Owner):
			return 2
		case !slices.Contains(a.Maintainers, owner):
			return 1
		}
		return 0
	}
	out := slices.Clone(w.by[a.Ref.Owner])
	slices.SortStableFunc(out, func(a, b graspsync.PubKey) int { return rank(a) - rank(b) })
	return out
}

// holdRelative takes in an announcement that makes no repository ours. What somebody wants
// whose repository is served may be stored. What is wanted by those only who wait themselves
// waits with them, at the cost of one of them, and so does for a while, at the cost of its
// author, what takes the place of one that waits. e is to be held if there are payers.
func (p *Purgatory) holdRelative(ctx context.Context, e *ledger.Entry) (_ Answer, payers []graspsync.PubKey, err error) {
	a := e.Announces
	served, err := p.relay.Announcements(ctx, a.Ref.Identifier)
	if err != nil {
		return Answer{}, nil, fmt.Errorf("reading announcements: %w", err)
	}
	w, err := p.wanting(ctx, a.Ref.Identifier, served, p.heldRelatives(a.Ref.Identifier))
	if err != nil {
		return Answer{}, nil, err
	}
	if _, is := w.served[e.Author]; is {
		return Answer{Decision: Pass}, nil, nil
	}
	e.Class = ledger.Relative
	payers = w.payers(a)
	if _, leaves := p.waiting(a.Ref); leaves {
		payers = append(payers, e.Author)
	}
	if len(payers) == 0 {
		p.stats.drop("listed")
		return Answer{Refused, reasonListed}, nil, nil
	}
	return Answer{}, payers, nil
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
	p.pinRelatives(g)
	defer p.unpin(g)
	var errs []error
	for _, h := range g.relatives {
		payers := w.payers(h.announcement)
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
		case len(payers) == 0 && h.entry.For == h.entry.Author: // until its time is over
		case len(payers) == 0:
			errs = append(errs, p.forget(ctx, h.entry, Unwanted))
		case !slices.Contains(payers, h.entry.For):
			errs = append(errs, p.charge(ctx, h.entry, payers))
		}
	}
	return errors.Join(errs...)
}

// pinRelatives keeps those that were found waiting from being ended by the clock.
func (p *Purgatory) pinRelatives(g *group) {
	p.mu.Lock()
	defer p.mu.Unlock()
	g.relatives = slices.DeleteFunc(g.relatives, func(h heldRelative) bool { return !p.keepFor(g, h.entry.ID) })
}

// charge has a relative count for one of those who want it by now, for as long as it may if
// it had come just now. If none of them has room it waits no longer, unless it does so for
// its author.
func (p *Purgatory) charge(ctx context.Context, e ledger.Entry, payers []graspsync.PubKey) error {
	charged, err := p.chargeFor(ctx, e, payers)
	if err == nil && !charged && e.For != e.Author {
		err = p.forget(ctx, e, Displaced)
	}
	return err
}

func (p *Purgatory) chargeFor(ctx context.Context, e ledger.Entry, payers []graspsync.PubKey) (charged bool, err error) {
	unlock, err := p.writing.lock(ctx, e.ID)
	if err != nil {
		return false, err
	}
	defer unlock()
	p.mu.Lock()
	_, waits := p.ledger.Get(e.ID)
	e, charged = p.ledger.Charge(time.Now(), e, payers)
	if waits && charged {
		p.ledger.Reserve(e)
	}
	p.mu.Unlock()
	if !waits || !charged {
		return !waits, nil
	}
	err = p.write(ctx, e)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ledger.Unreserve(e)
	if err == nil {
		p.ledger.Put(e)
	}
	return true, err
}

// departure is what is kept of the version by which an owner took a repository from us. The
// names of its JSON fields never change their meaning.
type departure struct {
	Repo      string          `json:"repo"`
	CreatedAt nostr.Timestamp `json:"created_at"`
	ID        string          `json:"id"`
	Until     time.Time       `json:"until"`
}

// noteLeft remembers the version of a relative that waits no longer and is not stored: nobody
// brings back one by which its repository was ours.
func (p *Purgatory) noteLeft(ctx context.Context, e ledger.Entry) error {
	now := time.Now()
	until, ref := now.Add(p.cfg.fixed.Remember), e.Repos[0]
	data, err := json.Marshal(departure{ref.String(), e.Version.CreatedAt, e.Version.ID.String(), until.Round(0).UTC()})
	if err == nil {
		err = p.keep.put(ctx, keyLeft+hashed(ref), data)
	}
	switch {
	case errors.Is(err, state.ErrFull): // else nothing would ever make room
		p.stats.drop("remembered")
	case err != nil:
		return err
	}
	p.mu.Lock()
	forgotten := p.ledger.Leave(now, ref, e.Version, until)
	p.mu.Unlock()
	if err := p.forgetLeft(ctx, forgotten); err != nil {
		p.cfg.Logger.Warn("departures could not be forgotten", keyError, graspsync.Printable(err.Error()))
	}
	return nil
}

// forgetLeft drops departures that are not remembered any more.
func (p *Purgatory) forgetLeft(ctx context.Context, refs []graspsync.RepoRef) error {
	var errs []error
	for _, ref := range refs {
		errs = append(errs, p.keep.drop(ctx, keyLeft+hashed(ref)))
	}
	return errors.Join(errs...)
}

// loadLeft reads the departures that were kept.
func (p *Purgatory) loadLeft(ctx context.Context, now time.Time) error {
	return p.keep.each(ctx, keyLeft, func(key string, value []byte) error {
		var d departure
		err := json.Unmarshal(value, &d)
		ref, rerr := graspsync.ParseRepoRef(d.Repo)
		id, ierr := graspsync.ParseEventID(d.ID)
		if err = errors.Join(err, rerr, ierr); err != nil || hashed(ref) != key {
			p.stats.unreadable.Add(1)
			return p.keep.drop(ctx, keyLeft+key) // to forget it costs little
		}
		return p.forgetLeft(ctx, p.ledger.Leave(now, ref, graspsync.Stamp{CreatedAt: d.CreatedAt, ID: id}, d.Until))
	})
}
