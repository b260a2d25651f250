// Package outage records failing dependencies for status and metrics.
package outage

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/graspsync/graspsync"
)

// Table contains the failing dependencies. All methods may be called concurrently.
type Table struct {
	mu sync.Mutex
	// guarded by mu
	failing map[string]graspsync.Failure
	totals  map[string]uint64
}

// Record records the result of a call to a dependency. A nil error ends its failure.
func (t *Table) Record(of string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err == nil {
		delete(t.failing, of)
		return
	}
	if t.totals == nil {
		t.failing, t.totals = make(map[string]graspsync.Failure), make(map[string]uint64)
	}
	f, known := t.failing[of]
	if !known {
		f = graspsync.Failure{Of: of, Since: time.Now()}
	}
	f.Error = graspsync.Printable(err.Error())
	f.Count++
	t.failing[of] = f
	t.totals[of]++
}

// All returns the failing dependencies, sorted by name.
func (t *Table) All() []graspsync.Failure {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.SortedFunc(maps.Values(t.failing), func(a, b graspsync.Failure) int { return cmp.Compare(a.Of, b.Of) })
}

// Totals returns the number of failures since the start, by dependency.
func (t *Table) Totals() map[string]uint64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.totals)
}
