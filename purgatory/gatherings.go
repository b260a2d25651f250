package purgatory

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/resolve"
	"github.com/graspsync/graspsync/purgatory/internal/syncqueue"
)

// gatherings are what was fetched for repositories and is not part of them yet, and who
// fetches now.
type gatherings struct {
	// set by newGatherings, read-only
	cfg    *Config
	report *report

	mu     sync.Mutex
	places map[graspsync.RepoRef]*place // guarded by mu
}

func newGatherings(cfg *Config, report *report) *gatherings {
	return &gatherings{cfg: cfg, report: report, places: make(map[graspsync.RepoRef]*place)}
}

// atOnce is how many servers are asked for one repository at once.
const atOnce = syncqueue.AtOnce

// place is where the data of one repository is gathered. What states need and what only
// pull requests name is never gathered together, nor what different authors do: anybody can
// write a pull request that has no room, and everything that was gathered with it is thrown
// away.
type place struct {
	turns chan struct{} // taken by each who fetches
	// guarded by gatherings.mu
	all   []*gathering // those that are taken, and those that have something
	users int
}

func newPlace() *place { return &place{turns: make(chan struct{}, atOnce)} }

// remove is called with gatherings.mu held.
func (pl *place) remove(g *gathering) {
	pl.all = slices.DeleteFunc(pl.all, func(o *gathering) bool { return o == g })
}

// gathering is what was fetched for a repository, and is not part of it yet. Its quarantine
// belongs to who has taken it from its place, and to gatherings.mu while nobody has.
type gathering struct {
	whose      whose
	quarantine Quarantine // nil: there is none
	// guarded by gatherings.mu
	taken  bool
	bytes  int64                   // that came into it
	cancel context.CancelCauseFunc // of the fetch under way; nil: there is none
	began  time.Time               // of that, until what it brought is part of the repository
}

// whose says for whom something is gathered: for the states of a repository if it is zero,
// else for the pull requests of an author, or for a commit that those of several name.
type whose struct {
	author graspsync.PubKey
	id     nip34.ObjectID
}

// whoseOf says for whom an object is gathered that only pull requests name.
func whoseOf(n resolve.Need, id nip34.ObjectID) whose {
	if by := n.Authors[id]; by != (graspsync.PubKey{}) {
		return whose{author: by}
	}
	return whose{id: id} // to name what another one names as well makes it nobody else's
}

func (w whose) compare(o whose) int {
	return cmp.Or(w.author.Compare(o.author), resolve.CompareIDs(w.id, o.id))
}

var (
	// errNotNeeded ends a fetch when another one has brought all that is missing.
	errNotNeeded = errors.New("another server has sent it")
	// errGaveWay ends a fetch that takes long while others wait.
	errGaveWay = errors.New("it takes long, and gave way to others")
)

func (gs *gatherings) enter(ref graspsync.RepoRef) *place {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	pl := gs.places[ref]
	if pl == nil {
		pl = newPlace()
		gs.places[ref] = pl
	}
	pl.users++
	return pl
}

// leave keeps what was gathered in a place, as long as there is not too much.
func (gs *gatherings) leave(ref graspsync.RepoRef, pl *place) {
	gs.mu.Lock()
	if pl.users--; pl.users == 0 && len(pl.all) == 0 && gs.places[ref] == pl {
		delete(gs.places, ref)
	}
	over := gs.excess()
	gs.mu.Unlock()
	for _, g := range over {
		gs.report.drop("gathered")
		gs.discard(g)
	}
}

// gathering takes what was gathered for those whom a question is about, or begins anew. Who
// calls it has a turn, and calls giveBack before that is over.
func (gs *gatherings) gathering(pl *place, q question) *gathering {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	for _, g := range pl.all {
		if !g.taken && g.whose == q.whose && !q.several {
			g.taken = true
			return g
		}
	}
	g := &gathering{whose: q.whose, taken: true}
	pl.all = append(pl.all, g)
	return g
}

