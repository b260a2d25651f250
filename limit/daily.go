package limit

import (
	"sync"
	"time"
)

// Daily counts units by key. A key's day begins with its first units and lasts 24 hours. If all
// keys are in use, the key that is idle longest is evicted. Daily is safe for concurrent use.
type Daily[K comparable] struct {
	mu   sync.Mutex
	days *Table[K, Day] // guarded by mu
}

// Day is the number of units since the start of a day.
type Day struct {
	Since time.Time
	Units int64
}

// NewDaily returns counters for at most maxKeys keys.
func NewDaily[K comparable](maxKeys int) *Daily[K] {
	return &Daily[K]{days: NewTable[K, Day](maxKeys, 0)}
}

// Today returns the current day of a key, or the zero Day.
func (d *Daily[K]) Today(key K) Day {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.today(key)
}

func (d *Daily[K]) today(key K) Day {
	if day, ok := d.days.Get(key); ok && time.Since(day.Since) < 24*time.Hour {
		return day
	}
	d.days.Delete(key)
	return Day{}
}

// Add adds units to the day of a key.
func (d *Daily[K]) Add(key K, units int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	day := d.today(key)
	if day.Since.IsZero() {
		day.Since = time.Now()
	}
	day.Units += units
	d.days.Put(key, Stranger{}, 0, day)
}
