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
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
	"github.com/graspsync/graspsync/state"
)

// checkRetry is the wait after a failed listing of the repositories, and between two searches for
// lost announcements.
const checkRetry = time.Minute

// check surveys every announced or served repository once per period, spread over the period. The
// period is random, so that servers started together do not send their requests together.
func (p *Purgatory) check(ctx context.Context) {
	p.findLost(ctx)
	timer := time.NewTimer(p.cfg.fixed.Check/10 + rand.N(p.cfg.fixed.Check/10+1))
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		announced, there, err := p.listRepositories(ctx)
		if err != nil {
			timer.Reset(checkRetry)
			continue
		}
		if err := p.judge(ctx, announced, there, departuresLeast); err != nil || p.departures.unconfirmed() > 0 {
			p.findLost(ctx)
			timer.Reset(checkRetry)
			continue
		}
		// Only a repository without announcement in this listing may leave in this round. Otherwise
		// repositories would leave one by one if the store loses events during the round.
		left := make(map[string]map[graspsync.RepoRef]bool)
		for ref, ours := range announced {
			if ours {
				left[ref.Identifier] = nil
			}
		}
		for ref := range there {
			of := left[ref.Identifier]
			if of == nil {
				of = make(map[graspsync.RepoRef]bool)
				left[ref.Identifier] = of
			}
			if !announced[ref] {
				of[ref] = true
			}
		}
		identifiers := slices.Sorted(maps.Keys(left))
		began := time.Now()
		for i, identifier := range identifiers {
			at := began.Add(time.Duration(float64(p.cfg.fixed.Check) * 0.8 * float64(i) / float64(len(identifiers))))
			timer.Reset(time.Until(at))
			select {
			case <-timer.C:
			case <-ctx.Done():
				return
			}
			p.inbox.tell(surveyRequest{identifier: identifier, why: refplan.Reasons{Check: true, Left: left[identifier]}})
		}
		timer.Reset(time.Until(began.Add(p.cfg.fixed.Check*9/10 + rand.N(p.cfg.fixed.Check/10+1))))
	}
}

// findLost surveys and logs the repositories that are announced but not in service, because a
// folder may be lost and the next check may be an hour away. While most repositories have no
// announcement, findLost blocks until the operator confirms their removal or their events return.
func (p *Purgatory) findLost(ctx context.Context) {
	for {
		announced, there, err := p.listRepositories(ctx)
		if err == nil {
			p.restore(announced, there)
			err = p.judge(ctx, announced, there, 0)
		}
		if err == nil && p.departures.unconfirmed() == 0 {
			return
		}
		select {
		case <-time.After(checkRetry):
		case <-ctx.Done():
			return
		}
	}
}

// judge keeps all repositories in service if more than least of them, and more than half, have no
// announcement, because the store may have lost events.
func (p *Purgatory) judge(ctx context.Context, announced, there map[graspsync.RepoRef]bool, least int) error {
	missing := maps.Clone(there)
	maps.DeleteFunc(missing, func(ref graspsync.RepoRef, _ bool) bool {
		_, known := announced[ref]
		return known
	})
	many := func() bool { return len(missing) > least && 2*len(missing) > len(there) }
	if many() { // the listing may be incomplete
		for ref := range missing {
			accepted, err := p.reader.accepted(ctx, ref)
			if err != nil {
				return err
			}
			if accepted {
				delete(missing, ref)
			}
		}
	}
	if !many() { // kept repositories stay kept, even if strangers announce more
		maps.DeleteFunc(missing, func(ref graspsync.RepoRef, _ bool) bool { return !p.departures.keeps(ref) })
	}
	begins, ends, err := p.departures.keep(ctx, missing, len(there))
	switch {
	case begins:
		p.cfg.Logger.Error("most repositories have no announcement, retirement waits for the operator, check the event store",
			"count", len(missing), "total", len(there))
	case ends:
		p.cfg.Logger.Info("retirement of repositories without announcement resumed", "total", len(there))
	}
	if err != nil && ctx.Err() == nil {
		p.cfg.Logger.Warn("saving records of kept repositories failed", keyError, graspsync.Printable(err.Error()))
	}
	return nil
}

func (p *Purgatory) restore(announced, there map[graspsync.RepoRef]bool) {
	count := 0
	for ref, ours := range announced {
		if ours && !there[ref] {
			count++
			p.table.touch(ref)
			p.inbox.tell(surveyRequest{identifier: ref.Identifier, why: refplan.Reasons{Check: true}})
		}
	}
	if count > 0 {
		p.cfg.Logger.Warn("announced repositories are missing on disk, recreating and fetching them", "count", count)
	}
}

