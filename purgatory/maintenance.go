package purgatory

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/loglimit"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/gitops"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

const (
	// upkeepPeriod is the time between two runs for a repository with few changes.
	upkeepPeriod = 24 * time.Hour
	// upkeepPushes is the number of pushes and fetches after which a repository is due immediately,
	// because each leaves a pack that slows down every reader.
	upkeepPushes = 50
	// upkeepMost is the maximum time for one repository.
	upkeepMost = time.Hour
	// upkeepRest is the maximum pause after a run, which is otherwise as long as the run.
	upkeepRest = time.Minute
	// upkeepDisplaced is the time between two searches for displaced pull requests. After a prune,
	// the next one waits upkeepShare times as long as the last one took.
	upkeepDisplaced = time.Minute
	upkeepShare     = 10
	// crowdedGrace is the grace of unnamed objects while pull requests wait for room. Only clients
	// that read evicted data are cut off.
	crowdedGrace = time.Minute
	// maxUpkeep is the maximum number of due repositories.
	maxUpkeep = 100_000
	// rememberRefs is the time for which old targets of a ref stay in its reflog.
	rememberRefs = 30 * 24 * time.Hour
)

// maintenance holds the due repositories. One is maintained at a time, round-robin by owner.
type maintenance struct {
	report *report
	table  *repoTable
	places *limit.Slots
	turns  chan graspsync.RepoRef
	place  *limit.Slot // of the repository in turns
	lines  loglimit.Limiter[graspsync.RepoRef]

	mu sync.Mutex
	// guarded by mu
	due    map[graspsync.RepoRef]struct{}
	status MaintenanceStatus
	pass   struct{ packs int } // sums of the current pass over all repositories
}

func newMaintenance(report *report, table *repoTable) *maintenance {
	return &maintenance{
		report: report, table: table, places: limit.NewSlots(1, 1), turns: make(chan graspsync.RepoRef, 1), due: make(map[graspsync.RepoRef]struct{}),
	}
}

func (m *maintenance) add(ref graspsync.RepoRef) {
	m.mu.Lock()
	_, due := m.due[ref]
	full := len(m.due) >= maxUpkeep
	if !due && !full {
		m.due[ref] = struct{}{}
		m.table.change(ref, func(s *repoState) { s.pushes = 0 })
	}
	m.mu.Unlock()
	switch {
	case due:
	case full:
		m.report.drop("maintenance")
	default:
		m.places.Queue(limit.Stranger{ID: ref.Owner.String()}, 1, func(place *limit.Slot) {
			m.place = place
			m.turns <- ref
		})
	}
}

func (m *maintenance) brought(ref graspsync.RepoRef) {
	due := false
	m.table.change(ref, func(s *repoState) {
		s.pushes++
		due = s.pushes >= upkeepPushes
	})
	if due {
		m.add(ref)
	}
}

// begin starts a new pass, if the last one is complete, and publishes its sums.
func (m *maintenance) begin() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.due) == 0 { // else the last pass goes on
		m.status.Packs, m.pass.packs = m.pass.packs, 0
	}
}

// MaintenanceStatus counts the maintenance since the start.
type MaintenanceStatus struct {
	Due    int    `json:"due"`
	Runs   uint64 `json:"runs"`
	Failed uint64 `json:"failed"`
	Pruned uint64 `json:"pruned"` // runs that searched unnamed objects
	Freed  int64  `json:"freed_bytes"`
	Packs  int    `json:"packs"` // in all repositories, in the last complete pass
}

func (m *maintenance) snapshot() MaintenanceStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	st := m.status
	st.Due = len(m.due)
	return st
}

func (m *maintenance) count(done Maintained, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	st := &m.status
	st.Runs++
	if err != nil {
		st.Failed++
	}
	if done.Pruned {
		st.Pruned++
	}
	st.Freed += done.Freed
}

