package purgatory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// errLong is wrapped if a walk exceeds the time budget of a release, or a release would move too
// many refs.
var errLong = errors.New("takes longer than a look may")

// pullsShare is the maximum time of one release for histories of pull requests. It is short because
// anyone can write pull requests, and the lock delays pushes.
const pullsShare = 5 * time.Second

// findObjects finds out which objects of states and pull requests are complete in a locked
// repository. It walks the history of an object only if all objects of the same state exist and git
// would accept the state.
func (p *Purgatory) findObjects(ctx context.Context, g *refplan.Group, r *repository, sets []refplan.Objects) error {
	named := refplan.IDsOf(sets)
	if len(named) == 0 {
		return nil
	}
	kinds, err := p.git.Stat(ctx, r.dir, named)
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
	for _, set := range sets {
		if err := p.findSet(ctx, r, set); err != nil {
			return err
		}
	}
	return nil
}

// findSet walks the objects of one state or pull request, for at most half of the time left. If the
// walk takes too long, the objects count as unknown.
func (p *Purgatory) findSet(ctx context.Context, r *repository, set refplan.Objects) error {
	if set.State != nil && r.IsUnfit(set.State) {
		return nil
	}
	if absent := r.NotThere(set.IDs); len(absent) > 0 {
		for _, id := range absent {
			r.Missing[id] = struct{}{}
		}
		return nil
	}
	var missing []nip34.ObjectID
	err := r.work(ctx, r.left()/2, func(ctx context.Context) (err error) {
		missing, err = p.git.Missing(ctx, r.dir, set.IDs)
		return err
	})
	if err != nil {
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
	lacks := setOf(missing)
	for _, id := range set.IDs {
		if _, lacking := lacks[id]; lacking {
			r.Missing[id] = struct{}{}
		} else {
			r.Found[id] = struct{}{}
		}
	}
	return nil
}
