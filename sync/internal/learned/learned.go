// Package learned is what relays teach by refusing and answering. Their NIP-11
// documents are often wrong; what happened is not. But relays change, so each fact
// is believed for a while only.
package learned

import (
	"encoding/json"
	"fmt"
	"time"
)

// Kind is what a fact is about.
type Kind uint8

// The kinds of facts. The value of the first two is 1.
const (
	// NoNegentropy: the relay does not offer NIP-77.
	NoNegentropy Kind = iota
	// NeedsKinds: it refuses filters without kinds.
	NeedsKinds
	// MaxValues in one list of a filter.
	MaxValues
	// MaxFilters in one REQ.
	MaxFilters
	// MaxSubscriptions open at once, live and historic together.
	MaxSubscriptions
	// MaxMessage: bytes of one message of ours.
	MaxMessage
	// PageSize: events in the largest page that it ever gave.
	PageSize
	// NegentropyMax: events in the largest set that it reconciles.
	NegentropyMax
	// Pace: milliseconds between two requests for history, since it complained of too
	// many.
	Pace
	// MaxRetained: bytes of all requests together that are open.
	MaxRetained
	// NoLimitZero: it refuses filters with "limit": 0. The value is 1.
	NoLimitZero
	// NoNotes: it refuses filters for kind 1, or for no kinds, without authors. The value
	// is 1.
	NoNotes

	kinds // how many there are
)

var names = [kinds]string{
	"no_negentropy", "needs_kinds", "max_values", "max_filters",
	"max_subscriptions", "max_message", "page_size", "negentropy_max", "pace",
	"max_retained", "no_limit_zero", "no_notes",
}

// String returns the name of the kind, as in JSON.
func (k Kind) String() string {
	if k < kinds {
		return names[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

// fact is a value and how long it is believed.
type fact struct {
	Value int       `json:"value"`
	Until time.Time `json:"until"`
}

// Facts are the facts about one relay. The zero value knows nothing. It is a plain
// value; copies are independent of each other.
type Facts struct{ facts [kinds]fact }

// Learn makes value, which must be above 0, what is believed of k before until.
func (f *Facts) Learn(k Kind, value int, until time.Time) {
	f.facts[k] = fact{value, until.Round(0).UTC()}
}

// Forget has nothing believed of k.
func (f *Facts) Forget(k Kind) { f.facts[k] = fact{} }

// Value returns what is believed of k, 0 if nothing.
func (f Facts) Value(k Kind, now time.Time) int {
	if x := f.facts[k]; now.Before(x.Until) {
		return x.Value
	}
	return 0
}

// Known returns everything that is believed, by name.
func (f Facts) Known(now time.Time) map[string]int {
	out := make(map[string]int)
	for k := range kinds {
		if v := f.Value(k, now); v > 0 {
			out[k.String()] = v
		}
	}
	return out
}

// MarshalJSON writes the facts by name.
func (f Facts) MarshalJSON() ([]byte, error) {
	m := make(map[string]fact)
	for k, x := range f.facts {
		if x.Value > 0 {
			m[Kind(k).String()] = x
		}
	}
	return json.Marshal(m)
}

// UnmarshalJSON reads what MarshalJSON wrote. Unknown names and values that can't
// be are ignored: another version may have written them.
func (f *Facts) UnmarshalJSON(data []byte) error {
	var m map[string]fact
	if err := json.Unmarshal(data, &m); err != nil {
		return fmt.Errorf("reading learned facts: %w", err)
	}
	*f = Facts{}
	for k := range kinds {
		if x := m[k.String()]; x.Value > 0 {
			f.facts[k] = x
		}
	}
	return nil
}

// Longest is the longest time for which anything may be believed: Clamp is for
// facts that were read from a disk, written by a clock that may have been wrong.
const Longest = 30 * 24 * time.Hour

// Clamp shortens what is believed for longer than [Longest] from now.
func (f *Facts) Clamp(now time.Time) {
	most := now.Add(Longest).Round(0).UTC()
	for k := range f.facts {
		if f.facts[k].Until.After(most) {
			f.facts[k].Until = most
		}
	}
}