// request fetches into a gathering. It is ended when another one has brought all that is
// missing.
func (gs *gatherings) request(ctx context.Context, g *gathering, from graspsync.CloneURL, want []nip34.ObjectID) (int64, error) {
	ctx, stop := context.WithTimeout(ctx, gs.cfg.fixed.FetchTimeout)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	gs.mu.Lock()
	g.cancel = cancel
	gs.mu.Unlock()
	n, err := g.quarantine.Fetch(ctx, from, want)
	gs.mu.Lock()
	g.cancel = nil
	gs.mu.Unlock()
	if why := context.Cause(ctx); err != nil && (errors.Is(why, errNotNeeded) || errors.Is(why, errGaveWay)) {
		err = fmt.Errorf("%w (%w)", why, err)
	}
	return n, err
}

// count notes what has come into a gathering. When nothing is missing any more, who
// fetches the same from another server need not go on.
func (gs *gatherings) count(pl *place, g *gathering, seen Fetched, outcome syncqueue.Outcome) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if g.bytes += seen.Bytes; g.quarantine == nil {
		g.bytes = 0
	}
	for _, other := range pl.all {
		if outcome == syncqueue.Complete && other != g && other.cancel != nil {
			other.cancel(errNotNeeded)
		}
	}
}

// giveBack keeps what a gathering has.
func (gs *gatherings) giveBack(pl *place, g *gathering) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	if g.taken = false; g.quarantine == nil {
		pl.remove(g)
	}
}

func (gs *gatherings) began(into *gathering, at time.Time) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	into.began = at
}

// since is when the first of the requests for a repository was made that are under way;
// zero if none is.
func (gs *gatherings) since(ref graspsync.RepoRef) (at time.Time) {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	pl := gs.places[ref]
	if pl == nil {
		return at
	}
	for _, g := range pl.all {
		if !g.began.IsZero() && (at.IsZero() || g.began.Before(at)) {
			at = g.began
		}
	}
	return at
}

// uses reports whether something is being fetched for a repository, or was gathered.
func (gs *gatherings) uses(ref graspsync.RepoRef) bool {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	return gs.places[ref] != nil
}

// bytesOf returns how much has come into a gathering.
func (gs *gatherings) bytesOf(g *gathering) int64 {
	gs.mu.Lock()
	defer gs.mu.Unlock()
	return g.bytes
}

const (
	// maxGathered bounds the gatherings that are kept between two requests.
	maxGathered = 200
	// gatheredShare is the part of what may come for a repository in a day that is kept
	// between two requests for all of one owner, who has any number of them. For all owners
	// it is gatheredDays days.
	gatheredShare = 2
	gatheredDays  = 2
)

// gathered is what is kept for one owner.
type gathered struct {
	bytes int64
	count int
	free  bool // some of it is used by nobody
}

// excess takes away what there is too much of, that nobody uses: of what is kept for one
// owner, and then for whoever has most. It is called with mu held.
func (gs *gatherings) excess() (over []*gathering) {
	for {
		of, all := gs.gathered()
		who, measure, found := gs.beyond(of, all)
		if !found {
			return over
		}
		over = append(over, gs.drop(who, measure))
	}
}

// gathered sums up by owner what is kept. It is called with mu held.
func (gs *gatherings) gathered() (of map[graspsync.PubKey]gathered, all gathered) {
	of = make(map[graspsync.PubKey]gathered)
	for ref, pl := range gs.places {
		x := of[ref.Owner]
		for _, g := range pl.all {
			x.bytes += g.bytes
			x.count++
			x.free = x.free || !g.taken
			all.bytes += g.bytes
			all.count++
		}
		of[ref.Owner] = x
	}
	return of, all
}

