package plan

import (
	"maps"
	"math/rand/v2"
	"slices"
	"time"
)

// common is what all parts of a plan share: its constants, the step that it takes, and what
// comes of that.
type core struct {
	cfg     Config
	now     time.Time // of this step
	rng     *rand.Rand
	timers  timers
	dirty   []*relayState // to be looked at before the step ends
	effects []Effect
}

// emit adds to what is to be done.
func (c *core) emit(e Effect) { c.effects = append(c.effects, e) }

// markDirty lists a relay for [Plan.advance], at the end of the step.
func (c *core) markDirty(r *relayState) {
	if !r.dirty {
		r.dirty = true
		c.dirty = append(c.dirty, r)
	}
}

// longer lengthens what is periodic, or waited for, by up to a tenth at random, so
// that the servers that lost the same relay do not come back in step.
func (c *core) longer(d time.Duration) time.Duration {
	return d + time.Duration(c.rng.Int64N(int64(d)/10+1))
}

// retryAfter is how long to wait after so many failures in a row.
func (c *core) retryAfter(failures int) time.Duration {
	d := c.cfg.RetryBase
	for range failures - 1 {
		if d *= 2; d >= c.cfg.RetryMax {
			d = c.cfg.RetryMax
			break
		}
	}
	return c.longer(d)
}

// setBack moves times that are noted back.
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

// sortedBy returns the keys of m in order: what is done for each of them must not
// depend on the order of a map.
func sortedBy[K comparable, V any](m map[K]V, compare func(a, b K) int) []K {
	return slices.SortedFunc(maps.Keys(m), compare)
}
