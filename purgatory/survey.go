package purgatory

import (
	"context"
	"errors"
	"math/rand/v2"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// survey finds the repositories with an identifier that must be released, and ends the holds of
// deleted, replaced and expired events. It locks no repository.
func (p *Purgatory) survey(ctx context.Context, identifier string, why refplan.Reasons) (refs []graspsync.RepoRef, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.fixed.Timeout)
	defer cancel()
	lacking := p.table.lackingUnder(identifier) // before the events are read, because a later event causes a survey
	g, err := p.announced(ctx, identifier, why)
	if err != nil {
		return nil, err
	}
	if err = p.sortAll(ctx, g, p.pending.named(identifier, ofClass(refplan.State))); err != nil {
		return nil, err
	}
	var errs []error
	for _, o := range g.Over {
		if !g.Ends(o) {
			errs = append(errs, p.pending.forget(ctx, o.Entry, o.Reason))
		}
	}
	errs = append(errs, p.reviewRelatives(ctx, g))
	refs, cut := g.Affected(lacking, maxRepositories, rand.Shuffle)
	if cut {
		p.report.drop("repositories")
	}
	return refs, errors.Join(errs...)
}

// reviewRelatives stores those whom a served repository lists now, and ends the holds of those whom
// no announcement lists.
func (p *Purgatory) reviewRelatives(ctx context.Context, g *refplan.Group) error {
	if len(g.Relatives) == 0 {
		return nil
	}
	w, err := p.listings(ctx, g.Identifier)
	if err != nil {
		return err
	}
	var errs []error
	for _, h := range g.Relatives {
		_, listed := w.waiting[h.Author]
		_, is := w.served[h.Author]
		switch {
		case is:
			errs = append(errs, p.releaseListed(ctx, h))
		case !listed && !h.Replaces: // else it stays held until it expires
			errs = append(errs, p.pending.forget(ctx, h, Unwanted))
		}
	}
	return errors.Join(errs...)
}

// releaseListed stores the announcement of a maintainer, unless it is deleted.
func (p *Purgatory) releaseListed(ctx context.Context, e refplan.Entry) error {
	deleted, err := p.deleted(ctx, e)
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
