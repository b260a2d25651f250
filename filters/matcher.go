package filters

import (
	"maps"
	"math"
	"slices"

	"github.com/nbd-wtf/go-nostr"
)

// Matcher tells whether an event matches at least one of a set of filters, as
// NIP-01 defines it: all conditions of a filter, since and until included; of a
// tag only its first value. Limits say nothing about an event and are ignored, and
// so is search, whose meaning only the relay knows.
//
// The work for an event is a few map lookups for each of its tags, however many
// filters and values there are. A Matcher is immutable and may be used
// concurrently; the filters it was made from may be changed afterwards.
type Matcher struct {
	// Every filter is found through one of its lists, in this order of
	// preference; those without any are tried for every event.
	byID     map[string][]*compiled
	byTag    map[tagValue][]*compiled
	byAuthor map[string][]*compiled
	others   []*compiled
}

type tagValue struct{ name, value string }

// compiled is a filter without the list by which it is found.
type compiled struct {
	kinds        []int // sorted; nil matches all
	authors      set
	tags         []tagSet
	since, until nostr.Timestamp
}

type set map[string]struct{}

type tagSet struct {
	name   string
	values set
}

// Compile makes a Matcher. Without filters it matches nothing.
func Compile(fs []nostr.Filter) *Matcher {
	tagValues := 0
	for _, f := range fs {
		tagValues += len(f.Tags[longestTag(f.Tags)])
	}
	m := &Matcher{
		byID:     make(map[string][]*compiled),
		byTag:    make(map[tagValue][]*compiled, tagValues),
		byAuthor: make(map[string][]*compiled),
	}
	for _, f := range fs {
		if !Empty(f) {
			m.add(f)
		}
	}
	return m
}

func (m *Matcher) add(f nostr.Filter) {
	c := &compiled{
		kinds: slices.Sorted(slices.Values(f.Kinds)),
		since: math.MinInt64,
		until: math.MaxInt64,
	}
	if f.Since != nil {
		c.since = *f.Since
	}
	if f.Until != nil {
		c.until = *f.Until
	}
	rest := f // what is still to be checked once the filter was found
	switch {
	case f.IDs != nil:
		index(m.byID, f.IDs, c)
		rest.IDs = nil
	case len(f.Tags) > 0:
		name := longestTag(f.Tags)
		keys := make([]tagValue, len(f.Tags[name]))
		for i, v := range f.Tags[name] {
			keys[i] = tagValue{name, v}
		}
		index(m.byTag, keys, c)
		rest.Tags = maps.Clone(f.Tags)
		delete(rest.Tags, name)
	case f.Authors != nil:
		index(m.byAuthor, f.Authors, c)
		rest.Authors = nil
	default:
		m.others = append(m.others, c)
	}
	if rest.Authors != nil {
		c.authors = newSet(rest.Authors)
	}
	for name, values := range rest.Tags {
		c.tags = append(c.tags, tagSet{name, newSet(values)})
	}
}

// longestTag returns the name with the most values, the most telling one.
func longestTag(tags nostr.TagMap) (name string) {
	most := -1
	for n, values := range tags {
		if len(values) > most {
			name, most = n, len(values)
		}
	}
	return name
}

func index[K comparable](to map[K][]*compiled, keys []K, c *compiled) {
	// Nearly every key belongs to one filter: those share a slice, which has no
	// room to be appended to in place.
	alone := []*compiled{c}
	for _, k := range keys {
		if others := to[k]; others != nil {
			to[k] = append(others, c)
		} else {
			to[k] = alone
		}
	}
}

func newSet(values []string) set {
	s := make(set, len(values))
	for _, v := range values {
		s[v] = struct{}{}
	}
	return s
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
		if len(tag) >= 2 && anyMatches(m.byTag[tagValue{tag[0], tag[1]}], ev) {
			return true
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
		if _, ok := c.authors[ev.PubKey]; !ok {
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

func (t tagSet) matches(tags nostr.Tags) bool {
	for _, tag := range tags {
		if len(tag) >= 2 && tag[0] == t.name {
			if _, ok := t.values[tag[1]]; ok {
				return true
			}
		}
	}
	return false
}
