package purgatory

import (
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/graspsync/graspsync"
)

// departures keeps repositories in service whose announcements are missing, if these are so many that
// the events may be lost, until the operator confirms that they may leave.
type departures struct {
	mu sync.Mutex
	// guarded by mu
	judged bool                       // it is known whether events are lost
	kept   map[graspsync.RepoRef]bool // until the operator confirms
	of     int                        // repositories in service
}

// departuresLeast is how many repositories may leave in one check, even if they are most of those in
// service. At a start none may, because nobody has seen their announcements leave.
const departuresLeast = 1

// keep has none of these repositories leave, of so many that are in service.
func (d *departures) keep(refs map[graspsync.RepoRef]bool, of int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.judged, d.kept, d.of = true, refs, of
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
