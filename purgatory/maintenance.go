package purgatory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/seldom"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/ledger"
	"github.com/graspsync/graspsync/purgatory/internal/upkeep"
)

// ErrNoMaintainer is returned by [Purgatory.Maintain] if the GitFetcher is no [Maintainer].
var ErrNoMaintainer = errors.New("repositories can't be maintained")

const (
	// upkeepPeriod is the time between two turns of a repository to which little comes.
	// To find out that there is nothing to do takes milliseconds.
	upkeepPeriod = 24 * time.Hour
	// upkeepPushes is after how many pushes and fetches it is a repository's turn at once:
	// each leaves a pack, and each pack costs every reader.
	upkeepPushes = 50
	// upkeepMost bounds the time for one repository. What can't be done in it is not done.
	upkeepMost = time.Hour
	// upkeepRest bounds the pause after each. Up to there, no more than half of one
	// processor's time goes there.
	upkeepRest = time.Minute
	// upkeepDisplaced is how often it is seen to what has given way, where that is much, and
	// upkeepShare how many times as long as the last time took it is left alone after that.
	upkeepDisplaced = time.Minute
	upkeepShare     = 10
	// displacedGrace is the grace of what nothing names where strangers' data has given way:
	// longer than any push or fetch takes. What was the owner's is named by logs. Where that
	// is much others wait for it to go, and it is crowdedGrace: pushes hold the lock, fetches
	// copy what they need of it, so that only who is reading what gave way is cut off.
	displacedGrace = time.Hour
	crowdedGrace   = time.Minute
	// maxUpkeep bounds the repositories that wait for their turn.
	maxUpkeep = 100_000
	// rememberRefs is how long what a ref pointed to can be had back from its log.
	rememberRefs = 30 * 24 * time.Hour
)

// maintenance has our repositories put in order, one after the other.
type maintenance struct {
	p     *Purgatory
	wake  chan struct{} // one slot: something is due
	lines seldom.Lines[graspsync.RepoRef]

	mu sync.Mutex
	// guarded by mu
	queue  *upkeep.Queue
	status MaintenanceStatus
	pass   struct{ packs, looseRefs int } // of the turns since all were due
	prunes map[graspsync.RepoRef]pruning  // of those where something has given way
}

// pruning is when it was looked for what nothing names, and how long that took.
type pruning struct {
	began time.Time
	took  time.Duration
}

// MaintenanceStatus is what was done to put repositories in order, since the start.
type MaintenanceStatus struct {
	Due     int           `json:"due"` // repositories that wait for their turn
	Runs    uint64        `json:"runs"`
	Failed  uint64        `json:"failed"` // of them
	Pruned  uint64        `json:"pruned"` // of them, in which it was looked for what nothing names
	Took    time.Duration `json:"took"`
	Locked  time.Duration `json:"locked"` // the longest time that a repository was locked
	Removed uint64        `json:"packs_removed"`
	Freed   int64         `json:"freed_bytes"`
	// Packs and LooseRefs are those of all repositories together, when all had their turn
	// last.
	Packs     int `json:"packs"`
	LooseRefs int `json:"loose_refs"`
}

func newMaintenance(p *Purgatory) *maintenance {
	return &maintenance{p: p, wake: make(chan struct{}, 1), queue: upkeep.New(maxUpkeep), prunes: make(map[graspsync.RepoRef]pruning)}
}

// Maintain puts one repository in order at once, whatever that costs: when it returns,
// what no ref has and no event names that waits is gone, and so are the logs of refs. It
// is for who must take something down, after the events are gone that name it. The error
// wraps [ErrNoMaintainer], [ErrNoRepository], or [ErrInUse] if it should be called again.
func (p *Purgatory) Maintain(ctx context.Context, ref graspsync.RepoRef) (Maintained, error) {
	if p.git.maintainer == nil {
		return Maintained{}, ErrNoMaintainer
	}
	return p.upkeep.maintain(ctx, ref, true)
}

