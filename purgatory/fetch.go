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
	"github.com/graspsync/graspsync/internal/seldom"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/hunt"
)

// fetches are the requests under way. What comes for one repository is gathered in
// one quarantine, whoever sends it, until something is complete.
type fetches struct {
	p *Purgatory

	mu sync.Mutex
	// guarded by mu
	places  map[graspsync.RepoRef]*place
	memory  memory
	servers map[graspsync.HostPort]*server // of which something is on the disk, or will be
	hunted  map[graspsync.RepoRef]*hunted

	gone []string // keys of what had no room

	writing locks[string] // who writes a record has the lock of its key
	changed chan struct{} // one slot: something is not on the disk
	lines   seldom.Lines[line]
}

// line is what a line of the log is about that has a stranger's words: there is one a
// minute of each at most (see [seldom.Lines]).
type line struct{ who, what string }

// atOnce is how many servers are asked for one repository at once.
const atOnce = 2

// place is where the data of one repository is gathered. What states need and what only
// pull requests name is never gathered together, nor what different authors do: anybody can
// write a pull request that has no room, and everything that was gathered with it is thrown
// away.
type place struct {
	turns chan struct{} // taken by each who fetches
	// guarded by fetches.mu
	all   []*gathering // those that are taken, and those that have something
	users int
}

// gathering is what was fetched for a repository, and is not part of it yet. Its quarantine
// belongs to who has taken it from its place, and to fetches.mu while nobody has.
type gathering struct {
	whose      whose
	quarantine Quarantine // nil: there is none
	// guarded by fetches.mu
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

func (w whose) compare(o whose) int {
	return cmp.Or(w.author.Compare(o.author), compareIDs(w.id, o.id))
}

func newPlace() *place { return &place{turns: make(chan struct{}, atOnce)} }

// errNotNeeded ends a fetch when another one has brought all that is missing.
var errNotNeeded = errors.New("another server has sent it")

func newFetches(p *Purgatory) *fetches {
	return &fetches{
		p: p, places: make(map[graspsync.RepoRef]*place), memory: newMemory(p.cfg),
		servers: make(map[graspsync.HostPort]*server), hunted: make(map[graspsync.RepoRef]*hunted),
		changed: make(chan struct{}, 1),
	}
}

// fetch asks one URL for what is missing of a repository. That it does is on the disk
// first: should we not outlive it, the next process must not do it again at once.
// pause is how long the server asks to be left alone.
func (f *fetches) fetch(ctx context.Context, x hunt.Fetch) (outcome hunt.Outcome, pause time.Duration) {
	p, ref, from := f.p, x.Repo, x.URL
	pl := f.enter(ref)
	defer f.leave(ref, pl)
	select {
	case pl.turns <- struct{}{}:
	case <-ctx.Done():
		return hunt.Nothing, 0
	}
	defer func() { <-pl.turns }()
	ask := f.question(ref, from)
	if len(ask.ids) == 0 && !ask.roomless {
		return hunt.Complete, 0
	}
	if reason := f.refuses(ask); reason != "" {
		p.stats.drop(reason)
		return hunt.Unasked, 0
	}
	if err := f.hasRoom(ctx, ask); err != nil {
		f.warn(line{who: ref.Owner.String(), what: "full"}, "nothing is fetched for a repository", from, err)
		return hunt.Unasked, 0
	}
	written, err := f.begin(ctx, ask, x.Wait)
	if err != nil {
		if ctx.Err() == nil {
			p.stats.drop("unsaved")
			f.warn(line{what: "unsaved"}, "a request could not be saved, and is not made", from, err)
		}
		return hunt.Nothing, 0
	}
	defer written()
	into := f.gathering(pl, ask)
	defer f.giveBack(pl, into)
	seen := Fetched{Repo: ref, URL: from, Wanted: len(ask.ids), Missing: len(ask.ids)}
	end := p.stats.request(from.HostPort.String())
	f.began(into, time.Now())
	outcome, err = f.into(ctx, into, &seen, ask.ids)
	if ask.several { // nobody could tell what of it is whose
		f.discard(into)
	}
	f.began(into, time.Time{})
	end()
	seen.Err = err
	f.charge(ask, seen, outcome == hunt.Complete)
	f.count(pl, into, seen, outcome)
	p.stats.fetched(seen)
	if err != nil && ctx.Err() == nil && !errors.Is(err, errNotNeeded) {
		f.warn(line{who: from.HostPort.Host, what: "failed"}, "fetch failed", from, err)
	}
	p.observe(seen)
	var busy *BusyError
	if errors.As(err, &busy) {
		p.stats.drop("busy")
		pause = max(busy.After, 1)
	}
	return outcome, pause
}

// hasRoom returns why nothing can come to a repository now.
func (f *fetches) hasRoom(ctx context.Context, q question) error {
	ctx, cancel := context.WithTimeout(ctx, f.p.cfg.fixed.Timeout)
	defer cancel()
	f.mu.Lock()
	bytes := f.memory.full(q)
	f.mu.Unlock()
	done, err := f.reserve(ctx, q.repo, q.pulls, bytes)
	if err == nil {
		done()
	}
	return err
}

// reserve counts what has no room.
func (f *fetches) reserve(ctx context.Context, ref graspsync.RepoRef, pulls bool, bytes int64) (done func(), err error) {
	if done, err = f.p.repos.reserve(ctx, ref, pulls, bytes); errors.Is(err, ErrFull) {
		f.p.stats.drop("ceiling")
	}
	return done, err
}

func (f *fetches) began(into *gathering, at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	into.began = at
}

// since is when the first of the requests for a repository was made that are under way;
// zero if none is.
func (f *fetches) since(ref graspsync.RepoRef) (at time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	pl := f.places[ref]
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
func (f *fetches) uses(ref graspsync.RepoRef) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.places[ref] != nil
}

// gathering takes what was gathered for those whom a question is about, or begins anew. Who
// calls it has a turn, and calls giveBack before that is over.
func (f *fetches) gathering(pl *place, q question) *gathering {
	f.mu.Lock()
	defer f.mu.Unlock()
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

// giveBack keeps what a gathering has.
func (f *fetches) giveBack(pl *place, g *gathering) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if g.taken = false; g.quarantine == nil {
		pl.remove(g)
	}
}

// remove is called with fetches.mu held.
func (pl *place) remove(g *gathering) {
	pl.all = slices.DeleteFunc(pl.all, func(o *gathering) bool { return o == g })
}

// request fetches into a gathering. It is ended when another one has brought all that is
// missing.
func (f *fetches) request(ctx context.Context, g *gathering, from graspsync.URL, want []nip34.ObjectID) (int64, error) {
	ctx, stop := context.WithTimeout(ctx, f.p.cfg.Times.FetchTimeout)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	f.mu.Lock()
	g.cancel = cancel
	f.mu.Unlock()
	n, err := g.quarantine.Fetch(ctx, from, want)
	f.mu.Lock()
	g.cancel = nil
	f.mu.Unlock()
	if err != nil && errors.Is(context.Cause(ctx), errNotNeeded) {
		err = fmt.Errorf("%w (%w)", errNotNeeded, err)
	}
	return n, err
}

// count notes what has come into a gathering. When nothing is missing any more, who
// fetches the same from another server need not go on.
func (f *fetches) count(pl *place, g *gathering, seen Fetched, outcome hunt.Outcome) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if g.bytes += seen.Bytes; g.quarantine == nil {
		g.bytes = 0
	}
	for _, other := range pl.all {
		if outcome == hunt.Complete && other != g && other.cancel != nil {
			other.cancel(errNotNeeded)
		}
	}
}

