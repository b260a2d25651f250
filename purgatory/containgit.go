package purgatory

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// containedGit is a GitFetcher whose panics are errors. It can do what the other can.
type containedGit struct {
	git    GitFetcher
	sharer Sharer // nil: it is none
	mender Mender // nil: it is none
	taker  Taker  // nil: it is none
	prober Prober // nil: it is none
	p      *Purgatory

	weigher Weigher // nil: it is none

	maintainer Maintainer // nil: it is none
}

func (p *Purgatory) containGit(of GitFetcher) containedGit {
	g := containedGit{git: of, p: p}
	g.sharer, _ = of.(Sharer)
	g.mender, _ = of.(Mender)
	g.taker, _ = of.(Taker)
	g.maintainer, _ = of.(Maintainer)
	g.prober, _ = of.(Prober)
	g.weigher, _ = of.(Weigher)
	return g
}

func (g containedGit) Quarantine(ctx context.Context, dir string) (q Quarantine, err error) {
	defer g.p.recovered(&err, ofGit)
	if q, err = g.git.Quarantine(ctx, dir); err != nil {
		return nil, err
	}
	return containedQuarantine{q, g.p}, nil
}

func (g containedGit) Missing(ctx context.Context, dir string, ids []nip34.ObjectID) (_ []nip34.ObjectID, err error) {
	defer g.p.recovered(&err, ofGit)
	return g.git.Missing(ctx, dir, ids)
}

func (g containedGit) Refs(ctx context.Context, dir string) (_ Refs, err error) {
	defer g.p.recovered(&err, ofGit)
	return g.git.Refs(ctx, dir)
}

func (g containedGit) Align(ctx context.Context, dir string, changes []RefChange, head nip34.RefName) (err error) {
	defer g.p.recovered(&err, ofGit)
	return g.git.Align(ctx, dir, changes, head)
}

func (g containedGit) Tidy(ctx context.Context, dir string) (err error) {
	defer g.p.recovered(&err, ofGit)
	return g.git.Tidy(ctx, dir)
}

// share is [Sharer]. It is called only if the other is one.
func (g containedGit) share(ctx context.Context, from, to string, ids []nip34.ObjectID) (err error) {
	defer g.p.recovered(&err, ofGit)
	return g.sharer.Share(ctx, from, to, ids)
}

// take is [Taker]. It is called only if the other is one.
func (g containedGit) take(ctx context.Context, dir, from string, ids []nip34.ObjectID) (err error) {
	defer g.p.recovered(&err, ofGit)
	return g.taker.Take(ctx, dir, from, ids)
}

// probe is [Prober]. It tells nothing if the other is none.
func (g containedGit) probe(ctx context.Context, dir string, ids []nip34.ObjectID) (kinds map[nip34.ObjectID]ObjectKind, stamp string, err error) {
	if g.prober == nil {
		return nil, "", nil
	}
	defer g.p.recovered(&err, ofGit)
	if kinds, stamp, err = g.prober.Probe(ctx, dir, ids); kinds == nil {
		kinds = make(map[nip34.ObjectID]ObjectKind)
	}
	return kinds, stamp, err
}

// has returns those of ids that are in a repository: with all that they need, if that can
// only be told together.
func (g containedGit) has(ctx context.Context, dir string, ids []nip34.ObjectID) ([]nip34.ObjectID, error) {
	kinds, _, err := g.probe(ctx, dir, ids)
	if err != nil {
		return nil, err
	}
	if kinds != nil {
		return slices.DeleteFunc(slices.Clone(ids), func(id nip34.ObjectID) bool { return kinds[id] == 0 }), nil
	}
	missing, err := g.Missing(ctx, dir, ids)
	if err != nil {
		return nil, err
	}
	lacks := setOf(missing)
	return slices.DeleteFunc(slices.Clone(ids), func(id nip34.ObjectID) bool {
		_, lacking := lacks[id]
		return lacking
	}), nil
}

// mend is [Mender], or Tidy if the other is none.
func (g containedGit) mend(ctx context.Context, dir string) (err error) {
	if g.mender == nil {
		return g.Tidy(ctx, dir)
	}
	defer g.p.recovered(&err, ofGit)
	return g.mender.Mend(ctx, dir)
}

// weigh is [Weigher]. It is called only if the other is one.
func (g containedGit) weigh(ctx context.Context, dir string, id nip34.ObjectID, but []nip34.ObjectID) (_ int64, err error) {
	defer g.p.recovered(&err, ofGit)
	return g.weigher.Weigh(ctx, dir, id, but)
}

// maintain is [Maintainer]. It is called only if the other is one.
func (g containedGit) maintain(ctx context.Context, how Maintenance) (_ Maintained, err error) {
	defer g.p.recovered(&err, ofGit)
	return g.maintainer.Maintain(ctx, how)
}

// containedQuarantine is a Quarantine whose panics are errors.
type containedQuarantine struct {
	q Quarantine
	p *Purgatory
}

// errSpoilt says that nobody knows what is in a quarantine.
var errSpoilt = errors.New("git panicked")

// Fetch says after a panic that the server is of no use, whatever it did to provoke it,
// and that nobody knows what is in the quarantine now.
func (q containedQuarantine) Fetch(ctx context.Context, from graspsync.URL, ids []nip34.ObjectID) (n int64, err error) {
	defer func() {
		if r := recover(); r != nil {
			q.p.panicked(r, ofGit)
			err = fmt.Errorf("%w: %w: %s", ErrBroken, errSpoilt, graspsync.Printable(fmt.Sprint(r)))
		}
	}()
	return q.q.Fetch(ctx, from, ids)
}

func (q containedQuarantine) Missing(ctx context.Context, ids []nip34.ObjectID) (_ []nip34.ObjectID, err error) {
	defer q.p.recovered(&err, ofGit)
	return q.q.Missing(ctx, ids)
}

func (q containedQuarantine) Promote(ctx context.Context) (err error) {
	defer q.p.recovered(&err, ofGit)
	return q.q.Promote(ctx)
}

func (q containedQuarantine) Discard() (err error) {
	defer q.p.recovered(&err, ofGit)
	return q.q.Discard()
}
