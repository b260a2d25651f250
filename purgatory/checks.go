package purgatory

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
	"github.com/graspsync/graspsync/state"
)

// checkRetry is the wait after a failed listing, and while announcements are lost.
const checkRetry = time.Minute

// check first restores repositories that are announced but not in service, and then surveys every
// repository once per period, which is random, so that servers started together do not send their
// requests together. While [Purgatory.Ready] returns ErrLost, it waits, and then begins again.
func (p *Purgatory) check(ctx context.Context) {
	const period = checkPeriod
	wait := func(d time.Duration) bool {
		select {
		case <-time.After(d):
			return true
		case <-ctx.Done():
			return false
		}
	}
	for first, pause := true, time.Duration(0); wait(pause); {
		least := departuresLeast
		announced, there, err := p.listRepositories(ctx)
		if first && err == nil {
			p.restore(announced, there)
			least = 0
		}
		if err == nil {
			err = p.guardDepartures(ctx, announced, there, least)
		}
		switch {
		case err != nil || p.departures.unconfirmed() > 0:
			first, pause = first || err == nil, checkRetry
			continue
		case first:
			first, pause = false, period/10+rand.N(period/10+1)
			continue
		}
		left := leaving(announced, there)
		began := time.Now()
		for i, identifier := range slices.Sorted(maps.Keys(left)) {
			if !wait(time.Until(began.Add(time.Duration(float64(period) * 0.8 * float64(i) / float64(len(left)))))) {
				return
			}
			p.jobs.AddSurvey(identifier, refplan.Reasons{Check: true, Left: left[identifier]})
		}
		pause = time.Until(began.Add(period*9/10 + rand.N(period/10+1)))
	}
}

// leaving returns all identifiers, with the repositories that have no announcement in this listing.
// No other one may leave in this round. Otherwise repositories would leave one by one if the store
// loses events.
func leaving(announced, there map[graspsync.RepoRef]bool) map[string]map[graspsync.RepoRef]bool {
	left := make(map[string]map[graspsync.RepoRef]bool)
	for ref, ours := range announced {
		if ours {
			left[ref.Identifier] = nil
		}
	}
	for ref := range there {
		if left[ref.Identifier] == nil {
			left[ref.Identifier] = make(map[graspsync.RepoRef]bool)
		}
		if !announced[ref] {
			left[ref.Identifier][ref] = true
		}
	}
	return left
}

// guardDepartures keeps all repositories in service if more than least, and more than half, have no
// announcement, because the store may have lost events. Announcements that do not list this service
// count only if one does, because otherwise its name is probably wrong.
func (p *Purgatory) guardDepartures(ctx context.Context, announced, there map[graspsync.RepoRef]bool, least int) error {
	missing := maps.Clone(there)
	listed := slices.Contains(slices.Collect(maps.Values(announced)), true)
	maps.DeleteFunc(missing, func(ref graspsync.RepoRef, _ bool) bool {
		_, known := announced[ref]
		return known && listed
	})
	many := func() bool {
		return len(missing) > least && 2*len(missing) > len(there) || len(missing) > 0 && p.departures.wereKept()
	}
	if many() { // the listing may be incomplete
		for ref := range missing {
			stored, err := p.announcementStored(ctx, ref)
			if err != nil {
				return err
			}
			if stored {
				delete(missing, ref)
			}
		}
	}
	if !many() { // new announcements of strangers release no kept repository
		maps.DeleteFunc(missing, func(ref graspsync.RepoRef, _ bool) bool { return !p.departures.keeps(ref) })
	}
	begins, ends := p.departures.keep(missing, len(there))
	var err error
	switch {
	case begins:
		p.cfg.Logger.Error("most repositories have no announcement, retirement waits for the operator, check the event store and the domain",
			"count", len(missing), "total", len(there))
		err = p.keep.Put(ctx, state.Record{Key: keyDepartures})
	case ends:
		p.cfg.Logger.Info("retirement of repositories without announcement resumed", "total", len(there))
		err = p.keep.Delete(ctx, keyDepartures)
	}
	if err != nil && ctx.Err() == nil {
		p.cfg.Logger.Warn("saving that repositories are kept failed", keyError, graspsync.Printable(err.Error()))
	}
	return nil
}

func (p *Purgatory) restore(announced, there map[graspsync.RepoRef]bool) {
	count := 0
	for ref, ours := range announced {
		if ours && !there[ref] {
			count++
			p.jobs.AddRelease(ref, refplan.Reasons{Check: true})
		}
	}
	if count > 0 {
		p.cfg.Logger.Warn("announced repositories are missing on disk, recreating and fetching them", "count", count)
	}
}

// listRepositories returns the announced repositories, with true if the announcement lists this
// service, and those in service.
func (p *Purgatory) listRepositories(ctx context.Context) (announced, there map[graspsync.RepoRef]bool, err error) {
	if there, err = p.inService(ctx); err == nil {
		announced, err = p.announcedRefs(ctx)
	}
	if err != nil && ctx.Err() == nil {
		p.cfg.Logger.Warn("listing repositories failed", keyError, graspsync.Printable(err.Error()))
	}
	return announced, there, err
}

func (p *Purgatory) inService(ctx context.Context) (map[graspsync.RepoRef]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.fixed.Timeout)
	defer cancel()
	out := make(map[graspsync.RepoRef]bool)
	err := p.repos.eachOf(ctx, graspsync.PubKey{}, func(ref graspsync.RepoRef) { out[ref] = true })
	return out, err
}

// departures are the repositories that stay until the operator confirms their removal. A record on
// the disk says that there are any. After a restart with this record, all repositories without
// announcement stay, because events of the others may have come back.
type departures struct {
	mu sync.Mutex
	// guarded by mu
	recorded bool // at the start, until keep or confirm ends it
	judged   bool
	kept     map[graspsync.RepoRef]bool
	of       int // number of repositories in service
}

// departuresLeast is the number of repositories that may leave in one check, even if they are most
// of all. After a start it is 0, because their announcements may have been lost before.
const departuresLeast = 1

func (d *departures) keep(refs map[graspsync.RepoRef]bool, of int) (begins, ends bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	begins, ends = len(refs) > 0 && len(d.kept) == 0, len(refs) == 0 && (len(d.kept) > 0 || d.recorded)
	d.judged, d.kept, d.of, d.recorded = true, refs, of, d.recorded && !ends
	return begins, ends
}

func (d *departures) wereKept() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.recorded
}

func (d *departures) keeps(ref graspsync.RepoRef) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.kept[ref]
}

func (d *departures) unconfirmed() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.kept)
}

func (d *departures) confirm() []graspsync.RepoRef {
	d.mu.Lock()
	defer d.mu.Unlock()
	refs := slices.Collect(maps.Keys(d.kept))
	d.kept, d.recorded = nil, false
	return refs
}

func (d *departures) err() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case !d.judged:
		return ErrStarting
	case len(d.kept) > 0:
		return fmt.Errorf("%w: %d of %d", ErrLost, len(d.kept), d.of)
	}
	return nil
}
