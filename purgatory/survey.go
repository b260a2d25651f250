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
)

// overview is what a survey has found.
type overview struct {
	concerned []graspsync.RepoRef // that are to be looked at
	whole     []graspsync.RepoRef // that lack nothing any more, since nobody says that they should have it
}

// survey finds out which repositories with an identifier something is to be done about,
// and strikes off what does not wait any more. It takes no lock of a repository: what
// each of them costs is for its own look to spend.
func (p *Purgatory) survey(ctx context.Context, identifier string, why causes) (overview, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.fixed.Timeout)
	defer cancel()
	v := p.viewOf(identifier, why) // before what it is about is read: what comes meanwhile has its own turn
	g, err := p.gatherAll(ctx, identifier)
	if err != nil {
		return overview{}, err
	}
	v.group = g
	var errs []error
	for _, o := range g.over {
		if o.entry.Class != ledger.PullRequest && !g.ends(o) {
			errs = append(errs, p.forget(ctx, o.entry, o.fate))
		}
	}
	errs = append(errs, p.settleRelatives(ctx, g))
	return p.noteView(v), errors.Join(errs...)
}

// view is what one survey goes by.
type view struct {
	*group
	why     causes
	knows   bool                           // it can be told whose event is stored
	touched map[graspsync.RepoRef]uint64   // by their numbers
	lacking map[graspsync.RepoRef]bool     // that data is hunted for
	stale   map[graspsync.RepoRef]bool     // of these, for events that do not wait any more
	looks   map[graspsync.RepoRef]struct{} // that are looked at, so that it is not known what they lack
}

func (p *Purgatory) viewOf(identifier string, why causes) *view {
	v := &view{why: why, lacking: make(map[graspsync.RepoRef]bool), stale: make(map[graspsync.RepoRef]bool)}
	_, v.knows = p.relay.(Knower)
	p.mu.Lock()
	defer p.mu.Unlock()
	v.touched = maps.Clone(p.touched[identifier])
	v.looks = maps.Clone(p.looks)
	for ref, n := range p.needs[identifier] {
		v.lacking[ref] = true
		v.stale[ref] = slices.ContainsFunc(n.entries, func(id graspsync.EventID) bool {
			_, waits := p.ledger.Get(id)
			return !waits
		})
	}
	return v
}

// noteView returns what is to be looked at, and remembers that the rest needs no look.
func (p *Purgatory) noteView(v *view) (out overview) {
	most := p.cfg.fixed.MaxRepositories
	gone := make(map[graspsync.RepoRef]bool) // nobody announces them any more
	for _, o := range v.over {
		if v.ends(o) {
			gone[o.entry.Repos[0]] = true
		}
	}
	for ref := range v.why.left {
		gone[ref] = true
	}
	var needed []*repository
	for ref := range v.ours() {
		delete(gone, ref)
		switch r := v.repository(ref); {
		case v.concerns(r):
			needed = append(needed, r)
		case v.lacking[ref] && !v.serves(r):
			out.whole = append(out.whole, ref)
		}
	}
	cut := len(needed) > most
	if cut {
		p.stats.drop("repositories")
		rand.Shuffle(len(needed), func(i, j int) { needed[i], needed[j] = needed[j], needed[i] })
		slices.SortStableFunc(needed, func(a, b *repository) int { return v.wrote(b) - v.wrote(a) })
		needed = needed[:most]
	}
	for _, r := range needed {
		out.concerned = append(out.concerned, r.ref)
	}
	out.concerned = slices.AppendSeq(out.concerned, maps.Keys(gone))
	slices.SortFunc(out.concerned, graspsync.RepoRef.Compare)
	p.mu.Lock()
	defer p.mu.Unlock()
	for ref, number := range v.touched {
		if !cut && !slices.Contains(out.concerned, ref) {
			p.untouch(ref, number)
		}
	}
	for ref := range v.lacking {
		if !v.isOurs(ref) && !gone[ref] {
			out.whole = append(out.whole, ref)
		}
	}
	for _, ref := range out.whole {
		p.needsNothing(ref)
	}
	if len(v.states) == 0 {
		delete(p.pushed, v.identifier)
	}
	return out
}

// concerns reports whether something is to be done about a repository that what we were
// told is about: something waits for it, it lacks something, or it was touched. The others
// cost nothing, however many there are.
func (v *view) concerns(r *repository) bool {
	_, touched := v.touched[r.ref]
	_, looks := v.looks[r.ref]
	touched = touched || looks || v.lacking[r.ref] || v.answered(r.ref)
	_, waits := v.waiting[r.ref]
	stored := v.newestStored(r) != nil
	if v.why.check {
		return v.knows || stored || v.waitsFor(r)
	}
	return v.affects(r) && (v.waitsFor(r) || touched && (waits || stored))
}

// serves reports whether anything says what a repository should have.
func (v *view) serves(r *repository) bool {
	_, waits := v.waiting[r.ref]
	return waits || v.waitsFor(r) || v.newestStored(r) != nil
}

// affects reports whether what we were told is about a repository.
func (v *view) affects(r *repository) bool {
	if _, touched := v.touched[r.ref]; touched || v.stale[r.ref] || v.answered(r.ref) {
		return true
	}
	for member := range r.members {
		if _, told := v.why.owners[member]; told {
			return true
		}
	}
	for ref := range v.why.gained {
		_, looks := v.looks[r.ref]
		if ref != r.ref && (looks || v.lacking[r.ref]) && (r.related(v.repository(ref)) || v.pulledWith(r.ref, ref)) {
			return true
		}
	}
	return slices.ContainsFunc(v.states, func(h heldState) bool {
		_, fresh := v.why.fresh[h.entry.ID]
		return fresh && r.isMember(h.state.Ref.Owner)
	}) || slices.ContainsFunc(v.pulls, func(h heldPull) bool {
		_, fresh := v.why.fresh[h.entry.ID]
		return fresh && slices.Contains(h.pull.Repos, r.ref)
	}) || slices.ContainsFunc(v.over, func(o ended) bool { return slices.Contains(o.entry.Repos, r.ref) })
}

// answered reports whether a repository may have gained or lost a maintainer by what one
// of those that are listed said.
func (v *view) answered(ref graspsync.RepoRef) bool {
	if len(v.why.owners) == 0 {
		return false
	}
	listed, _ := v.family.Wanted([]graspsync.PubKey{ref.Owner}, nip34.ServedBounds())
	for owner := range v.why.owners {
		if _, ok := listed[owner]; ok {
			return true
		}
	}
	return false
}

// related reports whether somebody has a say in both repositories: what that one says
// that they are is here once for both.
func (r *repository) related(o *repository) bool {
	for member := range r.members {
		if o.isMember(member) {
			return true
		}
	}
	return false
}