// warn logs what a stranger had a part in, once in a while.
func (f *fetches) warn(l line, msg string, from graspsync.URL, err error) {
	if f.lines.May(l, time.Now()) {
		f.p.cfg.Logger.Warn(msg, keyURL, graspsync.Printable(from.String()), keyError, graspsync.Printable(err.Error()))
	}
}

// question is what one URL is asked for of what is missing of a repository now.
func (f *fetches) question(ref graspsync.RepoRef, from graspsync.URL) question {
	f.p.mu.Lock()
	n := f.p.needs[ref.Identifier][ref]
	f.p.mu.Unlock()
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.memory.choose(time.Now(), ref, from, n)
}

func (f *fetches) refuses(q question) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.memory.refuses(time.Now(), q)
}

// charge remembers what a server sent, and what it lacks as long as anything is
// missing.
func (f *fetches) charge(q question, seen Fetched, complete bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.memory.learn(time.Now(), q, seen)
	if complete {
		f.rest(q.repo)
	}
}

// into fetches into a place. What became complete is promoted, and released. A server
// that brought nothing that is wanted is of no use, and has no place filled.
func (f *fetches) into(ctx context.Context, pl *gathering, seen *Fetched, want []nip34.ObjectID) (hunt.Outcome, error) {
	p := f.p
	had := pl.quarantine != nil
	came, err := f.gather(ctx, pl, seen, want)
	if err != nil {
		if !had {
			f.discard(pl)
		}
		if errors.Is(err, ErrBroken) {
			return hunt.Broken, err
		}
		return hunt.Nothing, err
	}
	if len(came) == 0 {
		return hunt.Partial, nil
	}
	if err := f.promote(ctx, pl, seen, came); err != nil {
		return hunt.Nothing, err
	}
	found, err := p.settle(ctx, seen.Repo, causes{late: true}, p.cfg.fixed.Timeout/lockShare)
	if err != nil {
		p.touch(seen.Repo)
	}
	p.rations.unneeded(seen.Repo)
	p.tell(look{identifier: seen.Repo.Identifier, why: causes{gained: map[graspsync.RepoRef]bool{seen.Repo: true}}})
	if err != nil {
		return hunt.Partial, err
	}
	if len(found.need.ids) == 0 {
		return hunt.Complete, nil
	}
	return hunt.Partial, nil
}

