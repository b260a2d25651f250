// Package standing stores the filters of standing subscriptions in little memory.
//
// Live subscriptions last as long as their connection, and a root event is followed on every relay
// that its repository lists. So a hub follows millions of values. A value in a [nostr.Filter] takes
// about 100 bytes per relay. In [Filters] it takes 12, mostly a pointer to an id shared by all
// relays (BenchmarkHub). [Filters.Spell] makes filters for a REQ, which the caller drops
// afterwards.
package standing

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"iter"
	"maps"
	"slices"
	"strings"
	"unique"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// Filters are the filters of a standing subscription. They are immutable and safe for concurrent
// use.
type Filters []Filter

// Filter is one filter: a form and the values of one tag.
type Filter struct {
	form   *form
	values *values // nil if the form has no tag
}

// form is the common part of filters that differ only in the values of one tag.
type form struct {
	rest nostr.Filter // the filter without that tag
	tag  string       // one letter (NIP-01), "" if none
}

// values are sorted event ids, or sorted texts if at least one value is no id.
type values struct {
	ids   []*graspsync.EventID
	texts []unique.Handle[string]
}

func compareIDs(a, b *graspsync.EventID) int { return a.Compare(*b) }

// Of returns filters that share no memory with other Filters.
func Of(fs ...nostr.Filter) Filters { return Filters(nil).Sealer().Seal(fs) }

// shared returns the pointer to an id in fs, or nil.
func (fs Filters) shared(id graspsync.EventID) *graspsync.EventID {
	for _, f := range fs {
		if f.values != nil {
			if at := f.values.id(id); at != nil {
				return at
			}
		}
	}
	return nil
}

// Sealer returns a Sealer for filters whose values are mostly in fs.
func (fs Filters) Sealer() *Sealer { return NewSealer(fs.shared) }

// Spell returns the filters for a REQ with sorted values. Filters with equal values share lists, so
// the lists must not be changed.
func (fs Filters) Spell() []nostr.Filter {
	out := make([]nostr.Filter, len(fs))
	spelled := make(map[*values][]string)
	for i, f := range fs {
		out[i] = f.form.rest
		if f.values == nil {
			continue
		}
		vs, ok := spelled[f.values]
		if !ok {
			vs = f.values.spell()
			spelled[f.values] = vs
		}
		tags := make(nostr.TagMap, len(out[i].Tags)+1)
		maps.Copy(tags, out[i].Tags)
		tags[f.form.tag] = vs
		out[i].Tags = tags
	}
	return out
}

// MarshalJSON encodes the result of Spell.
func (fs Filters) MarshalJSON() ([]byte, error) { return json.Marshal(fs.Spell()) }

// spell returns the values. The ids share one allocation because they are dropped together.
func (v *values) spell() []string {
	out := make([]string, 0, len(v.ids)+len(v.texts))
	if len(v.ids) == 0 {
		for _, text := range v.texts {
			out = append(out, text.Value())
		}
		return out
	}
	var all strings.Builder
	all.Grow(digits * len(v.ids))
	for _, id := range v.ids {
		var one [digits]byte
		hex.Encode(one[:], id[:])
		all.Write(one[:])
	}
	for i := range v.ids {
		out = append(out, all.String()[digits*i:digits*(i+1)])
	}
	return out
}

// Form returns the filter without its values, and their tag, "" if none. The lists must not be
// changed.
func (f Filter) Form() (rest nostr.Filter, tag string) { return f.form.rest, f.form.tag }

// Forms yields each form once, without values.
func (fs Filters) Forms() iter.Seq[nostr.Filter] {
	return func(yield func(nostr.Filter) bool) {
		var seen []*form
		for _, f := range fs {
			if !slices.Contains(seen, f.form) {
				seen = append(seen, f.form)
				if !yield(f.form.rest) {
					return
				}
			}
		}
	}
}

// Match reports whether an event with these tags matches a filter, like [filters.Matcher.Match].
func (fs Filters) Match(ev *nostr.Event, tags *Tags) bool {
	return fs.find(func(f *form) (bool, []value) { return f.rest.Matches(ev), tags.of(f.tag) })
}

// Resembles reports whether a filter contains one of the values under any tag, and like returns
// true for the rest of the filter.
func (fs Filters) Resembles(tags *Tags, like func(rest nostr.Filter) bool) bool {
	return fs.find(func(f *form) (bool, []value) { return like(f.rest), tags.values })
}

// find reports whether a filter has a form and a value that may returns for it.
func (fs Filters) find(may func(*form) (bool, []value)) bool {
	type candidates struct {
		form   *form
		may    bool
		values []value
	}
	of := make([]candidates, 0, 8) // usual number of forms
	for i := range fs {
		f := &fs[i]
		at := 0
		for at < len(of) && of[at].form != f.form {
			at++
		}
		if at == len(of) {
			c := candidates{form: f.form}
			c.may, c.values = may(f.form)
			of = append(of, c)
		}
		if of[at].may && f.values.hasAny(of[at].values) {
			return true
		}
	}
	return false
}

// hasAny reports whether v contains one of the values. A nil v matches everything.
func (v *values) hasAny(of []value) bool {
	if v == nil {
		return true
	}
	for i := range of {
		if len(v.ids) > 0 && of[i].isID && v.id(of[i].id) != nil || v.hasText(of[i].text) {
			return true
		}
	}
	return false
}

func (v *values) hasText(text string) bool {
	if n := len(v.texts); n == 0 || text < v.texts[0].Value() || text > v.texts[n-1].Value() {
		return false
	}
	_, ok := slices.BinarySearchFunc(v.texts, text, func(h unique.Handle[string], text string) int {
		return cmp.Compare(h.Value(), text)
	})
	return ok
}

// id returns the pointer to an id in v, or nil. It compares the ends first because most lists have
// no value near the id.
func (v *values) id(id graspsync.EventID) *graspsync.EventID {
	if n := len(v.ids); n == 0 || id.Compare(*v.ids[0]) < 0 || id.Compare(*v.ids[n-1]) > 0 {
		return nil
	}
	i, ok := slices.BinarySearchFunc(v.ids, id, func(at *graspsync.EventID, id graspsync.EventID) int { return at.Compare(id) })
	if !ok {
		return nil
	}
	return v.ids[i]
}
