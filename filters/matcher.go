package filters

import (
	"math"
	"slices"

	"github.com/nbd-wtf/go-nostr"
)

// Matcher tells whether an event matches at least one of a set of filters, as
// NIP-01 defines it: all conditions of a filter, since and until included; of a
// tag only its first value. Limits say nothing about an event and are ignored, and
// so is search, whose meaning only the relay knows.
//
// The work for an event is a look at the ends of the lists that a filter has for one of its
// tags, and a binary search in those that its value lies between: of what was split into
// lists in order, as builders do, in one. A Matcher is immutable and may be used concurrently.
type Matcher struct {
	// Every filter is found through one of its lists, in this order of
	// preference; those without any are tried for every event.
	byID     map[string][]*compiled
	byTag    map[string][]byValue // by the name of the tag
	byAuthor map[string][]*compiled
	others   []*compiled
}

// byValue is a filter that is found through the values of a tag.
type byValue struct {
	values values
	rest   *compiled // nil: it has nothing but these
}

// compiled is a filter without the list by which it is found.
type compiled struct {
	kinds        []int // sorted; nil matches all
	authors      values
	tags         []tagValues
	since, until nostr.Timestamp
}

// values is a list in order; nil matches all.
type values []string

type tagValues struct {
	name   string
	values values
}

// Compile makes a Matcher. Without filters it matches nothing. The filters may be changed
// afterwards.
func Compile(fs []nostr.Filter) *Matcher { return compile(fs, false) }

// CompileShared makes a Matcher that shares the lists of the filters that are in order, as those
// of builders are: they must not be changed any more. It takes next to no memory then.
func CompileShared(fs []nostr.Filter) *Matcher { return compile(fs, true) }

func compile(fs []nostr.Filter, shared bool) *Matcher {
	m := &Matcher{}
	for _, f := range fs {
		if !Empty(f) {
			m.add(f, shared)
		}
	}
	return m
}

func (m *Matcher) add(f nostr.Filter, shared bool) {
	if f.IDs == nil && f.Kinds == nil && f.Authors == nil && len(f.Tags) == 1 && f.Since == nil && f.Until == nil {
		for name, list := range f.Tags { // as most filters are, of which there are many
			m.addTag(name, inOrder(list, shared), nil)
		}
		return
	}
	c := compiled{since: math.MinInt64, until: math.MaxInt64}
	if f.Kinds != nil {
		c.kinds = slices.Clone(f.Kinds)
		slices.Sort(c.kinds)
	}
	if f.Since != nil {
		c.since = *f.Since
	}
	if f.Until != nil {
		c.until = *f.Until
	}
	by := "" // the tag by which it is found
	if f.IDs == nil {
		by = longestTag(f.Tags)
	}
	byTag := f.IDs == nil && len(f.Tags) > 0
	for name, list := range f.Tags {
		if !byTag || name != by {
			c.tags = append(c.tags, tagValues{name, inOrder(list, shared)})
		}
	}
	byAuthor := f.IDs == nil && !byTag && f.Authors != nil
	if f.Authors != nil && !byAuthor {
		c.authors = inOrder(f.Authors, shared)
	}
	switch {
	case f.IDs != nil:
		index(&m.byID, f.IDs, &c)
	case byTag:
		m.addTag(by, inOrder(f.Tags[by], shared), &c)
	case byAuthor:
		index(&m.byAuthor, f.Authors, &c)
	default:
		m.others = append(m.others, &c)
	}
}

func (m *Matcher) addTag(name string, of values, rest *compiled) {
	if m.byTag == nil {
		m.byTag = make(map[string][]byValue)
	}
	m.byTag[name] = append(m.byTag[name], byValue{of, rest})
}

// longestTag returns the name with the most values, the most telling one.
func longestTag(tags nostr.TagMap) (name string) {
	most := -1
	for n, list := range tags {
		if len(list) > most {
			name, most = n, len(list)
		}
	}
	return name
}

// index lets a filter be found by keys, of which there are few for long.
func index(to *map[string][]*compiled, keys []string, c *compiled) {
	if *to == nil {
		*to = make(map[string][]*compiled, len(keys))
	}
	// Nearly every key belongs to one filter: those share a slice, which has no
	// room to be appended to in place.
	alone := []*compiled{c}
	for _, k := range keys {
		if others := (*to)[k]; others != nil {
			(*to)[k] = append(others, c)
		} else {
			(*to)[k] = alone
		}
	}
}

// inOrder returns a list in order, the same one if that may be shared.
func inOrder(list []string, shared bool) values {
	if shared && slices.IsSorted(list) {
		return list
	}
	list = slices.Clone(list)
	slices.Sort(list)
	return list
}

// has reports whether v is one of the values.
func (l values) has(v string) bool {
	if len(l) == 0 || v < l[0] || v > l[len(l)-1] {
		return false
	}
	_, ok := slices.BinarySearch(l, v)
	return ok
}

// Match reports whether ev matches one of the filters; a nil event matches none.
// The event's own words are taken for its id and author: nothing is verified.
func (m *Matcher) Match(ev *nostr.Event) bool {
	if ev == nil {
		return false
	}
	if anyMatches(m.others, ev) || anyMatches(m.byID[ev.ID], ev) || anyMatches(m.byAuthor[ev.PubKey], ev) {
		return true
	}
	if len(m.byTag) == 0 {
		return false
	}
	for _, tag := range ev.Tags {
		if len(tag) < 2 {
			continue
		}
		for _, f := range m.byTag[tag[0]] {
			if f.values.has(tag[1]) && (f.rest == nil || f.rest.matches(ev)) {
				return true
			}
		}
	}
	return false
}

func anyMatches(cs []*compiled, ev *nostr.Event) bool {
	for _, c := range cs {
		if c.matches(ev) {
			return true
		}
	}
	return false
}

func (c *compiled) matches(ev *nostr.Event) bool {
	if ev.CreatedAt < c.since || ev.CreatedAt > c.until {
		return false
	}
	if c.kinds != nil {
		if _, ok := slices.BinarySearch(c.kinds, ev.Kind); !ok {
			return false
		}
	}
	if c.authors != nil {
		if !c.authors.has(ev.PubKey) {
			return false
		}
	}
	for _, t := range c.tags {
		if !t.matches(ev.Tags) {
			return false
		}
	}
	return true
}

func (t tagValues) matches(tags nostr.Tags) bool {
	for _, tag := range tags {
		if len(tag) >= 2 && tag[0] == t.name && t.values.has(tag[1]) {
			return true
		}
	}
	return false
}
