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
	"reflect"
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

// Sealer makes Filters. Those that it made share what they have in common.
type Sealer struct {
	shared func(graspsync.EventID) *graspsync.EventID
	forms  []*form
	lists  map[list]*values
}

// list tells lists of values apart that are shared by several filters.
type list struct {
	first *string
	n     int
}

// NewSealer returns a Sealer. shared returns what stands for an id everywhere, nil if nothing
// does. The ids must not change any more.
func NewSealer(shared func(graspsync.EventID) *graspsync.EventID) *Sealer {
	return &Sealer{shared: shared, lists: make(map[list]*values)}
}

// Seal returns filters that ask for what fs do. As long as the Sealer is used the lists of fs must
// not change: they are told apart by where they are.
func (s *Sealer) Seal(fs []nostr.Filter) Filters {
	out := make(Filters, len(fs))
	for i, f := range fs {
		tag := longestTag(f.Tags)
		if tag != "" {
			out[i].values = s.values(f.Tags[tag])
		}
		out[i].form = s.form(f, tag)
	}
	return out
}

// longestTag returns the tag of one letter with the most values, "" if there is none.
func longestTag(tags nostr.TagMap) (tag string) {
	most := -1
	for name, vs := range tags {
		if letter(name) >= 0 && (len(vs) > most || len(vs) == most && name < tag) {
			tag, most = name, len(vs)
		}
	}
	return tag
}

// letters is how many there are.
const letters = 2 * 26

// letter is the number of a tag of one letter, -1 for other tags.
func letter(tag string) int {
	switch {
	case len(tag) != 1:
	case tag[0] >= 'a' && tag[0] <= 'z':
		return int(tag[0] - 'a')
	case tag[0] >= 'A' && tag[0] <= 'Z':
		return 26 + int(tag[0]-'A')
	}
	return -1
}

func (s *Sealer) form(f nostr.Filter, tag string) *form {
	rest := make(nostr.TagMap, len(f.Tags))
	for name, vs := range f.Tags {
		if tag == "" || name != tag {
			rest[name] = append([]string{}, vs...) // of an empty list no value is wanted, whether it is nil or not
		}
	}
	if f.Tags = nil; len(rest) > 0 {
		f.Tags = rest
	}
	for _, known := range s.forms {
		if known.tag == tag && reflect.DeepEqual(known.rest, f) {
			return known
		}
	}
	made := &form{rest: f.Clone(), tag: tag}
	s.forms = append(s.forms, made)
	return made
}

func (s *Sealer) values(vs []string) *values {
	at := list{n: len(vs)}
	if len(vs) > 0 {
		at.first = &vs[0]
	}
	made, ok := s.lists[at]
	if !ok {
		made = s.sealed(vs)
		s.lists[at] = made
	}
	return made
}

func (s *Sealer) sealed(vs []string) *values {
	v := &values{ids: make([]*graspsync.EventID, 0, len(vs))}
	for _, text := range vs {
		id, ok := parse(text)
		if !ok {
			return textsOf(vs)
		}
		at := s.shared(id)
		if at == nil {
			own := id
			at = &own
		}
		v.ids = append(v.ids, at)
	}
	if !slices.IsSortedFunc(v.ids, compareIDs) {
		slices.SortFunc(v.ids, compareIDs)
	}
	return v
}

func textsOf(vs []string) *values {
	sorted := slices.Sorted(slices.Values(vs))
	v := &values{texts: make([]unique.Handle[string], len(vs))}
	for i, text := range sorted {
		v.texts[i] = unique.Make(text)
	}
	return v
}

// parse returns the id that a text is, if it is spelled as we would.
func parse(text string) (id graspsync.EventID, ok bool) {
	if len(text) != digits {
		return id, false
	}
	for i := range len(text) {
		c := text[i]
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		default:
			return graspsync.EventID{}, false
		}
		id[i/2] = id[i/2]<<4 | c
	}
	return id, true
}

// digits is how many an id has in hex.
const digits = 2 * len(graspsync.EventID{})

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

// Tags are the values that an event has in its tags of one letter. Make them with [TagsOf]: what an
// event is compared to is many filters, mostly.
type Tags struct {
	values []value          // by letter, each once, in order
	from   [letters + 1]int // where those of a letter begin
}

// value is that of a tag of an event.
type value struct {
	text string
	id   graspsync.EventID // if it is one
	isID bool
}

// TagsOf returns the values of an event.
func TagsOf(ev *nostr.Event) *Tags {
	var by [letters][]string
	for _, tag := range ev.Tags {
		if len(tag) > 1 {
			if l := letter(tag[0]); l >= 0 {
				by[l] = append(by[l], tag[1])
			}
		}
	}
	t := &Tags{values: make([]value, 0, len(ev.Tags))}
	for l, texts := range by {
		slices.Sort(texts)
		for _, text := range slices.Compact(texts) { // strangers may repeat one any number of times
			v := value{text: text}
			v.id, v.isID = parse(text)
			t.values = append(t.values, v)
		}
		t.from[l+1] = len(t.values)
	}
	return t
}

// of returns the values of a tag.
func (t *Tags) of(tag string) []value {
	l := letter(tag)
	if l < 0 {
		return nil
	}
	return t.values[t.from[l]:t.from[l+1]]
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
