package purgatory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// errLong is wrapped when histories could not be walked within a look's share of time.
var errLong = errors.New("histories take long to walk")

// walked is what is known of the histories of objects in a repository.
type walked struct {
	stamp string                  // for as long as it has this
	whole map[nip34.ObjectID]bool // whether all that they need is here
	long  map[nip34.ObjectID]cut
}

// cut is a walk that did not come to its end.
type cut struct {
	at    time.Time
	after time.Duration
}

// longAgain is when a walk is tried again that was cut short, if it can't have more time.
const longAgain = 5 * time.Minute

// pullsShare bounds the time of one look that is for histories of pull requests: anybody
// writes them, and the repository is locked meanwhile, against pushes as well.
const pullsShare = 5 * time.Second

// maxWalked bounds the repositories of whose histories something is remembered. What is
// forgotten is walked again.
const maxWalked = 10_000

// look finds out which objects are here and which are missing. A history is walked only
// if that may be of use: everything else that the same state names is here, and git would
// take it for its refs. What a walk has found is remembered for as long as nothing has
// changed.
func (p *Purgatory) look(ctx context.Context, g *group, r *repository, sets []objects) error {
	named := idsOf(sets)
	if len(named) == 0 {
		return nil
	}
	kinds, stamp, err := p.git.probe(ctx, r.dir, named)
	if err != nil {
		return err
	}
	if r.unfit == nil {
		p.recallUnfit(g, r)
	}
	for _, id := range named {
		delete(r.found, id)
		delete(r.missing, id)
		delete(r.kinds, id)
	}
	if kinds != nil {
		maps.Copy(r.kinds, kinds)
		r.probed = true
	}
	w := walk{p: p, r: r, past: p.recallWalks(r.ref, stamp)}
	for _, set := range sets {
		if err := w.set(ctx, set); err != nil {
			return err
		}
	}
	if w.walked && stamp != "" { // what they need is kept from now on, which is a change
		if _, stamp, err = p.git.probe(ctx, r.dir, nil); err != nil {
			return err
		}
	}
	p.rememberWalks(r, stamp, w.past, idsOf(append(g.decided(r), g.pulled(r)...)))
	return nil
}

// decided is what belongs together of the objects that states say a repository has: what
// the newest stored one names, then what each one that waits does, the newest first.
func (g *group) decided(r *repository) (sets []objects) {
	states := g.concerning(r)
	slices.Reverse(states)
	for _, s := range states {
		if ids, fits := objectsOf(s, r.refs.Format); fits {
			sets = append(sets, objects{ids: ids, state: s})
		}
	}
	return sets
}

// pulled is the same for pull requests.
func (g *group) pulled(r *repository) (sets []objects) {
	for _, h := range g.pulls {
		if slices.Contains(h.pull.Repos, r.ref) && h.pull.Tip.Format() == r.refs.Format {
			sets = append(sets, objects{ids: []nip34.ObjectID{h.pull.Tip}})
		}
	}
	return sets
}

func idsOf(sets []objects) (ids []nip34.ObjectID) {
	for _, set := range sets {
		ids = append(ids, set.ids...)
	}
	slices.SortFunc(ids, compareIDs)
	return slices.Compact(ids)
}

// objects are of use together, or not at all.
type objects struct {
	ids   []nip34.ObjectID
	state *nip34.State // nil: of a pull request
}

// walk is one look at what histories need.
type walk struct {
	p      *Purgatory
	r      *repository
	past   walked
	walked bool // anything at all
}

// set looks at objects of one state, or of a pull request. What takes too long is not
// known to be here, and keeps nothing else from being looked at: half of the time that is
// left is for that.
func (w *walk) set(ctx context.Context, set objects) error {
	r := w.r
	if set.state != nil && r.isUnfit(set.state) {
		return nil
	}
	if absent := r.notThere(set.ids); len(absent) > 0 {
		for _, id := range absent {
			r.missing[id] = struct{}{}
		}
		return nil
	}
	ids := slices.DeleteFunc(slices.Clone(set.ids), func(id nip34.ObjectID) bool {
		_, known := w.past.whole[id]
		return known
	})
	if err := w.walk(ctx, ids); err != nil {
		switch {
		case set.state == nil: // no reason to take the repository for a slow one
			r.trouble = errors.Join(r.trouble, fmt.Errorf("pull request: %s", err.Error()))
		case errors.Is(err, errLong):
			r.trouble = errors.Join(r.trouble, err)
		default:
			return err
		}
		return nil
	}
	for _, id := range set.ids {
		if w.past.whole[id] {
			r.found[id] = struct{}{}
		} else {
			r.missing[id] = struct{}{}
		}
	}
	return nil
}

