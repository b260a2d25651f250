package purgatory

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/seconds"
	"github.com/graspsync/graspsync/internal/seldom"
	"github.com/graspsync/graspsync/nip34"
)

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
	// set once, read-only
	cfg      *Config
	report   *report
	git      containedGit
	schedule *schedule
	quota    *prQuota
	reader   *reader
	mover    *mover
	findings *findings
	inbox    *inbox

	lines seldom.Lines[graspsync.RepoRef]

	mu sync.Mutex
	// guarded by mu
	status MaintenanceStatus
	pass   struct{ packs, looseRefs int } // of the turns since all were due
}

// MaintenanceStatus is what was done to put repositories in order, since the start.
type MaintenanceStatus struct {
	Due     int           `json:"due"` // repositories that wait for their turn
	Runs    uint64        `json:"runs"`
	Failed  uint64        `json:"failed"` // of them
	Pruned  uint64        `json:"pruned"` // of them, in which it was looked for what nothing names
	Took    time.Duration `json:"-"`      // took_seconds
	Locked  time.Duration `json:"-"`      // locked_seconds: the longest time that a repository was locked
	Removed uint64        `json:"packs_removed"`
	Freed   int64         `json:"freed_bytes"`
	// Packs and LooseRefs are those of all repositories together, when all had their turn
	// last.
	Packs     int `json:"packs"`
	LooseRefs int `json:"loose_refs"`
}

// plainMaintenance is a MaintenanceStatus without its methods.
type plainMaintenance MaintenanceStatus

// maintenanceText is a MaintenanceStatus as JSON has it.
type maintenanceText struct {
	plainMaintenance
	Took   seconds.Seconds `json:"took_seconds"`
	Locked seconds.Seconds `json:"locked_seconds"`
}

// MarshalJSON has durations in seconds.
func (m MaintenanceStatus) MarshalJSON() ([]byte, error) {
	return json.Marshal(maintenanceText{plainMaintenance(m), seconds.Seconds(m.Took), seconds.Seconds(m.Locked)})
}

// UnmarshalJSON reads what MarshalJSON gives.
func (m *MaintenanceStatus) UnmarshalJSON(text []byte) error {
	var t maintenanceText
	if err := json.Unmarshal(text, &t); err != nil {
		return err
	}
	*m = MaintenanceStatus(t.plainMaintenance)
	m.Took, m.Locked = time.Duration(t.Took), time.Duration(t.Locked)
	return nil
}

// now is [Purgatory.Maintain].
func (m *maintenance) now(ctx context.Context, ref graspsync.RepoRef) (Maintained, error) {
	return m.maintain(ctx, ref, true)
}

// run has every repository maintained once in a period, and sooner where much comes.
func (m *maintenance) run(ctx context.Context) {
	if m.cfg.NoMaintenance {
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
			m.quota.makeAllDue()
		case <-m.schedule.wake:
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
	if m.schedule.forgive() == 0 { // else the last pass goes on
		m.status.Packs, m.status.LooseRefs = m.pass.packs, m.pass.looseRefs
		m.pass.packs, m.pass.looseRefs = 0, 0
	}
	m.mu.Unlock()
	announced, err := m.reader.announcedRefs(ctx)
	for ref, ours := range announced {
		if ours {
			m.schedule.add(ref)
		}
	}
	if err != nil && ctx.Err() == nil {
		m.cfg.Logger.Warn("not all repositories are known that are to be maintained", keyError, graspsync.Printable(err.Error()))
	}
}

// one maintains the repository whose turn it is; found is false if there is none.
func (m *maintenance) one(ctx context.Context) (took time.Duration, found bool) {
	ref, found := m.schedule.next()
	if !found {
		return 0, false
	}
	began := time.Now()
	done, err := m.maintain(ctx, ref, false)
	took = time.Since(began)
	m.schedule.spent(ref.Owner, took)
	m.mu.Lock()
	m.pass.packs += done.Packs
	m.pass.looseRefs += done.LooseRefs
	m.mu.Unlock()
	if err != nil && ctx.Err() == nil && !errors.Is(err, ErrNoRepository) && m.lines.May(ref, time.Now()) {
		m.cfg.Logger.Warn("a repository could not be maintained", keyRepo, graspsync.Printable(ref.String()), keyError, graspsync.Printable(err.Error()))
	}
	return took, true
}

func (m *maintenance) maintain(ctx context.Context, ref graspsync.RepoRef, now bool) (Maintained, error) {
	ctx, cancel := context.WithTimeout(ctx, upkeepMost)
	defer cancel()
	began := time.Now()
	came := m.quota.at(ref).came
	how := Maintenance{
		Lock:  func(ctx context.Context) (string, func(), error) { return m.mover.enter(ctx, ref, m.cfg.fixed.Timeout) },
		Keep:  func(ctx context.Context) ([]nip34.ObjectID, error) { return m.reader.namedBy(ctx, ref) },
		Grace: m.cfg.Times.Grace, Remember: rememberRefs, Now: now,
	}
	if grace, may := m.quota.mayPrune(ref, began); may && !now {
		how.Prune, how.Grace = true, min(how.Grace, grace)
	} else { // else the objects of strangers' pull requests that wait give way, and are fetched again
		how.Choose = func(context.Context, string) ([]nip34.ObjectID, error) { return m.quota.pending.pullTips(ref), nil }
	}
	done, err := m.git.Maintain(ctx, how)
	if errors.Is(err, ErrNoRepository) { // it was removed before its turn
		return done, fmt.Errorf("maintaining a repository: %w", ErrNoRepository)
	}
	took := time.Since(began)
	if how.Prune && done.Pruned && m.quota.pruned(ref, began, came, done.Unnamed) { // pull requests that waited may have room
		m.findings.touch(ref)
		m.inbox.tell(news{identifier: ref.Identifier})
	} else if how.Prune && err != nil {
		m.quota.pruneFailed(ref, began)
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
		m.cfg.Logger.Info("repository maintained", keyRepo, graspsync.Printable(ref.String()), "packs", done.Packs, "removed", done.Removed,
			"freed", done.Freed, "pruned", done.Pruned, "took", took.Round(time.Millisecond), "locked", done.Locked.Round(time.Millisecond))
	}
	return done, err
}

// snapshot is what was done, at one moment.
func (m *maintenance) snapshot() MaintenanceStatus {
	m.mu.Lock()
	defer m.mu.Unlock()
	st := m.status
	st.Due = m.schedule.due()
	return st
}
