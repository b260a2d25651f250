package purgatory

import (
	"context"
	"errors"
	"maps"
	"math/rand/v2"
	"slices"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/ledger"
	"github.com/graspsync/graspsync/purgatory/internal/resolve"
)

// surveyor finds out which repositories with an identifier are to be looked at.
type surveyor struct {
	cfg      *Config
	report   *report
	relay    Relay
	inbox    *inbox
	findings *findings
	entries  *entries
	reader   *reader
}

// survey finds out which repositories with an identifier something is to be done about,
// and strikes off what does not wait any more. It takes no lock of a repository: what
// each of them costs is for its own look to spend.
func (su *surveyor) survey(ctx context.Context, identifier string, why causes) (overview, error) {
	ctx, cancel := context.WithTimeout(ctx, su.cfg.fixed.Timeout)
	defer cancel()
	v := su.viewOf(identifier, why) // before what it is about is read: what comes meanwhile has its own turn
	g, err := su.reader.gatherAll(ctx, identifier)
	if err != nil {
		return overview{}, err
	}
	v.Group = g
	var errs []error
	for _, o := range g.Over {
		if o.Entry.Class != ledger.PullRequest && !g.Ends(o) {
			errs = append(errs, su.entries.forget(ctx, o.Entry, fateOf(o.Fate)))
		}
	}
	errs = append(errs, su.settleRelatives(ctx, g))
	return su.noteView(v), errors.Join(errs...)
}

// overview is what a survey has found.
type overview struct {
	concerned []graspsync.RepoRef // that are to be looked at
	whole     []graspsync.RepoRef // that lack nothing any more, since nobody says that they should have it
}

// view is what one survey goes by.
type view struct {
	*resolve.Group
	why     causes
	knows   bool                           // it can be told whose event is stored
	touched map[graspsync.RepoRef]uint64   // by their numbers
	lacking map[graspsync.RepoRef]bool     // that data is hunted for
	stale   map[graspsync.RepoRef]bool     // of these, for events that do not wait any more
	looks   map[graspsync.RepoRef]struct{} // that are looked at, so that it is not known what they lack
}

// settleRelatives has those stored whom somebody wants by now whose repository is served,
// and ends the waiting of those whom nobody wants.
func (su *surveyor) settleRelatives(ctx context.Context, g *resolve.Group) error {
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
	su.entries.pinRelatives(g)
	defer su.entries.unpin(g)
	var errs []error
	for _, h := range g.Relatives {
		payers := w.payers(h.Announcement)
		_, is := w.served[h.Entry.Author]
		switch {
		case is:
			err := su.entries.save(ctx, h.Entry)
			switch {
			case errors.Is(err, ErrRefused):
				err = su.entries.forget(ctx, h.Entry, NotStored)
			case errors.Is(err, errOver):
				err = nil
			}
			errs = append(errs, err)
		case len(payers) == 0 && h.Entry.For == h.Entry.Author: // until its time is over
		case len(payers) == 0:
			errs = append(errs, su.entries.forget(ctx, h.Entry, Unwanted))
		case !slices.Contains(payers, h.Entry.For):
			errs = append(errs, su.entries.charge(ctx, h.Entry, payers))
		}
	}
	return errors.Join(errs...)
}

func (su *surveyor) viewOf(identifier string, why causes) *view {
	v := &view{why: why, lacking: make(map[graspsync.RepoRef]bool), stale: make(map[graspsync.RepoRef]bool)}
	_, v.knows = su.relay.(Knower)
	var lacked map[graspsync.RepoRef]need
	v.touched, v.looks, lacked = su.findings.under(identifier)
	for ref, n := range lacked {
		v.lacking[ref] = true
		v.stale[ref] = !su.entries.allWait(n.entries)
	}
	return v
}