// walk finds out whether objects are here with all that they need.
func (w *walk) walk(ctx context.Context, ids []nip34.ObjectID) error {
	if len(ids) == 0 {
		return nil
	}
	patience := w.r.left() / 2
	now := time.Now()
	for _, id := range ids {
		if c, long := w.past.long[id]; long && patience <= c.after && now.Before(c.at.Add(longAgain)) {
			return errLong
		}
	}
	var missing []nip34.ObjectID
	err := w.r.work(ctx, patience, func(ctx context.Context) (err error) {
		missing, err = w.p.git.Missing(ctx, w.r.dir, ids)
		return err
	})
	if err != nil {
		for _, id := range ids {
			if errors.Is(err, errLong) {
				w.past.long[id] = cut{at: now, after: max(patience, w.past.long[id].after)}
			}
		}
		return err
	}
	w.walked = true
	lacks := setOf(missing)
	for _, id := range ids {
		_, lacking := lacks[id]
		w.past.whole[id] = !lacking
	}
	return nil
}

// left is what is left of a look's share of time.
func (r *repository) left() time.Duration { return r.until - r.watch.Worked() }

// work has git do something that may take as long as whoever made the objects likes. The
// error wraps errLong if it took more time than it may, and ErrCrowded if others had all
// places for too long: that says nothing about the repository.
func (r *repository) work(ctx context.Context, most time.Duration, do func(ctx context.Context) error) error {
	working, cancel := r.watch.Limit(ctx, most, errLong)
	defer cancel()
	err := do(working)
	if err == nil || ctx.Err() != nil {
		return err
	}
	for _, reason := range []error{ErrCrowded, errLong} {
		if errors.Is(err, reason) || errors.Is(context.Cause(working), reason) {
			return fmt.Errorf("%w: %s", reason, graspsync.Printable(err.Error()))
		}
	}
	return err
}

// notThere returns those of ids that are certainly not here.
func (r *repository) notThere(ids []nip34.ObjectID) []nip34.ObjectID {
	if !r.probed {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(ids), func(id nip34.ObjectID) bool { return r.kinds[id] != 0 })
}

// isUnfit reports whether git would refuse a state: it has before, a branch of it is no
// commit, or what it says is no object at all.
func (r *repository) isUnfit(s *nip34.State) bool {
	if _, refused := r.unfit[s.ID]; refused || s.Impossible > 0 {
		return true
	}
	for name, id := range s.Refs {
		if kind := r.kinds[id]; kind != 0 && kind != Commit && strings.HasPrefix(name.String(), "refs/heads/") {
			r.unfit[s.ID] = struct{}{}
			return true
		}
	}
	return false
}

func (p *Purgatory) recallUnfit(g *group, r *repository) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r.unfit = make(map[graspsync.EventID]struct{})
	for _, s := range g.concerning(r) {
		if _, refused := p.unfit[r.ref][s.ID]; refused {
			r.unfit[s.ID] = struct{}{}
		}
	}
}

// noteUnfit remembers which states git refused, of those that are still of interest. It
// is called with mu held.
func (p *Purgatory) noteUnfit(r *repository) {
	if len(r.unfit) == 0 {
		delete(p.unfit, r.ref)
	} else {
		p.unfit[r.ref] = r.unfit
	}
}

// recallWalks returns what is remembered of the histories of a repository.
func (p *Purgatory) recallWalks(ref graspsync.RepoRef, stamp string) walked {
	p.mu.Lock()
	defer p.mu.Unlock()
	past := walked{stamp: stamp, whole: make(map[nip34.ObjectID]bool), long: make(map[nip34.ObjectID]cut)}
	if old := p.walked[ref]; old.stamp == stamp && stamp != "" {
		for id, whole := range old.whole {
			past.whole[id] = whole
		}
		for id, d := range old.long {
			past.long[id] = d
		}
	}
	return past
}

// rememberWalks keeps what was found of what is named now.
func (p *Purgatory) rememberWalks(r *repository, stamp string, found walked, named []nip34.ObjectID) {
	if stamp == "" {
		return
	}
	found.stamp = stamp
	still := setOf(named)
	for id := range found.whole {
		if _, named := still[id]; !named {
			delete(found.whole, id)
		}
	}
	for id := range found.long {
		if _, named := still[id]; !named || found.whole[id] {
			delete(found.long, id)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.walked, r.ref)
	if len(found.whole)+len(found.long) == 0 {
		return
	}
	for ref := range p.walked { // any
		if len(p.walked) < maxWalked {
			break
		}
		delete(p.walked, ref)
	}
	p.walked[r.ref] = found
}
