// Package standing keeps the filters of standing subscriptions in little memory.
//
// What is followed live stands for as long as its connection does, and the same root event is
// followed on every relay that its repository lists: a hub follows millions of values. In a
// [nostr.Filter] a value takes some 100 bytes on each relay. Here it takes 12, most of it a pointer
// to what all relays share (BenchmarkHub). The filters are spelled when a REQ is made of them, and
// let go of again.
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

// Filters are filters of a standing subscription. They are immutable, and may be used
// concurrently.
type Filters []Filter

// Filter is one of them: what is asked for of a value, and the values.
type Filter struct {
	form   *form
	values *values // nil: of no tag
}

// form is what filters have in common that differ only in the values of one tag.
type form struct {
	rest nostr.Filter // all but that tag
	tag  string       // of one letter, as those that can be asked for are (NIP-01); "" for none
}

// values are ids of events or, if one of them is none, texts; in order.
type values struct {
	ids   []*graspsync.EventID
	texts []unique.Handle[string]
}

func compareIDs(a, b *graspsync.EventID) int { return a.Compare(*b) }

// Of returns filters that share ids with no others.
func Of(fs ...nostr.Filter) Filters { return Filters(nil).Sealer().Seal(fs) }

// shared returns what stands for an id in fs, nil if nothing does.
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

// Sealer returns one for filters that ask for the same, or for a part of it, in other forms.
func (fs Filters) Sealer() *Sealer { return NewSealer(fs.shared) }

// Spell returns the filters as they go into a REQ, values in order. Filters that ask for the same
// values share lists: they must not be changed.
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

// MarshalJSON gives what Spell does.
func (fs Filters) MarshalJSON() ([]byte, error) { return json.Marshal(fs.Spell()) }

// spell returns the values. The ids share one allocation: they are kept, and dropped, together.
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

// Form returns what the filter asks for but for its values, and the tag that they are of; "" if
// it has none. The lists must not be changed.
func (f Filter) Form() (rest nostr.Filter, tag string) { return f.form.rest, f.form.tag }

// Forms yields the filters without their values, each form once.
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

// Match reports whether an event with these tags matches one of the filters, as that of a
// [filters.Matcher] does.
func (fs Filters) Match(ev *nostr.Event, tags *Tags) bool {
	return fs.find(func(f *form) (bool, []value) { return f.rest.Matches(ev), tags.of(f.tag) })
}

// Resembles reports whether like is true of the rest of a filter that has one of these values,
// whatever the names of their tags.
func (fs Filters) Resembles(tags *Tags, like func(rest nostr.Filter) bool) bool {
	return fs.find(func(f *form) (bool, []value) { return like(f.rest), tags.values })
}

// find reports whether there is a filter whose form may be that of an event, and that has one of
// the values.
func (fs Filters) find(may func(*form) (bool, []value)) bool {
	type candidates struct {
		form   *form
		may    bool
		values []value
	}
	of := make([]candidates, 0, 8) // as many forms as there are, mostly
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

// hasAny reports whether one of the values of an event is among these; nil has any, and none.
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

// id returns an id that is among the values, nil if it is not. The ends are looked at first: most
// lists have no value near.
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
