package purgatory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/ledger"
	"github.com/graspsync/graspsync/purgatory/internal/stopwatch"
)

// align finds out which objects are missing of some that a repository should have, has
// other repositories of ours give what they have, and makes refs what they should be.
func (p *Purgatory) align(ctx context.Context, g *group, r *repository, sets []objects) error {
	if err := p.look(ctx, g, r, sets); err != nil {
		return err
	}
	if err := p.share(ctx, g, r, sets); err != nil {
		return err
	}
	return p.alignNow(ctx, g, r)
}

// alignNow is align for objects that are here.
func (p *Purgatory) alignNow(ctx context.Context, g *group, r *repository) error {
	if err := p.again(ctx, g, r); err != nil {
		return err
	}
	if _, waits := g.waiting[r.ref]; !r.active && !waits {
		return nil // nobody announces it any more: the next look is about that
	}
	return p.alignOne(ctx, g, r)
}

// alignPulls is align for pull requests. Anybody writes these: nothing else waits for
// what they cost.
func (p *Purgatory) alignPulls(ctx context.Context, g *group, r *repository) error {
	sets := g.pulled(r)
	if len(sets) == 0 {
		return nil
	}
	states := r.until
	r.until = min(states, r.watch.Worked()+pullsShare)
	defer func() { r.until = states }()
	if err := p.look(ctx, g, r, sets); err != nil {
		return err
	}
	p.takeStaged(ctx, g, r)
	if err := p.share(ctx, g, r, sets); err != nil {
		return err
	}
	if err := p.ration(ctx, g, r); err != nil {
		return err
	}
	return p.alignNow(ctx, g, r)
}

// again asks anew who decides, what is stored and what was deleted: to walk histories
// may have taken minutes. What came meanwhile was not looked for, and has its own turn.
func (p *Purgatory) again(ctx context.Context, g *group, r *repository) error {
	if len(r.found) == 0 && len(r.missing) == 0 {
		return nil
	}
	now, err := p.gather(ctx, r.ref, g.late)
	if err != nil {
		return err
	}
	known := setOf(g.pins)
	unknown := func(e ledger.Entry) bool {
		_, ok := known[e.ID]
		return !ok
	}
	g.states = slices.DeleteFunc(now.states, func(h heldState) bool { return unknown(h.entry) })
	g.pulls = slices.DeleteFunc(now.pulls, func(h heldPull) bool { return unknown(h.entry) })
	g.accepted, g.waiting, g.all, g.family, g.stored = now.accepted, now.waiting, now.all, now.family, now.stored
	if e, waits := g.waiting[r.ref]; waits && unknown(e) {
		p.touch(r.ref)
		delete(g.waiting, r.ref)
	}
	fresh := g.repository(r.ref)
	r.members, r.active = fresh.members, fresh.active
	return nil
}

func setOf[K comparable](ids []K) map[K]struct{} {
	out := make(map[K]struct{}, len(ids))
	for _, id := range ids {
		out[id] = struct{}{}
	}
	return out
}

// maxSources bounds the repositories that one is asked to have objects from in one look:
// the others have their turn, and keys that list somebody are free.
const maxSources = 16

// share gives a repository what it lacks and another one of ours has: what is needed
// is for each of them to say, where it came first does not matter.
func (p *Purgatory) share(ctx context.Context, g *group, r *repository, sets []objects) error {
	ids := r.missingOf(sets)
	if p.git.sharer == nil || len(ids) == 0 {
		return nil
	}
	shared := false
	for _, o := range g.sources(r) {
		got, err := p.shareFrom(ctx, g, o, r, ids)
		if err != nil {
			// Another owner's repository must not keep this one from being dealt with, nor what
			// only pull requests name have it taken for a slow one: anybody writes these.
			if !slices.ContainsFunc(sets, func(set objects) bool { return set.state != nil }) {
				err = errors.New(err.Error())
			}
			r.trouble = errors.Join(r.trouble, fmt.Errorf("sharing objects: %w", err))
			continue
		}
		shared = shared || got
	}
	if !shared {
		return nil
	}
	if err := p.look(ctx, g, r, sets); err != nil {
		return err
	}
	if r.more && len(r.missingOf(sets)) < len(ids) {
		p.touch(r.ref)
		p.tell(look{identifier: r.ref.Identifier})
	}
	return nil
}

// missingOf returns what is missing of some objects, in order.
func (r *repository) missingOf(sets []objects) (ids []nip34.ObjectID) {
	for _, set := range sets {
		ids = append(ids, slices.DeleteFunc(slices.Clone(set.ids), func(id nip34.ObjectID) bool { return !r.misses(id) })...)
	}
	slices.SortFunc(ids, compareIDs)
	return slices.Compact(ids)
}

