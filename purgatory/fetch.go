package purgatory

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/graspsync/graspsync/egress"
	"github.com/graspsync/graspsync/filters"
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
	places  map[filters.RepoRef]*place
	memory  memory
	servers map[egress.Authority]*server // of which something is on the disk, or will be
	hunted  map[filters.RepoRef]*hunted

	gone []string // keys of what had no room

	writing locks[string] // who writes a record has the lock of its key
	changed chan struct{} // one slot: something is not on the disk
	lines   seldom.Lines[line]
}

// line is what a line of the log is about that has a stranger's words: there is one a
// minute of each at most (see [seldom.Lines]).
type line struct{ who, what string }

// place is where the data of one repository is gathered.
type place struct {
	slot       chan struct{} // has one value while somebody fetches into it
	quarantine Quarantine    // nil: there is none; belongs to who has the slot
	users      int           // guarded by fetches.mu
}

func newFetches(p *Purgatory) *fetches {
	return &fetches{
		p: p, places: make(map[filters.RepoRef]*place), memory: newMemory(p.cfg),
		servers: make(map[egress.Authority]*server), hunted: make(map[filters.RepoRef]*hunted),
		changed: make(chan struct{}, 1),
	}
}

// fetch asks one URL for what is missing of a repository. That it does is on the disk
// first: should we not outlive it, the next process must not do it again at once.
func (f *fetches) fetch(ctx context.Context, x hunt.Fetch) hunt.Outcome {
	p, ref, from := f.p, x.Repo, x.URL
	pl := f.enter(ref)
	defer f.leave(ref, pl)
	select {
	case pl.slot <- struct{}{}:
		defer func() { <-pl.slot }()
	case <-ctx.Done():
		return hunt.Nothing
	}
	ask := f.question(ref, from)
	if len(ask.ids) == 0 {
		return hunt.Complete
	}
	if reason := f.refuses(ask); reason != "" {
		p.stats.drop(reason)
		return hunt.Unasked
	}
	written, err := f.begin(ctx, ask, x.Wait)
	if err != nil {
		if ctx.Err() == nil {
			p.stats.drop("unsaved")
			f.warn(line{what: "unsaved"}, "a request could not be saved, and is not made", from, err)
		}
		return hunt.Nothing
	}
	defer written()
	seen := Fetched{Repo: ref, URL: from, Wanted: len(ask.ids), Missing: len(ask.ids)}
	end := p.stats.request(from.Authority.String())
	outcome, err := f.into(ctx, pl, &seen, ask.ids)
	end()
	seen.Err = err
	f.charge(ask, seen, outcome == hunt.Complete)
	p.stats.fetched(seen)
	if err != nil && ctx.Err() == nil {
		f.warn(line{who: from.Authority.Host, what: "failed"}, "fetch failed", from, err)
	}
	p.observe(seen)
	return outcome
}

// warn logs what a stranger had a part in, once in a while.
func (f *fetches) warn(l line, msg string, from egress.URL, err error) {
	if f.lines.May(l, time.Now()) {
		f.p.cfg.Logger.Warn(msg, keyURL, printable(from.String()), keyError, printable(err.Error()))
	}
}