// listRepositories returns the announced repositories and the repositories in service. An announced
// repository has the value true if its announcement lists this service.
func (p *Purgatory) listRepositories(ctx context.Context) (announced, there map[graspsync.RepoRef]bool, err error) {
	if there, err = p.inService(ctx); err == nil {
		announced, err = p.reader.announcedRefs(ctx)
	}
	if err != nil && ctx.Err() == nil {
		p.cfg.Logger.Warn("listing repositories failed", keyError, graspsync.Printable(err.Error()))
	}
	return announced, there, err
}

// offer sends an item without blocking. The hourly check makes up for an item without room.
func offer[T any](r *report, to chan<- T, item T) {
	select {
	case to <- item:
	default:
		r.drop("inbox")
	}
}

// each calls do for each item until ctx ends.
func each[T any](ctx context.Context, items <-chan T, do func(ctx context.Context, item T)) {
	for {
		select {
		case item := <-items:
			do(ctx, item)
		case <-ctx.Done():
			return
		}
	}
}

// ownedBy surveys the repositories of the author of a deletion, who may have deleted an
// announcement or a deciding state.
func (p *Purgatory) ownedBy(ctx context.Context, owner graspsync.PubKey) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.fixed.Timeout)
	defer cancel()
	err := p.repos.eachOf(ctx, owner, func(ref graspsync.RepoRef) {
		p.inbox.tell(surveyRequest{identifier: ref.Identifier, why: refplan.Reasons{
			Left: map[graspsync.RepoRef]bool{ref: true}, Deleters: map[graspsync.PubKey]bool{owner: true},
		}})
	})
	if err != nil && ctx.Err() == nil {
		p.cfg.Logger.Warn("listing repositories failed", keyError, graspsync.Printable(err.Error()))
	}
}

func (p *Purgatory) inService(ctx context.Context) (map[graspsync.RepoRef]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.fixed.Timeout)
	defer cancel()
	out := make(map[graspsync.RepoRef]bool)
	err := p.repos.eachOf(ctx, graspsync.PubKey{}, func(ref graspsync.RepoRef) { out[ref] = true })
	return out, err
}

// departures keeps repositories without announcement in service until the operator confirms their
// removal, if there are so many that the store may have lost events. The records survive a restart.
type departures struct {
	store state.Store // set by New, read-only

	recorded map[graspsync.RepoRef]bool // repositories with a record in the store; owned by the checks

	mu sync.Mutex
	// guarded by mu
	judged bool                       // keep was called since the start
	kept   map[graspsync.RepoRef]bool // until the operator confirms their removal
	of     int                        // number of repositories in service
}

// departuresLeast is the number of repositories that may leave in one check, even if they are most
// of the repositories in service. After a start the number is 0, because their announcements may
// have been lost before.
const departuresLeast = 1

// load reads the records of an earlier process.
func (d *departures) load(ctx context.Context) error {
	d.recorded, d.kept = make(map[graspsync.RepoRef]bool), make(map[graspsync.RepoRef]bool)
	return readEach(ctx, d.store, keyKept, func(key string, value []byte) error {
		ref, err := graspsync.ParseRepoRef(string(value))
		if err != nil || hashed(ref) != key {
			return d.store.Delete(ctx, keyKept+key)
		}
		d.recorded[ref], d.kept[ref] = true, true
		return nil
	})
}

// keep replaces the set of kept repositories and its records; of is the number of repositories in
// service. begins reports whether the set was empty before and is not now, ends whether the last
// record was deleted.
func (d *departures) keep(ctx context.Context, refs map[graspsync.RepoRef]bool, of int) (begins, ends bool, err error) {
	d.mu.Lock()
	begins = len(refs) > 0 && (!d.judged || len(d.kept) == 0)
	d.judged, d.kept, d.of = true, refs, of
	d.mu.Unlock()
	had := len(d.recorded) > 0
	var puts []state.Record
	for ref := range refs {
		if !d.recorded[ref] {
			puts = append(puts, state.Record{Key: keyKept + hashed(ref), Value: []byte(ref.String())})
		}
	}
	if len(puts) > 0 {
		err = d.store.Put(ctx, puts...)
		for ref := range refs {
			d.recorded[ref] = d.recorded[ref] || err == nil
		}
	}
	var deletes []string
	for ref := range d.recorded {
		if !refs[ref] {
			deletes = append(deletes, keyKept+hashed(ref))
		}
	}
	if len(deletes) > 0 {
		derr := d.store.Delete(ctx, deletes...)
		if derr == nil {
			maps.DeleteFunc(d.recorded, func(ref graspsync.RepoRef, _ bool) bool { return !refs[ref] })
		}
		err = errors.Join(err, derr)
	}
	return begins, had && len(d.recorded) == 0, err
}

// keeps reports whether a repository must stay in service.
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
	d.kept = nil
	return refs
}

// err implements [Purgatory.Ready].
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
