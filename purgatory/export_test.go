package purgatory

import (
	"context"
	"fmt"
	"slices"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/ledger"
	"github.com/graspsync/graspsync/purgatory/internal/stopwatch"
	"github.com/graspsync/graspsync/state"
)

// OpenWithStep is Open with somebody who is told of each durable step.
func OpenWithStep(ctx context.Context, relay Relay, repos Repositories, git GitFetcher, store state.Store, cfg Config,
	step func(string),
) (*Purgatory, error) {
	return open(ctx, relay, repos, git, store, cfg, step)
}

// Sizes says how much is kept in memory, by what.
func (p *Purgatory) Sizes() map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.engine.fetches.mu.Lock()
	defer p.engine.fetches.mu.Unlock()
	return map[string]int{
		"needs": len(p.needs), "touched": len(p.touched), "doubted": len(p.doubted), "pushed": len(p.pushed), "served": len(p.served),
		"pinned": len(p.pinned), "ending": len(p.ending),
		"places": len(p.engine.fetches.places),
		"lacks":  p.engine.fetches.memory.size,
	}
}

// Left names what is still counted, locked or kept for nobody once Run has returned and nobody
// submits anything: it would keep others out for good, and no single answer shows that.
func (p *Purgatory) Left() (out []string) {
	wrong := func(is bool, what string, args ...any) {
		if is {
			out = append(out, fmt.Sprintf(what, args...))
		}
	}
	wrong(p.writing.inUse() > 0, "entries are locked")
	wrong(p.storing.inUse() > 0, "events are being stored")
	wrong(p.naming.inUse() > 0, "repositories are looked at")
	p.mu.Lock()
	wrong(len(p.pinned) > 0, "entries are pinned: %v", p.pinned)
	wrong(len(p.ending) > 0, "entries are ending: %v", p.ending)
	wrong(len(p.looks) > 0, "looks go on: %v", p.looks)
	for identifier, refs := range p.needs {
		wrong(len(refs) == 0, "nobody needs anything under %q", identifier)
	}
	for identifier, refs := range p.touched {
		wrong(len(refs) == 0, "nothing is to be looked at under %q", identifier)
	}
	for identifier, refs := range p.pushed {
		wrong(len(refs) == 0, "nothing was pushed under %q", identifier)
	}
	for id, refs := range p.served {
		wrong(len(refs) == 0, "%s is served nowhere", id)
	}
	p.mu.Unlock()
	f := p.engine.fetches
	wrong(f.writing.inUse() > 0, "records are being written")
	f.mu.Lock()
	lacks := 0
	for ref, of := range f.memory.lacks {
		wrong(len(of) == 0, "nobody lacks anything for %s", ref)
		lacks += len(of)
	}
	wrong(lacks != f.memory.size, "%d lacks count as %d", lacks, f.memory.size)
	for ref, pl := range f.places {
		wrong(pl.users != 0 || len(pl.turns) > 0, "%d fetch for %s", pl.users, ref)
		for _, g := range pl.all {
			wrong(g.taken || g.cancel != nil || g.quarantine == nil, "something is gathered for %s by nobody", ref)
		}
	}
	f.mu.Unlock()
	p.rations.mu.Lock()
	defer p.rations.mu.Unlock()
	for ref, d := range p.rations.displaced {
		wrong(d.bytes <= 0, "nothing gave way in %s", ref)
	}
	return out
}

// Weights returns what the refs of pull requests count for in a repository, when all that must
// be weighed has been, however long that takes.
func (p *Purgatory) Weights(ctx context.Context, ref graspsync.RepoRef, dir string) (map[graspsync.EventID]int64, error) {
	for {
		g, err := p.announced(ctx, ref.Identifier, false)
		if err != nil {
			return nil, err
		}
		r := g.repository(ref)
		r.dir, r.until, r.watch = dir, pullsShare, stopwatch.New(pullsShare, ErrCrowded)
		if r.refs, err = p.git.Refs(ctx, dir); err != nil {
			return nil, err
		}
		a := asked{r, nil, -1}
		w, err := p.rations.weigh(ctx, a)
		if err != nil {
			return nil, err
		}
		p.rations.note(a, answered{weighed: w})
		whole := len(w.stale) == 0 && !w.again
		for name := range r.refs.At {
			id, of := eventOf(name)
			_, weighed := w.of[id]
			whole = whole && (!of || weighed)
		}
		if whole {
			return w.of, nil
		}
	}
}