// run has every repository maintained once in a period, and sooner where much comes.
func (m *maintenance) run(ctx context.Context) {
	if m.p.git.maintainer == nil || m.p.cfg.NoMaintenance {
		return
	}
	timer := time.NewTimer(upkeepPeriod/24 + rand.N(upkeepPeriod/24)) // not while everything starts
	defer timer.Stop()
	much := time.NewTicker(upkeepDisplaced)
	defer much.Stop()
	pause := time.NewTimer(0)
	defer pause.Stop()
	resting := true
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			m.all(ctx)
			timer.Reset(upkeepPeriod + rand.N(upkeepPeriod/10))
		case <-much.C:
			for _, ref := range m.p.rations.crowded() {
				m.displaced(ref)
			}
		case <-m.wake:
		case <-pause.C:
			resting = false
		}
		if resting {
			continue
		}
		if took, found := m.one(ctx); found {
			resting = true
			pause.Reset(min(took, upkeepRest))
		}
	}
}

// all has every repository be due that is served or waits.
func (m *maintenance) all(ctx context.Context) {
	m.mu.Lock()
	if m.queue.Len() == 0 { // else the last pass goes on
		m.status.Packs, m.status.LooseRefs = m.pass.packs, m.pass.looseRefs
		m.pass.packs, m.pass.looseRefs = 0, 0
	}
	m.queue.Forgive()
	m.mu.Unlock()
	identifiers, err := m.p.identifiers(ctx)
	for _, identifier := range identifiers {
		g, gerr := m.p.announced(ctx, identifier, false)
		if gerr != nil {
			err = errors.Join(err, gerr)
			continue
		}
		for _, a := range g.all {
			m.add(a.Ref)
		}
	}
	if err != nil && ctx.Err() == nil {
		m.p.cfg.Logger.Warn("not all repositories are known that are to be maintained", keyError, graspsync.Printable(err.Error()))
	}
}

func (m *maintenance) add(ref graspsync.RepoRef) {
	m.mu.Lock()
	added := m.queue.Add(ref)
	m.mu.Unlock()
	if !added {
		m.p.stats.drop("maintenance")
	}
}

// brought notes that data has come to a repository.
func (m *maintenance) brought(ref graspsync.RepoRef) {
	m.mu.Lock()
	due := m.queue.Pushed(ref, upkeepPushes)
	m.mu.Unlock()
	if due {
		m.rouse()
	}
}

func (m *maintenance) rouse() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// displaced notes that so much has given way in a repository that it is its turn at once,
// or when it may be looked for it again.
func (m *maintenance) displaced(ref graspsync.RepoRef) {
	if _, may := m.mayPrune(ref, m.p.rations.displacedIn(ref), time.Now()); may {
		m.add(ref)
		m.rouse()
	}
}

// mayPrune returns the grace of what nothing names, if it is to be looked for what has given
// way in a repository: as soon as it can go where that is much, else once in a period.
func (m *maintenance) mayPrune(ref graspsync.RepoRef, d displaced, now time.Time) (grace time.Duration, may bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	last := m.prunes[ref]
	rest, grace := max(upkeepShare*last.took, upkeepPeriod), displacedGrace
	if d.bytes >= m.p.rations.much() {
		rest, grace = upkeepShare*last.took, min(crowdedGrace, m.p.cfg.Times.Grace)
		if !last.began.IsZero() && now.Sub(d.since) < grace { // nothing more can have gone
			return 0, false
		}
	}
	if d.bytes <= m.p.rations.little() || now.Sub(last.began) < rest {
		return 0, false
	}
	return grace, true
}

// pruned notes that it was looked for what has given way, of which some may be left.
func (m *maintenance) pruned(ref graspsync.RepoRef, began time.Time, left int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if left == 0 {
		delete(m.prunes, ref)
		return
	}
	m.prunes[ref] = pruning{began, time.Since(began)}
}

// forget is for a repository that is not here any more.
func (m *maintenance) forget(ref graspsync.RepoRef) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.prunes, ref)
}

// one maintains the repository whose turn it is; found is false if there is none.
func (m *maintenance) one(ctx context.Context) (took time.Duration, found bool) {
	m.mu.Lock()
	ref, found := m.queue.Next()
	m.mu.Unlock()
	if !found {
		return 0, false
	}
	began := time.Now()
	done, err := m.maintain(ctx, ref, false)
	took = time.Since(began)
	m.mu.Lock()
	m.queue.Spent(ref.Owner, took)
	m.pass.packs += done.Packs
	m.pass.looseRefs += done.LooseRefs
	m.mu.Unlock()
	if err != nil && ctx.Err() == nil && !errors.Is(err, ErrNoRepository) && m.lines.May(ref, time.Now()) {
		m.p.cfg.Logger.Warn("a repository could not be maintained", keyRepo, graspsync.Printable(ref.String()), keyError, graspsync.Printable(err.Error()))
	}
	return took, true
}

