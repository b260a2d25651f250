package purgatory

import (
	"context"
	"errors"
	"math/rand/v2"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// survey finds the repositories with an identifier that must be released, and ends the holds of
// deleted, replaced and expired events. It locks no repository.
func (p *Purgatory) survey(ctx context.Context, identifier string, why refplan.Reasons) (refplan.AffectedRepos, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.fixed.Timeout)
	defer cancel()
	// The table is read before the events, because a later event causes a survey of its own.
	v := p.table.beginSurvey(identifier, why, func(n refplan.Need) bool { return !p.pending.allWait(n.Entries) })
	g, err := p.reader.gatherAll(ctx, identifier, why)
	if err != nil {
		return refplan.AffectedRepos{}, err
	}
	v.Group = g
	var errs []error
	for _, o := range g.Over {
		if o.Entry.Class != refplan.PullRequest && !g.Ends(o) {
			errs = append(errs, p.pending.forget(ctx, o.Entry, endReasonOf(o.Reason)))
		}
	}
	errs = append(errs, p.reviewRelatives(ctx, g))
	found := v.AffectedRepos(p.cfg.fixed.MaxRepositories, rand.Shuffle)
	if found.Cut {
		p.report.drop("repositories")
	}
	p.table.endSurvey(identifier, found, len(g.States) > 0)
	return found, errors.Join(errs...)
}

// reviewRelatives stores the announcements of maintainers whom a served repository lists now, and
// ends the holds of maintainers whom no announcement lists.
func (p *Purgatory) reviewRelatives(ctx context.Context, g *refplan.Group) error {
	if len(g.Relatives) == 0 {
		return nil
	}
	served := make([]*nip34.Announcement, 0, len(g.Accepted))
	for _, a := range g.Accepted {
		served = append(served, a)
	}
	w, err := p.reader.wanting(ctx, g.Identifier, served, g.Relatives)
	if err != nil {
		return err
	}
	p.pending.pinRelatives(g)
	defer p.pending.unpin(g)
	var errs []error
	for _, h := range g.Relatives {
		payers := w.payers(h.Announces)
		_, is := w.served[h.Author]
		switch {
		case is:
			errs = append(errs, p.releaseListed(ctx, h))
		case len(payers) == 0 && h.For == h.Author: // stays held until it expires
		case len(payers) == 0:
			errs = append(errs, p.pending.forget(ctx, h, Unwanted))
		}
	}
	return errors.Join(errs...)
}

// releaseListed stores the announcement of a maintainer, unless the relay has a deletion of it,
// which may not have been reported yet.
func (p *Purgatory) releaseListed(ctx context.Context, e refplan.Entry) error {
	deleted, err := p.reader.deleted(ctx, e)
	switch {
	case err != nil:
		return err
	case deleted:
		return p.pending.forget(ctx, e, Deleted)
	}
	switch err := p.pending.save(ctx, e); {
	case errors.Is(err, ErrRefused):
		return p.pending.forget(ctx, e, NotStored)
	case errors.Is(err, errOver):
		return nil
	default:
		return err
	}
}
