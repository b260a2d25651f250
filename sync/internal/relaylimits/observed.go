package relaylimits

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
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

// Believed is for how long most of what a relay has taught is believed.
const Believed = 24 * time.Hour

// MaxAside bounds the values set aside at one relay.
const MaxAside = 1000

// Value is one value of a filter: of a tag, or of the lists "ids" and "authors".
type Value struct{ Tag, Value string }

// Aside is a value that a relay can't stand, and until when that is believed.
type Aside struct {
	Tag   string    `json:"tag"`
	Value string    `json:"value"`
	Until time.Time `json:"until"`
}

// Observed is what a relay has taught. The zero value knows nothing. It is not for
// concurrent use.
type Observed struct {
	Facts
	aside map[Value]time.Time
	cuts  cuts
	forms forms
}

// Page takes in the largest page that a batch has seen, 0 if none.
func (o *Observed) Page(size int, now time.Time) {
	if size > 0 && size >= o.Facts.Value(PageSize, now) {
		o.Learn(PageSize, size, now.Add(Longest))
	}
}

// SetAside has a value left out of what is asked for, if there is room for one more.
func (o *Observed) SetAside(v Value, until time.Time) {
	if o.aside == nil {
		o.aside = make(map[Value]time.Time)
	}
	if len(o.aside) < MaxAside {
		o.aside[v] = until
	}
}

// Aside returns the values that are left out now, in no order, and forgets the others.
func (o *Observed) Aside(now time.Time) (values []Value) {
	for v, until := range o.aside {
		if now.Before(until) {
			values = append(values, v)
		} else {
			delete(o.aside, v)
		}
	}
	return values
}

// AllAside returns the values that are left out, and until when, sorted.
func (o *Observed) AllAside() []Aside {
	out := make([]Aside, 0, len(o.aside))
	for v, until := range o.aside {
		out = append(out, Aside{v.Tag, v.Value, until})
	}
	slices.SortFunc(out, func(a, b Aside) int {
		return cmp.Or(strings.Compare(a.Tag, b.Tag), strings.Compare(a.Value, b.Value))
	})
	return out
}

// cuts are the connections that a relay ended rather than answer a large request.
type cuts struct {
	size   int // the smallest of these requests
	count  int // in a row, none as large answered in between
	took   int // the largest request that it has answered
	tookAt time.Time
}

// How many cuts in a row are taken to be about the size of requests. A relay that has
// answered as large a one within a day is more likely to be one that drops its
// connections for reasons of its own.
const (
	cutsBelieved = 2
	cutsDoubted  = 6
)

// Cut takes in that the relay ended the connection rather than answer a request of
// this size. Once may be chance; the second time it is taken to be why.
func (o *Observed) Cut(size int, now time.Time) {
	c := &o.cuts
	if c.count++; c.count == 1 || size < c.size {
		c.size = size
	}
	needs := cutsBelieved
	if c.size <= c.took && now.Sub(c.tookAt) < Believed {
		needs = cutsDoubted
	}
	if c.count < needs {
		return
	}
	o.Learn(MaxMessage, max(LeastMessage, c.size/2), now.Add(Believed))
	c.size, c.count = 0, 0
}

// Answered takes in that the relay answered a request of this size.
func (o *Observed) Answered(size int, now time.Time) {
	c := &o.cuts
	if size >= c.size {
		c.size, c.count = 0, 0
	}
	if size >= c.took || now.Sub(c.tookAt) >= Believed {
		c.took, c.tookAt = size, now
	}
}