func (m *maintenance) maintain(ctx context.Context, ref graspsync.RepoRef, now bool) (Maintained, error) {
	p := m.p
	ctx, cancel := context.WithTimeout(ctx, upkeepMost)
	defer cancel()
	began := time.Now()
	gone := p.rations.displacedIn(ref)
	var waits map[graspsync.EventID]int64
	how := Maintenance{
		Lock: func(ctx context.Context) (string, func(), error) { return p.enter(ctx, ref, p.cfg.fixed.Timeout) },
		Keep: func(ctx context.Context) ([]nip34.ObjectID, error) { return p.namedBy(ctx, ref) },
		Choose: func(ctx context.Context, dir string) (ids []nip34.ObjectID, err error) {
			ids, waits, err = p.rations.worthKeeping(ctx, ref, dir)
			return ids, err
		},

		Grace: p.cfg.Times.Grace, Remember: rememberRefs, Now: now,
	}
	if grace, may := m.mayPrune(ref, gone, began); may && !now {
		how.Prune, how.Grace = true, min(how.Grace, grace)
	}
	done, err := p.git.maintain(ctx, how)
	if errors.Is(err, ErrNoRepository) { // it was removed before its turn
		return done, fmt.Errorf("maintaining a repository: %w", ErrNoRepository)
	}
	took := time.Since(began)
	if done.Pruned && (gone.bytes > 0 || len(waits) > 0) {
		left := p.rations.pruned(ref, began, gone.bytes, done.Unnamed, waits)
		m.pruned(ref, began, left)
		if done.Unnamed < gone.bytes { // who waited for that has room
			p.touch(ref)
			p.tell(look{identifier: ref.Identifier})
		}
	} else if how.Prune {
		m.pruned(ref, began, gone.bytes) // what takes long and fails is left alone as long as what does not
	}
	m.mu.Lock()
	st := &m.status
	st.Runs++
	if err != nil {
		st.Failed++
	}
	if done.Pruned {
		st.Pruned++
	}
	st.Took += took
	st.Locked = max(st.Locked, done.Locked)
	st.Removed += uint64(done.Removed)
	st.Freed += done.Freed
	m.mu.Unlock()
	if err == nil && (done.Removed > 0 || now) {
		p.cfg.Logger.Info("repository maintained", keyRepo, graspsync.Printable(ref.String()), "packs", done.Packs, "removed", done.Removed,
			"freed", done.Freed, "pruned", done.Pruned, "took", took.Round(time.Millisecond), "locked", done.Locked.Round(time.Millisecond))
	}
	return done, err
}

// namedBy returns the objects that events name of those who have a say in a repository:
// what waits, and the newest state that is stored, of which something may be missing.
func (p *Purgatory) namedBy(ctx context.Context, ref graspsync.RepoRef) (ids []nip34.ObjectID, err error) {
	g, err := p.announced(ctx, ref.Identifier, false)
	if err != nil {
		return nil, err
	}
	r := g.repository(ref)
	if s := g.newestStored(r); s != nil {
		ids = slices.Collect(maps.Values(s.Refs))
	}
	p.mu.Lock()
	entries := p.ledger.Of(ref)
	p.mu.Unlock()
	for _, e := range entries {
		switch {
		case !r.isMember(e.Author):
		case e.Class == ledger.State:
			if s, err := nip34.ParseState(e.Event); err == nil {
				ids = slices.AppendSeq(ids, maps.Values(s.Refs))
			}
		case e.Class == ledger.PullRequest:
			if pr, err := nip34.ParsePullRequest(e.Event); err == nil {
				ids = append(ids, pr.Tip)
			}
		}
	}
	return ids, nil
}

// waitingPulls returns the pull requests that wait, of those of a repository.
func (p *Purgatory) waitingPulls(ref graspsync.RepoRef) (pulls []*nip34.PullRequest) {
	p.mu.Lock()
	entries := p.ledger.Of(ref)
	p.mu.Unlock()
	for _, e := range entries {
		if e.Class != ledger.PullRequest {
			continue
		}
		if pr, err := nip34.ParsePullRequest(e.Event); err == nil {
			pulls = append(pulls, pr)
		}
	}
	return pulls
}

// snapshot is what was done, at one moment.
func (m *maintenance) snapshot() MaintenanceStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	st := m.status
	st.Due = m.queue.Len()
	return st
}