// beyond returns for whom too much is kept, and how that is measured. It is called with mu
// held.
func (gs *gatherings) beyond(of map[graspsync.PubKey]gathered, all gathered) (who graspsync.PubKey, measure func(*gathering) int64, found bool) {
	bytes := func(g *gathering) int64 { return g.bytes }
	count := func(*gathering) int64 { return 1 }
	most := func(has func(gathered) int64) {
		for o, x := range of {
			if x.free && (!found || cmp.Or(cmp.Compare(has(x), has(of[who])), o.Compare(who)) > 0) {
				who, found = o, true
			}
		}
	}
	for o, x := range of {
		if x.free && x.bytes > gs.cfg.Limits.MaxRepoDay/gatheredShare {
			return o, bytes, true
		}
	}
	switch {
	case all.bytes > gatheredDays*gs.cfg.Limits.MaxRepoDay:
		most(func(x gathered) int64 { return x.bytes })
		return who, bytes, found
	case all.count > maxGathered:
		most(func(x gathered) int64 { return int64(x.count) })
		return who, count, found
	}
	return who, nil, false
}

// drop takes away what goes first of all that is kept for an owner and that nobody uses:
// of pull requests, which anybody can write, before that of states, and of the author for
// whom there is most; the largest of that, or where all are alike what is had again most
// easily. It is called with mu held.
func (gs *gatherings) drop(owner graspsync.PubKey, measure func(*gathering) int64) *gathering {
	sums := make(map[whose]int64)
	for ref, pl := range gs.places {
		for _, g := range pl.all {
			if ref.Owner == owner {
				sums[g.whose] += measure(g)
			}
		}
	}
	var from graspsync.RepoRef
	var first *gathering
	for ref, pl := range gs.places {
		for _, g := range pl.all {
			if ref.Owner == owner && !g.taken && (first == nil || cmp.Or(pullsFirst(g, first), cmp.Compare(sums[first.whose], sums[g.whose]),
				cmp.Compare(measure(first), measure(g)), cmp.Compare(g.bytes, first.bytes), ref.Compare(from)) < 0) {
				from, first = ref, g
			}
		}
	}
	pl := gs.places[from]
	if pl.remove(first); len(pl.all) == 0 && pl.users == 0 {
		delete(gs.places, from)
	}
	return first
}

func pullsFirst(a, b *gathering) int {
	switch ofStates := (whose{}); {
	case (a.whose == ofStates) == (b.whose == ofStates):
		return 0
	case b.whose == ofStates:
		return -1
	}
	return 1
}

// take keeps others from fetching into a repository, and discards what was gathered
// for it; free is false if something is being fetched. leave must be called once.
func (gs *gatherings) take(ref graspsync.RepoRef) (leave func(), free bool) {
	pl := gs.enter(ref)
	had := 0
	back := func() {
		for range had {
			<-pl.turns
		}
		gs.leave(ref, pl)
	}
	for range atOnce {
		select {
		case pl.turns <- struct{}{}:
			had++
		default:
			back()
			return nil, false
		}
	}
	gs.discardPlace(pl)
	return back, true
}

// discardPlace is called by who has all turns of a place, or when nobody can have one any
// more.
func (gs *gatherings) discardPlace(pl *place) {
	gs.mu.Lock()
	all := pl.all
	pl.all = nil
	gs.mu.Unlock()
	for _, g := range all {
		gs.discard(g)
	}
}

// discard is called by who has the gathering, or when nobody can have it any more.
func (gs *gatherings) discard(g *gathering) {
	if g.quarantine == nil {
		return
	}
	if err := g.quarantine.Discard(); err != nil {
		gs.cfg.Logger.Warn("a quarantine could not be removed", keyError, graspsync.Printable(err.Error()))
	}
	g.quarantine = nil
	gs.mu.Lock()
	defer gs.mu.Unlock()
	g.bytes = 0
}

// forget discards what was gathered for a repository, unless something is being fetched for it.
func (gs *gatherings) forget(ref graspsync.RepoRef) {
	if !gs.uses(ref) {
		return
	}
	if leave, free := gs.take(ref); free {
		leave()
	}
}

func (gs *gatherings) discardAll() {
	gs.mu.Lock()
	places := gs.places
	gs.places = make(map[graspsync.RepoRef]*place)
	gs.mu.Unlock()
	for _, pl := range places {
		gs.discardPlace(pl)
	}
}