func (l *locks[K]) inUse() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.held)
}

// Undo is what takes back a transaction, of which a part was done.
func Undo(changes []RefChange, was, head nip34.RefName, now Refs) (back []RefChange, backTo nip34.RefName) {
	return newJournal(graspsync.RepoRef{}, Refs{Head: was}, changes, head).undo(now)
}

// AtLocks has all who may have to wait for a lock do so while somebody else has it, and returns
// what they say: ctx is to be over. from is a server that was asked for a repository.
func (p *Purgatory) AtLocks(ctx context.Context, announcement, pull *nostr.Event, from graspsync.URL) map[string]error {
	a, _ := entryOf(announcement, false)
	e, _ := entryOf(pull, false)
	ref, f := e.Repos[0], p.engine.fetches
	free := graspsync.RepoRef{Owner: ref.Owner, Identifier: "free"}
	both := placeholder(free, e.ID)
	both.Repos = append(both.Repos, ref)
	slices.SortFunc(both.Repos, graspsync.RepoRef.Compare)
	f.mu.Lock()
	f.server(from.HostPort).version.now++
	f.repository(ref).version.now++
	f.mu.Unlock()
	var unlocks []func()
	have := func(unlock func(), err error) {
		if err == nil {
			unlocks = append(unlocks, unlock)
		}
	}
	have(p.writing.lock(context.Background(), a.ID))
	have(p.writing.lock(context.Background(), e.ID))
	have(p.storing.lock(context.Background(), e.ID))
	have(p.naming.lock(context.Background(), both.Repos[1]))
	have(f.writing.lock(context.Background(), serverKey(from.HostPort)))
	have(f.writing.lock(context.Background(), huntedKey(ref)))
	defer func() {
		for _, u := range unlocks {
			u()
		}
	}()
	held := both.Repos[1]
	out := map[string]error{
		"strike":          p.strike(ctx, e),
		"rewrite":         p.rewrite(ctx, e.ID),
		"forget":          p.forget(ctx, e, Released),
		"save":            p.save(ctx, e),
		"expire for good": p.expireForGood(ctx, e),
		"expire softly":   p.expireSoftly(ctx, a),
		"drop strays":     p.dropStrays(ctx, both),
		"remove":          p.RemoveRepository(ctx, held),
		"keep a server":   f.keepServer(ctx, from.HostPort),
		"keep a hunt":     f.keepHunted(ctx, ref),
	}
	_, out["settle"] = p.settle(ctx, held, causes{}, pullsShare)
	_, out["join"] = p.join(ctx, ref, e.ID)
	_, out["hold"] = p.hold(ctx, ledger.Entry{ID: e.ID, Class: e.Class})
	pr, _ := nip34.ParsePullRequest(pull)
	_, out["release"] = p.releasePull(ctx, &repository{ref: ref, active: true, found: setOf([]nip34.ObjectID{pr.Tip})}, heldPull{e, pr})
	return out
}

// OpenSeeded is Open with waits of lengths that are not at random.
func OpenSeeded(ctx context.Context, relay Relay, repos Repositories, git GitFetcher, store state.Store, cfg Config, seed uint64) (*Purgatory, error) {
	p, err := open(ctx, relay, repos, git, store, cfg, func(string) {})
	if err != nil {
		return nil, err
	}
	p.seed = seed
	p.engine = newEngine(p)
	return p, p.engine.recall(ctx)
}

// Fixed is what only tests set otherwise.
type Fixed = constants

// Fixed returns it, to be changed.
func (c *Config) Fixed() *Fixed { return &c.fixed }

// With returns a copy that has it.
func (c Config) With(f Fixed) Config {
	c.fixed = f
	return c
}
