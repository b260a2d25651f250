package relaylimits

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"
)

// Kind is the subject of a fact.
type Kind uint8

// The values of the first two, and of NoLimitZero and NoNotes, are 1.
const (
	NoNegentropy Kind = iota
	// filters without kinds are refused
	NeedsKinds
	// values in one list of a filter
	MaxValues
	// filters in one REQ
	MaxFilters
	// open subscriptions, live and historic
	MaxSubscriptions
	// bytes of a message to the relay
	MaxMessage
	// events in the largest page that the relay returned
	PageSize
	// events in a reconciled set
	NegentropyMax
	// milliseconds between two requests for history
	Pace
	// bytes of all open requests
	MaxRetained
	// filters with "limit": 0 are refused
	NoLimitZero
	// filters without authors that ask for kind 1 or for all kinds are refused
	NoNotes

	kinds // number of kinds
)

var names = [kinds]string{
	"no_negentropy", "needs_kinds", "max_values", "max_filters",
	"max_subscriptions", "max_message", "page_size", "negentropy_max", "pace",
	"max_retained", "no_limit_zero", "no_notes",
}

func (k Kind) String() string {
	if k < kinds {
		return names[k]
	}
	return fmt.Sprintf("kind(%d)", uint8(k))
}

type fact struct {
	Value int       `json:"value"`
	Until time.Time `json:"until"`
}

// Facts are the facts about one relay. The zero value has none.
type Facts struct{ facts [kinds]fact }

// Learn sets the value of k, which must be above 0, until a time.
func (f *Facts) Learn(k Kind, value int, until time.Time) {
	f.facts[k] = fact{value, until.Round(0).UTC()}
}

// Value returns the value of k, or 0 if it is unknown or expired.
func (f Facts) Value(k Kind, now time.Time) int {
	if x := f.facts[k]; now.Before(x.Until) {
		return x.Value
	}
	return 0
}

// Known returns all unexpired values by name.
func (f Facts) Known(now time.Time) map[string]int {
	out := make(map[string]int)
	for k := range kinds {
		if v := f.Value(k, now); v > 0 {
			out[k.String()] = v
		}
	}
	return out
}

// MarshalJSON encodes the facts by name.
func (f Facts) MarshalJSON() ([]byte, error) {
	m := make(map[string]fact)
	for k, x := range f.facts {
		if x.Value > 0 {
			m[Kind(k).String()] = x
		}
	}
	return json.Marshal(m)
}

// UnmarshalJSON ignores unknown names and impossible values.
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

// MaxFactLifetime is the maximum lifetime of a fact.
const MaxFactLifetime = 30 * 24 * time.Hour

// FactLifetime is the lifetime of most facts.
const FactLifetime = 24 * time.Hour

// MaxExcluded is the maximum number of excluded values per relay.
const MaxExcluded = 1000

// Value is one value of a filter. Tag is a tag name, "ids" or "authors".
type Value struct {
	Tag  string `json:"tag"`
	Text string `json:"value"`
}

// ExcludedValue is a value that a relay does not accept, with its expiry.
type ExcludedValue struct {
	Value
	Until time.Time `json:"until"`
}

// Learned contains everything learned about a relay. It survives a restart. It is not safe for
// concurrent use.
type Learned struct {
	Facts    Facts           `json:"facts"`
	Excluded []ExcludedValue `json:"set_aside,omitempty"`
}

// Page records the size of the largest page of a batch, 0 if none.
func (l *Learned) Page(size int, now time.Time) {
	if size > 0 && size >= l.Facts.Value(PageSize, now) {
		l.Facts.Learn(PageSize, size, now.Add(MaxFactLifetime))
	}
}

// Omit records a value that requests omit, at most [MaxExcluded].
func (l *Learned) Omit(v Value, now, until time.Time) {
	l.Excluded = slices.DeleteFunc(slices.Clone(l.Excluded), func(a ExcludedValue) bool { return a.Value == v || !now.Before(a.Until) })
	if len(l.Excluded) < MaxExcluded {
		l.Excluded = append(l.Excluded, ExcludedValue{v, until})
	}
}

// Omitted returns the values to omit now.
func (l *Learned) Omitted(now time.Time) (values []Value) {
	for _, a := range l.Excluded {
		if now.Before(a.Until) {
			values = append(values, a.Value)
		}
	}
	return values
}

// Clamp removes expired values and limits other lifetimes to [MaxFactLifetime], because the clock may
// have been wrong.
func (l *Learned) Clamp(now time.Time) {
	most := now.Add(MaxFactLifetime).Round(0).UTC()
	for k := range l.Facts.facts {
		if f := &l.Facts.facts[k]; f.Until.After(most) {
			f.Until = most
		}
	}
	l.Excluded = slices.DeleteFunc(l.Excluded, func(v ExcludedValue) bool { return !v.Until.After(now) })
	for i := range l.Excluded {
		if v := &l.Excluded[i]; v.Until.After(most) {
			v.Until = most
		}
	}
}

// Empty reports whether nothing is known.
func (l *Learned) Empty(now time.Time) bool { return len(l.Facts.Known(now))+len(l.Excluded) == 0 }