// sources returns the repositories that may have what one lacks: those of its own
// maintainers first, then those that somebody has a say in who has one in this, and those
// that a pull request is for as well.
func (g *group) sources(r *repository) (out []graspsync.RepoRef) {
	var others []graspsync.RepoRef
	for ref := range g.ours() {
		switch {
		case ref == r.ref:
		case r.isMember(ref.Owner):
			out = append(out, ref)
		case r.related(g.repository(ref)) || g.pulledWith(r.ref, ref):
			others = append(others, ref)
		}
	}
	for _, refs := range [][]graspsync.RepoRef{out, others} {
		rand.Shuffle(len(refs), func(i, j int) { refs[i], refs[j] = refs[j], refs[i] })
	}
	out = append(out, others...)
	return out[:min(len(out), maxSources)]
}

// pulledWith reports whether a pull request that waits is for both repositories.
func (g *group) pulledWith(a, b graspsync.RepoRef) bool {
	return slices.ContainsFunc(g.pulls, func(h heldPull) bool {
		return slices.Contains(h.pull.Repos, a) && slices.Contains(h.pull.Repos, b)
	})
}

// shareFrom gives a repository those of ids that another one has, and for which there is
// room. That one is not waited for: somebody may have it locked who waits for this one.
func (p *Purgatory) shareFrom(ctx context.Context, g *group, from graspsync.RepoRef, r *repository, ids []nip34.ObjectID) (got bool, err error) {
	p.mu.Lock()
	lacks := setOf(p.needs[from.Identifier][from].ids)
	p.mu.Unlock()
	ids = slices.DeleteFunc(slices.Clone(ids), func(id nip34.ObjectID) bool {
		_, lacking := lacks[id] // should it get that, this one is looked at again
		return lacking
	})
	if len(ids) == 0 {
		return false, nil
	}
	dir, unlock, err := p.enter(ctx, from, leastLockWait)
	if errors.Is(err, ErrNoRepository) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer unlock()
	if ids, err = p.git.has(ctx, dir, ids); err != nil || len(ids) == 0 {
		return false, err
	}
	if ids, err = p.withRoom(ctx, g, r, dir, ids); err != nil || len(ids) == 0 {
		return false, err
	}
	err = r.work(ctx, r.left(), func(ctx context.Context) error { return p.git.share(ctx, dir, r.dir, ids) })
	if err != nil {
		return false, err
	}
	p.step("shared")
	if r.came == nil {
		r.came = make(map[nip34.ObjectID]struct{})
	}
	maps.Copy(r.came, setOf(ids))
	return true, nil
}

// withRoom returns those of ids, which are in the folder of another repository, that a state
// names or a pull request that could have a ref: what came for one that can have none would
// lie here for nobody.
func (p *Purgatory) withRoom(ctx context.Context, g *group, r *repository, dir string, ids []nip34.ObjectID) (out []nip34.ObjectID, err error) {
	if p.git.weigher == nil {
		return ids, nil
	}
	decided := setOf(idsOf(g.decided(r)))
	both, err := p.git.has(ctx, dir, slices.Collect(maps.Values(r.refs.At)))
	if err != nil {
		return nil, err
	}
	ids = slices.Clone(ids)
	rand.Shuffle(len(ids), func(i, j int) { ids[i], ids[j] = ids[j], ids[i] }) // who has little time left is not always the same
	sum := int64(0)                                                            // of those that have room, which need it together
	for _, id := range ids {
		_, room := decided[id]
		if !room {
			var bytes int64
			if bytes, room, err = p.pullWithRoom(ctx, g, r, dir, id, both, sum); err != nil {
				return nil, err
			}
			if room {
				sum += bytes
			}
		}
		if room {
			out = append(out, id)
		}
	}
	r.more = r.more || sum > 0 && len(out) < len(ids)
	slices.SortFunc(out, compareIDs)
	return out, nil
}

