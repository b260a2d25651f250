package purgatory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/state"
)

// departures keeps repositories in service whose announcements are missing, if these are so many that
// the events may be lost, until the operator confirms that they may leave. A restart does not end that.
type departures struct {
	store state.Store // set by New, read-only

	recorded map[graspsync.RepoRef]bool // the records in the store; owned by the checks

	mu sync.Mutex
	// guarded by mu
	judged bool                       // it is known whether events are lost
	kept   map[graspsync.RepoRef]bool // until the operator confirms
	of     int                        // repositories in service
}

// departuresLeast is how many repositories may leave in one check, even if they are most of those in
// service. At a start none may, because nobody has seen their announcements leave.
const departuresLeast = 1

// load reads the records of before a restart.
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

// keep has none of these repositories leave, of so many that are in service, and records that. It
// reports whether the first of them are kept now, or the last are kept no more.
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

// keeps reports whether a repository is not to leave.
func (d *departures) keeps(ref graspsync.RepoRef) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.kept[ref]
}

// unconfirmed is how many repositories are kept.
func (d *departures) unconfirmed() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.kept)
}

// confirm returns the repositories that were kept. They may leave now.
func (d *departures) confirm() []graspsync.RepoRef {
	d.mu.Lock()
	defer d.mu.Unlock()
	refs := slices.Collect(maps.Keys(d.kept))
	d.kept = nil
	return refs
}

// err is [Purgatory.Ready].
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
