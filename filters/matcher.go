package filters

import (
	"math"
	"slices"

	"github.com/nbd-wtf/go-nostr"
)

// Matcher reports whether an event matches at least one of a set of filters (NIP-01). All
// conditions of a filter count, including since and until. Only the first value of a tag counts.
// Limit and search are ignored, because a limit does not depend on the event and the meaning of
// search depends on the relay.
//
// To match an event, the Matcher compares each tag value with the first and last value of each list
// of that tag, and searches only the lists whose range includes the value. The lists of builders do
// not overlap, so one list is searched. A Matcher is immutable and may be used concurrently.
type Matcher struct {
	// Each filter is indexed by one of its lists, in this order of preference. Filters without
	// lists are tried for every event.
	byID     map[string][]*compiled
	byTag    map[string][]byValue // by the name of the tag
	byAuthor map[string][]*compiled
	others   []*compiled
}

// byValue is a filter that is indexed by the values of a tag.
type byValue struct {
	values values
	rest   *compiled // nil if the filter has no other conditions
}

// compiled is a filter without the list by which it is indexed.
type compiled struct {
	kinds        []int // sorted; nil matches all
	authors      values
	tags         []tagValues
	since, until nostr.Timestamp
}

// values is a sorted list. A nil list matches every value.
type values []string

type tagValues struct {
	name   string
	values values
}

// Compile returns a Matcher of the filters. Without filters it matches nothing. The filters may be
// changed later.
func Compile(fs []nostr.Filter) *Matcher { return compile(fs, false) }

// CompileShared returns a Matcher that shares sorted lists with the filters, such as those of
// builders, to save memory. The filters must not be changed later.
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
		for name, list := range f.Tags { // fast path for filters that have tags only
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
	by := "" // the name of the tag by which the filter is indexed
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

// longestTag returns the name of the tag with the most values, because it excludes most events.
func longestTag(tags nostr.TagMap) (name string) {
	most := -1
	for n, list := range tags {
		if len(list) > most {
			name, most = n, len(list)
		}
	}
	return name
}

func index(to *map[string][]*compiled, keys []string, c *compiled) {
	if *to == nil {
		*to = make(map[string][]*compiled, len(keys))
	}
	// Nearly every key belongs to one filter. Such keys share a slice without spare capacity, so
	// that append copies it.
	alone := []*compiled{c}
	for _, k := range keys {
		if others := (*to)[k]; others != nil {
			(*to)[k] = append(others, c)
		} else {
			(*to)[k] = alone
		}
	}
}

// inOrder returns a sorted list: list itself if shared is set and the list is sorted, else a copy.
func inOrder(list []string, shared bool) values {
	if shared && slices.IsSorted(list) {
		return list
	}
	list = slices.Clone(list)
	slices.Sort(list)
	return list
}

func (l values) has(v string) bool {
	if len(l) == 0 || v < l[0] || v > l[len(l)-1] {
		return false
	}
	_, ok := slices.BinarySearch(l, v)
	return ok
}

// Match reports whether ev matches one of the filters. It returns false for nil. The id and the
// author of ev are not verified.
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