// gather asks a server, and finds out what is missing after that. It returns what is not.
func (f *fetches) gather(ctx context.Context, pl *gathering, seen *Fetched, want []nip34.ObjectID) ([]nip34.ObjectID, error) {
	if pl.quarantine == nil {
		q, err := f.quarantine(ctx, seen.Repo)
		if err != nil {
			return nil, err
		}
		pl.quarantine = q
	}
	n, err := f.request(ctx, pl, seen.URL, want)
	seen.Bytes = n
	if err != nil {
		if errors.Is(err, errSpoilt) {
			f.discard(pl)
		}
		return nil, err
	}
	f.p.step("fetched")
	ctx, cancel := context.WithTimeout(ctx, f.p.cfg.fixed.Timeout)
	defer cancel()
	missing, err := pl.quarantine.Missing(ctx, want)
	if err != nil {
		return nil, err
	}
	seen.Missing = len(missing)
	lacks := setOf(missing)
	return slices.DeleteFunc(slices.Clone(want), func(id nip34.ObjectID) bool {
		_, lacking := lacks[id]
		return lacking
	}), nil
}

// quarantine makes a quarantine beside a repository.
func (f *fetches) quarantine(ctx context.Context, ref graspsync.RepoRef) (Quarantine, error) {
	ctx, cancel := context.WithTimeout(ctx, f.p.cfg.fixed.Timeout)
	defer cancel()
	dir, unlock, err := f.p.repos.Lock(ctx, ref)
	if err != nil {
		return nil, fmt.Errorf("locking repository: %w", err)
	}
	defer unlock()
	return f.p.git.Quarantine(ctx, dir)
}

// promote makes what came part of the repository, if anything of it may have a ref there.
func (f *fetches) promote(ctx context.Context, pl *gathering, seen *Fetched, came []nip34.ObjectID) error {
	ref := seen.Repo
	ctx, cancel := context.WithTimeout(ctx, f.p.cfg.fixed.Timeout)
	defer cancel()
	f.mu.Lock()
	bytes := pl.bytes + seen.Bytes // of this one it is not noted yet
	f.mu.Unlock()
	done, err := f.reserve(ctx, ref, pl.whose != (whose{}), bytes)
	if errors.Is(err, ErrFull) { // to ask for all of it again would only bring as much
		f.discard(pl)
		return fmt.Errorf("%w: %w", ErrLimit, err)
	}
	if err != nil {
		return err
	}
	defer done()
	dir, unlock, err := f.p.repos.Lock(ctx, ref)
	if err != nil {
		return fmt.Errorf("locking repository: %w", err)
	}
	defer unlock()
	q := pl.quarantine
	switch room, soon, err := f.p.hasRoomFor(ctx, ref, dir, came, bytes, pl.whose != (whose{})); {
	case err != nil:
		return err
	case !room && soon:
		f.p.stats.drop("pull_unswept")
		pl.quarantine = nil
		return errors.Join(errNoRoom, q.Discard())
	case !room:
		f.p.stats.drop("pull_refs")
		pl.quarantine = nil
		err := errNoRoom
		if bytes == seen.Bytes { // else nobody knows how much of it is whose
			err = fmt.Errorf("%w: %w", ErrLimit, errNoRoom)
		}
		return errors.Join(err, q.Discard())
	}
	pl.quarantine = nil
	if err := q.Promote(ctx); err != nil {
		return errors.Join(err, q.Discard())
	}
	f.p.step("promoted")
	f.p.upkeep.brought(ref)
	if pl.whose != (whose{}) {
		f.p.rations.fetched(ref, bytes)
	}
	return nil
}

