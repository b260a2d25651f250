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

// errLong is wrapped if a walk exceeds the time budget of a release, or a release would move too
// many refs.
var errLong = errors.New("takes longer than a look may")

type walkCache struct {
	stamp string                     // of [gitops.Operations].Stat; the results are valid while it is unchanged
	whole map[nip34.ObjectID]bool    // whether the object is complete
	long  map[nip34.ObjectID]cutWalk // walks that took too long
}

type cutWalk struct {
	at    time.Time
	after time.Duration
}

// longAgain is the time after which a cut walk is repeated. It is repeated sooner if more time is
// available.
const longAgain = 5 * time.Minute

// pullsShare is the maximum time of one release for histories of pull requests. It is short because
// anyone can write pull requests, and the lock delays pushes.
const pullsShare = 5 * time.Second

// findObjects finds out which objects of states and pull requests are complete in a locked
// repository. It walks the history of an object only if all objects of the same state exist and git
// would accept the state. The results are cached until the objects of the repository change.
func (p *Purgatory) findObjects(ctx context.Context, g *refplan.Group, r *repository, sets []refplan.Objects) error {
	named := refplan.IDsOf(sets)
	if len(named) == 0 {
		return nil
	}
	kinds, stamp, err := p.git.Stat(ctx, r.dir, named)
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
	maps.Copy(r.Kinds, kinds)
	w := walk{git: p.git, r: r, past: p.table.recallWalks(r.Ref, stamp)}
	for _, set := range sets {
		if err := w.set(ctx, set); err != nil {
			return err
		}
	}
	if w.walked && stamp != "" { // the walk protects objects from gc, which is a change
		if _, stamp, err = p.git.Stat(ctx, r.dir, nil); err != nil {
			return err
		}
	}
	p.table.rememberWalks(r, stamp, w.past, g.Named(r.Repository))
	return nil
}

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

// walk is one use of walkCache during a release.
type walk struct {
	git    safeGit
	r      *repository
	past   walkCache
	walked bool // a history was walked
}

// set walks the objects of one state or pull request, for at most half of the time left. If a walk
// takes too long, its object counts as unknown.
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
		case set.State == nil: // slow pull requests do not make the repository slow
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
