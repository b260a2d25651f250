package purgatory

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// surveyor finds out which repositories with an identifier are to be looked at.
type surveyor struct {
	cfg      *Config
	report   *report
	inbox    *inbox
	findings *findings
	pending  *pendingEvents
	reader   *reader
}

// survey finds out which repositories with an identifier something is to be done about,
// and strikes off what does not wait any more. It takes no lock of a repository: what
// each of them costs is for its own look to spend.
func (su *surveyor) survey(ctx context.Context, identifier string, why refplan.Reasons) (refplan.Overview, error) {
	ctx, cancel := context.WithTimeout(ctx, su.cfg.fixed.Timeout)
	defer cancel()
	v := su.known(identifier, why) // before what it is about is read: what comes meanwhile has its own turn
	g, err := su.reader.gatherAll(ctx, identifier, why.Check)
	if err != nil {
		return refplan.Overview{}, err
	}
	v.Group = g
	var errs []error
	for _, o := range g.Over {
		if o.Entry.Class != refplan.PullRequest && !g.Ends(o) {
			errs = append(errs, su.pending.forget(ctx, o.Entry, fateOf(o.Fate)))
		}
	}
	errs = append(errs, su.reviewRelatives(ctx, g))
	found := v.Overview(su.cfg.fixed.MaxRepositories, rand.Shuffle)
	if found.Cut {
		su.report.drop("repositories")
	}
	su.findings.surveyed(identifier, found.Untouched, found.Whole, len(g.States) > 0)
	return found, errors.Join(errs...)
}

// reviewRelatives has those stored whom somebody wants by now whose repository is served,
// and ends the waiting of those whom nobody wants.
func (su *surveyor) reviewRelatives(ctx context.Context, g *refplan.Group) error {
	if len(g.Relatives) == 0 {
		return nil
	}
	served := make([]*nip34.Announcement, 0, len(g.Accepted))
	for _, a := range g.Accepted {
		served = append(served, a)
	}
	w, err := su.reader.wanting(ctx, g.Identifier, served, g.Relatives)
	if err != nil {
		return err
	}
	su.pending.pinRelatives(g)
	defer su.pending.unpin(g)
	var errs []error
	for _, h := range g.Relatives {
		payers := w.payers(h.Announces)
		_, is := w.served[h.Author]
		switch {
		case is:
			errs = append(errs, su.release(ctx, h))
		case len(payers) == 0 && h.For == h.Author: // until its time is over
		case len(payers) == 0:
			errs = append(errs, su.pending.forget(ctx, h, Unwanted))
		case !slices.Contains(payers, h.For):
			errs = append(errs, su.pending.charge(ctx, h, payers))
		}
	}
	return errors.Join(errs...)
}

// release has the relay store what waits of somebody who has a say, unless it was deleted: nobody may have told.
func (su *surveyor) release(ctx context.Context, e refplan.Entry) error {
	deleted, err := su.reader.deleted(ctx, e)
	switch {
	case err != nil:
		return err
	case deleted:
		return su.pending.forget(ctx, e, Deleted)
	}
	switch err := su.pending.save(ctx, e); {
	case errors.Is(err, ErrRefused):
		return su.pending.forget(ctx, e, NotStored)
	case errors.Is(err, errOver):
		return nil
	default:
		return err
	}
}

// known returns what is known of the repositories with an identifier before anything is read.
func (su *surveyor) known(identifier string, why refplan.Reasons) *refplan.Survey {
	v := &refplan.Survey{Why: why, Lacking: make(map[graspsync.RepoRef]bool), Stale: make(map[graspsync.RepoRef]bool)}
	var lacked map[graspsync.RepoRef]refplan.Need
	v.Touched, v.Looks, lacked = su.findings.under(identifier)
	for ref, n := range lacked {
		v.Lacking[ref] = true
		v.Stale[ref] = !su.pending.allWait(n.Entries)
	}
	return v
}