// pullWithRoom reports whether a pull request could have a ref whose tip is in the folder of
// another repository, and how many bytes that brings, besides what both have, and more that
// come with it.
func (p *Purgatory) pullWithRoom(ctx context.Context, g *group, r *repository, dir string, tip nip34.ObjectID, both []nip34.ObjectID, more int64) (bytes int64, room bool, err error) {
	err = r.work(ctx, r.left()/2, func(ctx context.Context) (err error) {
		bytes, err = p.git.weigh(ctx, dir, tip, both)
		return err
	})
	switch {
	case err == nil:
	case ctx.Err() != nil || errors.Is(err, ErrCrowded):
		return 0, false, err
	default: // it takes long, or something that it needs is not there: nothing else waits for that
		p.cfg.Logger.Debug("what another repository has could not be weighed", keyRepo, graspsync.Printable(r.ref.String()), keyError, graspsync.Printable(err.Error()))
		return 0, false, nil
	}
	for _, h := range g.pulls {
		if room || h.pull.Tip != tip || !slices.Contains(h.pull.Repos, r.ref) {
			continue
		}
		if room, err = p.hasRoom(ctx, r, h.pull, bytes+more); err != nil {
			return 0, false, err
		}
	}
	if !room {
		p.stats.drop("pull_refs")
	}
	return bytes, room, nil
}

// othersShare is the time that one look spends on other repositories. Who lists somebody
// can make theirs one of those.
const othersShare = time.Second

// othersLockWait is how long the lock of one of them is waited for: longer than whoever has
// objects from it waits, and not as long as the next who does the same. Two who wait for each
// other's would give up together, and again at each try.
func othersLockWait() time.Duration { return 3*leastLockWait + rand.N(4*leastLockWait) }

// alignOthers has the refs of other repositories follow a state that is about to be
// served, before it is, where that is quickly done. The rest is for their own looks.
func (p *Purgatory) alignOthers(ctx context.Context, g *group, r *repository) {
	if !slices.ContainsFunc(g.states, r.releases) {
		return
	}
	until := time.Now().Add(othersShare)
	for _, ref := range g.sources(r) {
		o := g.repository(ref)
		follows := slices.ContainsFunc(g.states, func(h heldState) bool {
			return r.releases(h) && o.isMember(h.state.Ref.Owner)
		})
		if !follows || !time.Now().Before(until) {
			continue
		}
		if err := p.alignOther(ctx, g, ref, r); err != nil {
			p.cfg.Logger.Debug("refs follow later", keyRepo, graspsync.Printable(ref.String()), keyError, graspsync.Printable(err.Error()))
		}
	}
}

// alignOther aligns another repository, which may have what it lacks from this one.
func (p *Purgatory) alignOther(ctx context.Context, by *group, ref graspsync.RepoRef, r *repository) error {
	dir, unlock, err := p.enter(ctx, ref, othersLockWait())
	if err != nil {
		return err
	}
	defer unlock()
	g, o, err := p.read(ctx, ref, dir, by.late)
	defer p.unpin(g) // what waits for it is pinned though nobody announces it any more
	if err != nil || o == nil || !o.as(g) {
		return err
	}
	o.watch, o.until = stopwatch.New(othersShare, ErrCrowded), othersShare
	sets := g.decided(o)
	if err := p.look(ctx, g, o, sets); err != nil {
		return err
	}
	ids := slices.DeleteFunc(o.missingOf(sets), r.lacks)
	if len(ids) > 0 && p.git.sharer != nil {
		err := o.work(ctx, o.left(), func(ctx context.Context) error { return p.git.share(ctx, r.dir, dir, ids) })
		if err != nil {
			return err
		}
		p.step("shared")
		if err := p.look(ctx, g, o, sets); err != nil {
			return err
		}
	}
	return p.alignOne(ctx, g, o)
}

// alignOne makes the refs of a repository what they should be. That may make it
// active, and then another state may decide: one without refs, that is. What git refuses
// for what it is decides nothing, and holds up nothing.
func (p *Purgatory) alignOne(ctx context.Context, g *group, r *repository) error {
	for {
		before := r.active
		r.decides = g.authoritative(r)
		changes, head := g.changes(r)
		if len(changes) > 0 || !head.IsZero() {
			err := p.move(ctx, r, changes, head)
			if errors.Is(err, ErrUnfit) && r.decides != nil {
				r.unfit[r.decides.ID] = struct{}{}
				if err = p.mend(ctx, r.ref, r.dir); err == nil {
					r.refs, err = p.git.Refs(ctx, r.dir)
				}
				if err == nil {
					continue
				}
			}
			if err != nil {
				return err
			}
			r.refs = r.refs.apply(changes, head)
		}
		// That is one step, and no ref is what it should not be if we are killed: it needs no journal.
		if head := g.unborn(r); !head.IsZero() {
			if err := p.git.Align(ctx, r.dir, nil, head); err != nil {
				return fmt.Errorf("setting the unborn branch: %w", err)
			}
			r.refs = r.refs.apply(nil, head)
		}
		// Data of its own makes an announcement one to be released.
		if r.active = r.active || r.refs.hasState(); r.active == before {
			return nil
		}
	}
}
