package purgatory

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"slices"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// errLong is wrapped when histories could not be walked within a look's share of time, or more
// refs would be moved than it may.
var errLong = errors.New("takes longer than a look may")

// walkCache is what is known of the histories of objects in a repository.
type walkCache struct {
	stamp string                  // for as long as it has this
	whole map[nip34.ObjectID]bool // whether all that they need is here
	long  map[nip34.ObjectID]cutWalk
}

// cutWalk is a walk that did not come to its end.
type cutWalk struct {
	at    time.Time
	after time.Duration
}

// longAgain is when a walk is tried again that was cut short, if it can't have more time.
const longAgain = 5 * time.Minute

// pullsShare bounds the time of one look that is for histories of pull requests: anybody
// writes them, and the repository is locked meanwhile, against pushes as well.
const pullsShare = 5 * time.Second

// findObjects finds out which of the objects that states and pull requests name are complete in a locked repository. It
// walks the history of an object only if the other objects of the same state are in the repository and git would accept
// the state for its refs. The results are remembered until the objects of the repository change.
func (p *Purgatory) findObjects(ctx context.Context, g *refplan.Group, r *repository, sets []refplan.Objects) error {
	named := refplan.IDsOf(sets)
	if len(named) == 0 {
		return nil
	}
	kinds, stamp, err := p.git.Probe(ctx, r.dir, named)
	if err != nil {
		return err
	}
	if r.Unfit == nil {
		p.table.recallUnfit(g, r.Repository)
	}
	for _, id := range named {
		delete(r.Found, id)
		delete(r.Missing, id)
		delete(r.Kinds, id)
	}
	for id, kind := range kinds {
		r.Kinds[id] = refplan.Kind(kind)
	}
	w := walk{git: p.git, r: r, past: p.table.recallWalks(r.Ref, stamp)}
	for _, set := range sets {
		if err := w.set(ctx, set); err != nil {
			return err
		}
	}
	if w.walked && stamp != "" { // what they need is kept from now on, which is a change
		if _, stamp, err = p.git.Probe(ctx, r.dir, nil); err != nil {
			return err
		}
	}
	p.table.rememberWalks(r, stamp, w.past, g.Named(r.Repository))
	return nil
}

// recallWalks returns what is remembered of the histories of a repository.
func (t *repoTable) recallWalks(ref graspsync.RepoRef, stamp string) walkCache {
	t.mu.Lock()
	defer t.mu.Unlock()
	past := walkCache{stamp: stamp, whole: make(map[nip34.ObjectID]bool), long: make(map[nip34.ObjectID]cutWalk)}
	if old, _ := t.walks.Get(ref); old.stamp == stamp && stamp != "" {
		maps.Copy(past.whole, old.whole)
		maps.Copy(past.long, old.long)
	}
	return past
}

// rememberWalks keeps what was found of what is named now.
func (t *repoTable) rememberWalks(r *repository, stamp string, found walkCache, named iter.Seq[nip34.ObjectID]) {
	if stamp == "" {
		return
	}
	found.stamp = stamp
	still := make(map[nip34.ObjectID]struct{})
	for id := range named {
		_, isLong := found.long[id]
		_, isKnown := found.whole[id]
		if isLong || isKnown {
			still[id] = struct{}{}
		}
	}
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
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(found.whole)+len(found.long) == 0 {
		t.walks.Delete(r.Ref)
		return
	}
	t.walks.Put(r.Ref, limit.Stranger{}, 0, found)
}

// walk is one look at what histories need.
type walk struct {
	git    safeGit
	r      *repository
	past   walkCache
	walked bool // anything at all
}

// set looks at objects of one state, or of a pull request. What takes too long is not
// known to be here, and keeps nothing else from being looked at: half of the time that is
// left is for that.
func (w *walk) set(ctx context.Context, set refplan.Objects) error {
	r := w.r
	if set.State != nil && r.IsUnfit(set.State) {
		return nil
	}
	if absent := r.NotThere(set.IDs); len(absent) > 0 {
		for _, id := range absent {
			r.Missing[id] = struct{}{}
		}
		return nil
	}
	ids := slices.DeleteFunc(slices.Clone(set.IDs), func(id nip34.ObjectID) bool {
		_, known := w.past.whole[id]
		return known
	})
	if err := w.walk(ctx, ids); err != nil {
		switch {
		case set.State == nil: // no reason to take the repository for a slow one
			r.trouble = errors.Join(r.trouble, fmt.Errorf("pull request: %s", err.Error()))
		case errors.Is(err, errLong):
			r.trouble = errors.Join(r.trouble, err)
		default:
			return err
		}
		return nil
	}
	for _, id := range set.IDs {
		if w.past.whole[id] {
			r.Found[id] = struct{}{}
		} else {
			r.Missing[id] = struct{}{}
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
		missing, err = w.git.Missing(ctx, w.r.dir, ids)
		return err
	})
	if err != nil {
		for _, id := range ids {
			if errors.Is(err, errLong) {
				w.past.long[id] = cutWalk{at: now, after: max(patience, w.past.long[id].after)}
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