// question is what one URL is asked for of what is missing of a repository now.
func (f *fetches) question(ref filters.RepoRef, from egress.URL) question {
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
func (f *fetches) into(ctx context.Context, pl *place, seen *Fetched, want []nip34.ObjectID) (hunt.Outcome, error) {
	p := f.p
	had := pl.quarantine != nil
	if err := f.gather(ctx, pl, seen, want); err != nil {
		if !had {
			f.discard(pl)
		}
		if errors.Is(err, ErrBroken) {
			return hunt.Broken, err
		}
		return hunt.Nothing, err
	}
	if seen.Missing == len(want) {
		return hunt.Partial, nil
	}
	if err := f.promote(ctx, pl, seen.Repo); err != nil {
		return hunt.Nothing, err
	}
	found, err := p.settle(ctx, seen.Repo.Identifier, causes{})
	if err != nil {
		p.tell(look{identifier: seen.Repo.Identifier})
		return hunt.Partial, err
	}
	if len(found.needs[seen.Repo].ids) == 0 {
		return hunt.Complete, nil
	}
	return hunt.Partial, nil
}

// gather asks a server, and finds out what is missing after that.
func (f *fetches) gather(ctx context.Context, pl *place, seen *Fetched, want []nip34.ObjectID) error {
	if pl.quarantine == nil {
		q, err := f.quarantine(ctx, seen.Repo)
		if err != nil {
			return err
		}
		pl.quarantine = q
	}
	fetching, cancel := context.WithTimeout(ctx, f.p.cfg.FetchTimeout)
	n, err := pl.quarantine.Fetch(fetching, seen.URL, want)
	cancel()
	seen.Bytes = n
	if err != nil {
		if errors.Is(err, errSpoilt) {
			f.discard(pl)
		}
		return err
	}
	f.p.step("fetched")
	ctx, cancel = context.WithTimeout(ctx, f.p.cfg.Timeout)
	defer cancel()
	missing, err := pl.quarantine.Missing(ctx, want)
	if err != nil {
		return err
	}
	seen.Missing = len(missing)
	return nil
}

// quarantine makes a quarantine beside a repository.
func (f *fetches) quarantine(ctx context.Context, ref filters.RepoRef) (Quarantine, error) {
	ctx, cancel := context.WithTimeout(ctx, f.p.cfg.Timeout)
	defer cancel()
	dir, unlock, err := f.p.repos.Lock(ctx, ref)
	if err != nil {
		return nil, fmt.Errorf("locking repository: %w", err)
	}
	defer unlock()
	return f.p.git.Quarantine(ctx, dir)
}

func (f *fetches) promote(ctx context.Context, pl *place, ref filters.RepoRef) error {
	ctx, cancel := context.WithTimeout(ctx, f.p.cfg.Timeout)
	defer cancel()
	_, unlock, err := f.p.repos.Lock(ctx, ref)
	if err != nil {
		return fmt.Errorf("locking repository: %w", err)
	}
	defer unlock()
	q := pl.quarantine
	pl.quarantine = nil
	if err := q.Promote(ctx); err != nil {
		return errors.Join(err, q.Discard())
	}
	f.p.step("promoted")
	f.p.upkeep.brought(ref)
	return nil
}

func (f *fetches) enter(ref filters.RepoRef) *place {
	f.mu.Lock()
	defer f.mu.Unlock()
	pl := f.places[ref]
	if pl == nil {
		pl = &place{slot: make(chan struct{}, 1)}
		f.places[ref] = pl
	}
	pl.users++
	return pl
}

// leave keeps a place that has gathered something, as long as there are not too many.
func (f *fetches) leave(ref filters.RepoRef, pl *place) {
	f.mu.Lock()
	pl.users--
	over := pl.users == 0 && (pl.quarantine == nil || len(f.places) > maxPlaces)
	if over {
		delete(f.places, ref)
	}
	f.mu.Unlock()
	if over {
		f.discard(pl)
	}
}

// maxPlaces bounds the quarantines that are kept between two requests.
const maxPlaces = 100

// take keeps others from fetching into a repository, and discards what was gathered
// for it; free is false if something is being fetched. leave must be called once.
func (f *fetches) take(ref filters.RepoRef) (leave func(), free bool) {
	pl := f.enter(ref)
	select {
	case pl.slot <- struct{}{}:
	default:
		f.leave(ref, pl)
		return nil, false
	}
	f.discard(pl)
	return func() {
		<-pl.slot
		f.leave(ref, pl)
	}, true
}

// discard is called by who has the place, or when nobody can have it any more.
func (f *fetches) discard(pl *place) {
	if pl.quarantine == nil {
		return
	}
	if err := pl.quarantine.Discard(); err != nil {
		f.p.cfg.Logger.Warn("a quarantine could not be removed", keyError, printable(err.Error()))
	}
	pl.quarantine = nil
}

// forget discards what was gathered for a repository that needs it no more.
func (f *fetches) forget(ref filters.RepoRef) {
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
	f.places = make(map[filters.RepoRef]*place)
	f.mu.Unlock()
	for _, pl := range places {
		f.discard(pl)
	}
}

// printable makes a stranger's text fit for a log.
func printable(s string) string { return seldom.Text(s) }