func (f *fetches) enter(ref graspsync.RepoRef) *place {
	f.mu.Lock()
	defer f.mu.Unlock()
	pl := f.places[ref]
	if pl == nil {
		pl = newPlace()
		f.places[ref] = pl
	}
	pl.users++
	return pl
}

// leave keeps what was gathered in a place, as long as there is not too much.
func (f *fetches) leave(ref graspsync.RepoRef, pl *place) {
	f.mu.Lock()
	if pl.users--; pl.users == 0 && len(pl.all) == 0 && f.places[ref] == pl {
		delete(f.places, ref)
	}
	over := f.excess()
	f.mu.Unlock()
	for _, g := range over {
		f.p.stats.drop("gathered")
		f.discard(g)
	}
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

// gathered sums up by owner what is kept. It is called with mu held.
func (f *fetches) gathered() (of map[graspsync.PubKey]gathered, all gathered) {
	of = make(map[graspsync.PubKey]gathered)
	for ref, pl := range f.places {
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

// excess takes away what there is too much of, that nobody uses: of what is kept for one
// owner, and then for whoever has most. It is called with mu held.
func (f *fetches) excess() (over []*gathering) {
	for {
		of, all := f.gathered()
		who, measure, found := f.beyond(of, all)
		if !found {
			return over
		}
		over = append(over, f.drop(who, measure))
	}
}

// beyond returns for whom too much is kept, and how that is measured. It is called with mu
// held.
func (f *fetches) beyond(of map[graspsync.PubKey]gathered, all gathered) (who graspsync.PubKey, measure func(*gathering) int64, found bool) {
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
		if x.free && x.bytes > f.p.cfg.Limits.MaxRepoDay/gatheredShare {
			return o, bytes, true
		}
	}
	switch {
	case all.bytes > gatheredDays*f.p.cfg.Limits.MaxRepoDay:
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
func (f *fetches) drop(owner graspsync.PubKey, measure func(*gathering) int64) *gathering {
	sums := make(map[whose]int64)
	for ref, pl := range f.places {
		for _, g := range pl.all {
			if ref.Owner == owner {
				sums[g.whose] += measure(g)
			}
		}
	}
	var from graspsync.RepoRef
	var first *gathering
	for ref, pl := range f.places {
		for _, g := range pl.all {
			if ref.Owner == owner && !g.taken && (first == nil || cmp.Or(pullsFirst(g, first), cmp.Compare(sums[first.whose], sums[g.whose]),
				cmp.Compare(measure(first), measure(g)), cmp.Compare(g.bytes, first.bytes), ref.Compare(from)) < 0) {
				from, first = ref, g
			}
		}
	}
	pl := f.places[from]
	if pl.remove(first); len(pl.all) == 0 && pl.users == 0 {
		delete(f.places, from)
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
func (f *fetches) take(ref graspsync.RepoRef) (leave func(), free bool) {
	pl := f.enter(ref)
	had := 0
	back := func() {
		for range had {
			<-pl.turns
		}
		f.leave(ref, pl)
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
	f.discardPlace(pl)
	return back, true
}

// discardPlace is called by who has all turns of a place, or when nobody can have one any
// more.
func (f *fetches) discardPlace(pl *place) {
	f.mu.Lock()
	all := pl.all
	pl.all = nil
	f.mu.Unlock()
	for _, g := range all {
		f.discard(g)
	}
}

// discard is called by who has the gathering, or when nobody can have it any more.
func (f *fetches) discard(g *gathering) {
	if g.quarantine == nil {
		return
	}
	if err := g.quarantine.Discard(); err != nil {
		f.p.cfg.Logger.Warn("a quarantine could not be removed", keyError, graspsync.Printable(err.Error()))
	}
	g.quarantine = nil
	f.mu.Lock()
	defer f.mu.Unlock()
	g.bytes = 0
}

// forget discards what was gathered for a repository that needs it no more.
func (f *fetches) forget(ref graspsync.RepoRef) {
	f.mu.Lock()
	gathered := f.places[ref] != nil
	f.rest(ref)
	f.mu.Unlock()
	if !gathered {
		return
	}
	if leave, free := f.take(ref); free {
		leave()
	}
}

func (f *fetches) discardAll() {
	f.mu.Lock()
	places := f.places
	f.places = make(map[graspsync.RepoRef]*place)
	f.mu.Unlock()
	for _, pl := range places {
		f.discardPlace(pl)
	}
}
