package purgatory

import (
	"sync"
	"time"

	"github.com/graspsync/graspsync"
)

// orphanHold is the least time for which the ref of a pull request stays whose event is unknown.
const orphanHold = 20 * time.Minute

// orphans are the refs of pull requests whose events neither wait nor are stored.
type orphans struct {
	mu    sync.Mutex
	found map[graspsync.RepoRef]map[graspsync.EventID]time.Time // guarded by mu; when a check found them
}

func newOrphans() *orphans {
	return &orphans{found: make(map[graspsync.RepoRef]map[graspsync.EventID]time.Time)}
}

// note records all orphans that a check found in a repository. It returns those that were found orphanHold ago.
func (o *orphans) note(ref graspsync.RepoRef, ids []graspsync.EventID, now time.Time) (old []graspsync.EventID) {
	o.mu.Lock()
	defer o.mu.Unlock()
	found := make(map[graspsync.EventID]time.Time, len(ids))
	for _, id := range ids {
		at, again := o.found[ref][id]
		if !again {
			at = now
		}
		found[id] = at
		if now.Sub(at) >= orphanHold {
			old = append(old, id)
		}
	}
	if o.found[ref] = found; len(found) == 0 {
		delete(o.found, ref)
	}
	return old
}

// forget is for a repository that has gone.
func (o *orphans) forget(ref graspsync.RepoRef) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.found, ref)
}