func (p *Purgatory) runMaintenance(ctx context.Context) {
	if p.cfg.NoMaintenance {
		return
	}
	timer := time.NewTimer(upkeepPeriod/24 + rand.N(upkeepPeriod/24))
	defer timer.Stop()
	much := time.NewTicker(upkeepDisplaced)
	defer much.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			p.maintenance.begin()
			p.maintainAll(ctx)
			timer.Reset(upkeepPeriod + rand.N(upkeepPeriod/10))
		case <-much.C:
			p.makeAllPrunesDue()
		case ref := <-p.maintenance.turns:
			took := p.maintainNext(ctx, ref)
			time.AfterFunc(min(took, upkeepRest), p.maintenance.place.Release)
		}
	}
}

func (p *Purgatory) maintainAll(ctx context.Context) {
	announced, err := p.announcedRefs(ctx)
	for ref, ours := range announced {
		if ours {
			p.maintenance.add(ref)
		}
	}
	if err != nil && ctx.Err() == nil {
		p.cfg.Logger.Warn("listing repositories for maintenance failed", keyError, graspsync.Printable(err.Error()))
	}
}

func (p *Purgatory) maintainNext(ctx context.Context, ref graspsync.RepoRef) (took time.Duration) {
	m := p.maintenance
	m.mu.Lock()
	delete(m.due, ref)
	m.mu.Unlock()
	began := time.Now()
	done, err := p.maintain(ctx, ref, false)
	m.mu.Lock()
	m.pass.packs += done.Packs
	m.mu.Unlock()
	if err != nil && ctx.Err() == nil && !errors.Is(err, ErrNoRepository) && m.lines.Allow(ref, time.Now()) {
		p.cfg.Logger.Warn("maintaining a repository failed", keyRepo, graspsync.Printable(ref.String()), keyError, graspsync.Printable(err.Error()))
	}
	return time.Since(began)
}

func (p *Purgatory) maintain(ctx context.Context, ref graspsync.RepoRef, now bool) (done Maintained, err error) {
	defer p.report.recovered(&err, ofGit)
	ctx, cancel := context.WithTimeout(ctx, upkeepMost)
	defer cancel()
	began := time.Now()
	came := p.table.get(ref).pulls.came
	how := gitops.Maintenance{
		Lock: func(ctx context.Context) (string, func(), error) {
			return p.refUpdater.Lock(ctx, ref, p.cfg.fixed.Timeout)
		},
		Keep:  func(ctx context.Context) ([]nip34.ObjectID, error) { return p.namedBy(ctx, ref) },
		Grace: p.cfg.Times.Grace, Remember: rememberRefs, Now: now,
	}
	if !now && p.mayPrune(ref, began) {
		how.Prune, how.Grace = true, min(how.Grace, crowdedGrace)
	} else { // else the objects of strangers' pull requests that wait give way, and are fetched again
		how.Choose = func(context.Context, string) ([]nip34.ObjectID, error) { return p.pending.pullTips(ref), nil }
	}
	done, err = p.git.Maintain(ctx, how)
	p.report.recordResult(ofGit+" maintain", err)
	if errors.Is(err, ErrNoRepository) { // the repository was removed before its turn
		return done, fmt.Errorf("maintaining a repository: %w", ErrNoRepository)
	}
	took := time.Since(began)
	if how.Prune && done.Pruned && p.recordPrune(ref, began, came, done.Unnamed) { // held pull requests may have room
		p.jobs.AddRelease(ref, refplan.Reasons{})
	} else if how.Prune && err != nil {
		p.recordPrune(ref, began, 0, 0)
	}
	p.maintenance.count(done, err)
	if err == nil && (done.Freed != 0 || now) {
		p.cfg.Logger.Info("repository maintained", keyRepo, graspsync.Printable(ref.String()), "packs", done.Packs,
			"freed", done.Freed, "pruned", done.Pruned, "took", took.Round(time.Millisecond))
	}
	return done, err
}
