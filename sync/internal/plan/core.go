package plan

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/graspsync/graspsync/internal/backoff"
)

// core is embedded by all parts of a plan: the constants, the current step and its effects.
type core struct {
	cfg     Config
	now     time.Time // of this step
	rng     *rand.Rand
	timers  timers
	dirty   []*relayState // relays to advance in this step
	effects []Effect
}

func (c *core) emit(e Effect) { c.effects = append(c.effects, e) }

// markDirty schedules [Plan.advance] for a relay at the end of the step.
func (c *core) markDirty(r *relayState) {
	if !r.dirty {
		r.dirty = true
		c.dirty = append(c.dirty, r)
	}
}

// longer adds a random part of up to 1/10, so that servers that lost the same relay do not
// reconnect simultaneously.
func (c *core) longer(d time.Duration) time.Duration {
	return d + time.Duration(c.rng.Int64N(int64(d)/10+1))
}

// retryAfter returns the wait after this number of consecutive failures.
func (c *core) retryAfter(failures int) time.Duration {
	return c.longer(backoff.Doubled(c.cfg.RetryBase, c.cfg.RetryMax, failures))
}

// setBack moves the nonzero times back by a duration.
func setBack(by time.Duration, times ...*time.Time) {
	for _, t := range times {
		if !t.IsZero() {
			*t = t.Add(-by)
		}
	}
}

// without returns the keys of m that are not in named.
func without[K comparable, V any](m map[K]V, named map[K]struct{}) map[K]struct{} {
	out := make(map[K]struct{})
	for k := range m {
		if _, ok := named[k]; !ok {
			out[k] = struct{}{}
		}
	}
	return out
}

// sortedBy returns the keys of m in order, so that effects do not depend on the order of a map.
func sortedBy[K comparable, V any](m map[K]V, compare func(a, b K) int) []K {
	return slices.SortedFunc(maps.Keys(m), compare)
}

func put(m *map[Item]struct{}, it Item) {
	if *m == nil {
		*m = make(map[Item]struct{})
	}
	(*m)[it] = struct{}{}
}

// drop removes an item, and frees the memory of an empty set.
func drop(m *map[Item]struct{}, it Item) {
	if delete(*m, it); len(*m) == 0 {
		*m = nil
	}
}

func has(m map[Item]struct{}, it Item) bool {
	_, ok := m[it]
	return ok
}
