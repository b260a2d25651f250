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