// noteView returns what is to be looked at, and remembers that the rest needs no look.
func (su *surveyor) noteView(v *view) (out overview) {
	most := su.cfg.fixed.MaxRepositories
	gone := make(map[graspsync.RepoRef]bool) // nobody announces them any more
	for _, o := range v.Over {
		if v.Ends(o) {
			gone[o.Entry.Repos[0]] = true
		}
	}
	for ref := range v.why.left {
		gone[ref] = true
	}
	var needed []*resolve.Repository
	for ref := range v.Ours() {
		delete(gone, ref)
		switch r := v.Repository(ref); {
		case v.concerns(r):
			needed = append(needed, r)
		case v.lacking[ref] && !v.serves(r):
			out.whole = append(out.whole, ref)
		}
	}
	cut := len(needed) > most
	if cut {
		su.report.drop("repositories")
		rand.Shuffle(len(needed), func(i, j int) { needed[i], needed[j] = needed[j], needed[i] })
		slices.SortStableFunc(needed, func(a, b *resolve.Repository) int { return v.Wrote(b) - v.Wrote(a) })
		needed = needed[:most]
	}
	for _, r := range needed {
		out.concerned = append(out.concerned, r.Ref)
	}
	out.concerned = slices.AppendSeq(out.concerned, maps.Keys(gone))
	slices.SortFunc(out.concerned, graspsync.RepoRef.Compare)
	for ref := range v.lacking {
		if !v.IsOurs(ref) && !gone[ref] {
			out.whole = append(out.whole, ref)
		}
	}
	left := maps.Clone(v.touched)
	maps.DeleteFunc(left, func(ref graspsync.RepoRef, _ uint64) bool { return cut || slices.Contains(out.concerned, ref) })
	su.findings.surveyed(v.Identifier, left, out.whole, len(v.States) > 0)
	return out
}

// concerns reports whether something is to be done about a repository that what we were
// told is about: something waits for it, it lacks something, or it was touched. The others
// cost nothing, however many there are.
func (v *view) concerns(r *resolve.Repository) bool {
	_, touched := v.touched[r.Ref]
	_, looks := v.looks[r.Ref]
	touched = touched || looks || v.lacking[r.Ref] || v.answered(r.Ref)
	_, waits := v.Waiting[r.Ref]
	stored := v.NewestStored(r) != nil
	if v.why.check {
		return v.knows || stored || v.WaitsFor(r)
	}
	return v.affects(r) && (v.WaitsFor(r) || touched && (waits || stored))
}

// serves reports whether anything says what a repository should have.
func (v *view) serves(r *resolve.Repository) bool {
	_, waits := v.Waiting[r.Ref]
	return waits || v.WaitsFor(r) || v.NewestStored(r) != nil
}

// affects reports whether what we were told is about a repository.
func (v *view) affects(r *resolve.Repository) bool {
	if _, touched := v.touched[r.Ref]; touched || v.stale[r.Ref] || v.answered(r.Ref) {
		return true
	}
	for member := range r.Members {
		if _, told := v.why.owners[member]; told {
			return true
		}
	}
	for ref := range v.why.gained {
		_, looks := v.looks[r.Ref]
		if ref != r.Ref && (looks || v.lacking[r.Ref]) && (r.Related(v.Repository(ref)) || v.PulledWith(r.Ref, ref)) {
			return true
		}
	}
	return slices.ContainsFunc(v.States, func(h resolve.State) bool {
		_, fresh := v.why.fresh[h.Entry.ID]
		return fresh && r.IsMember(h.State.Ref.Owner)
	}) || slices.ContainsFunc(v.Pulls, func(h resolve.Pull) bool {
		_, fresh := v.why.fresh[h.Entry.ID]
		return fresh && slices.Contains(h.Pull.Repos, r.Ref)
	}) || slices.ContainsFunc(v.Over, func(o resolve.Ended) bool { return slices.Contains(o.Entry.Repos, r.Ref) })
}

// answered reports whether a repository may have gained or lost a maintainer by what one
// of those that are listed said.
func (v *view) answered(ref graspsync.RepoRef) bool {
	if len(v.why.owners) == 0 {
		return false
	}
	listed, _ := v.Family.Wanted([]graspsync.PubKey{ref.Owner}, nip34.ServedBounds())
	for owner := range v.why.owners {
		if _, ok := listed[owner]; ok {
			return true
		}
	}
	return false
}
