package storetest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nbd-wtf/go-nostr"
)

var (
	tagNames  = []string{"a", "A", "e", "E", "q", "p", "t", "d"}
	edgeTimes = []nostr.Timestamp{-1, 0, 1<<32 - 2, 1 << 40}
)

// similar returns values with the beginning of value, values that are too long for many indexes, and
// values that are patterns in some languages.
func similar(value string) []string {
	long := strings.Repeat("v", 300)
	return []string{
		value, value + "s", value + "-cli", value + "e" + long[:9], value + ":1", value + ":", value + "\x00", strings.ToUpper(value),
		value[:1], ":", "%", "_", "a%", "%20", `\`, "ünï", "a b", long, long[:100], long[:101],
	}
}

// corpus returns 2,600 events by 250 authors, with all tags that filters use. Half of the events are
// in one second, because some backends return only a part of a second. The first tag has a name of
// tagNames and one of values.
func corpus(g *gen, values []string) []*nostr.Event {
	authors := g.keys(250)
	events := []*nostr.Event{g.event(authors[0], 1, 0), g.event(authors[0], 1, 1<<32-2)} // 1970 and 2106
	for i := len(events); i < 2600; i++ {
		kind := pick(g, []int{1, kindIssue, 1617, kindComment, 1630, 7, kindAnnouncement, 40000 + i%250})
		at, first := start+200, nostr.Tag{pick(g, tagNames[:7]), pick(g, values)}
		if i%2 == 0 { // many values that are similar to the first one
			at, first = g.time(400), nostr.Tag{"a", pick(g, values[1:7])}
		}
		id := nostr.Tag{"d", fmt.Sprint("repo", i)}
		tags := nostr.Tags{
			first, id, {"t"}, {"alt", "a description"}, {"client", "t1"},
			{"a", address(kindAnnouncement, authors[i%250], fmt.Sprint("repo", i%500)), "wss://x.example"},
			{"p", pick(g, authors)}, {"p", pick(g, authors[:9])}, {[]string{"e", "E", "q"}[i%3], pick(g, events).ID},
		}
		if i%3 == 0 {
			tags = append(tags, nostr.Tag{"A", tags[5][1]}, nostr.Tag{"t", fmt.Sprint("topic", i%300)})
		}
		events = append(events, g.event(pick(g, authors), kind, at, tags...))
	}
	return events
}

// filter returns a random filter that matches some of the events, or nearly matches them.
func (g *gen) filter(events []*nostr.Event) (f nostr.Filter) {
	one := func() *nostr.Event { return pick(g, events) }
	n := pick(g, []int{1, 3, 30, 290})
	if g.IntN(3) == 0 {
		f.Kinds = some(n, func() int { return one().Kind })
	}
	if g.IntN(4) == 0 {
		f.Authors = some(n, func() string { return one().PubKey })
	}
	if g.IntN(8) == 0 {
		f.IDs = some(290, func() string { return one().ID })
	}
	for range g.IntN(3) {
		name := pick(g, tagNames)
		if f.Tags == nil {
			f.Tags = nostr.TagMap{}
		}
		f.Tags[name] = some(n, func() string {
			for {
				if t := one().Tags.Find(name); len(t) > 1 {
					return t[1]
				}
			}
		})
	}
	at := func() *nostr.Timestamp {
		t := one().CreatedAt + nostr.Timestamp(g.IntN(3)-1)
		if g.IntN(4) == 0 {
			t = pick(g, edgeTimes)
		}
		return &t
	}
	if g.IntN(3) == 0 {
		f.Since = at()
	}
	if g.IntN(3) == 0 {
		f.Until = at()
	}
	return f
}

// some returns up to n different values.
func some[T int | string](n int, value func() T) []T {
	values := make([]T, n)
	for i := range values {
		values[i] = value()
	}
	slices.Sort(values)
	return slices.Compact(values)
}

// checkFilters compares the answers to random filters, and to filters for similar values of tags
// whose names differ in case only.
func checkFilters(s *subject) error {
	base := address(kindAnnouncement, s.key(), "repo")
	values := similar(base)
	events := corpus(s.gen, values)
	early, late := start+200, start+300
	filters := []nostr.Filter{
		{}, {Since: &early, Until: &early}, {Since: &late, Until: &early},
		{Kinds: []int{4711}}, {IDs: []string{s.key()}}, {Tags: nostr.TagMap{"a": {s.key()}}},
	}
	for range 100 {
		filters = append(filters, s.filter(events))
	}
	for _, value := range values {
		for _, name := range tagNames[:7] {
			filters = append(filters, nostr.Filter{Tags: nostr.TagMap{name: {value}}})
		}
		filters = append(filters, nostr.Filter{Tags: nostr.TagMap{"a": {base, value}}, Since: &late})
	}
	return s.answers(events, filters...)
}

// checkContent checks that events are read exactly as they were saved.
func checkContent(s *subject) error {
	many := make(nostr.Tag, 200)
	for i := range many {
		many[i] = fmt.Sprint("value ", i)
	}
	events := []*nostr.Event{
		s.event(s.key(), 1, start, nostr.Tag{"t"}, nostr.Tag{"t", ""}, nostr.Tag{"", "x"}, nostr.Tag{"long", strings.Repeat("x", 5000)}),
		s.event(s.key(), 30618, start, many, nostr.Tag{"refs/heads/main", s.hex(20)}),
		s.event(s.key(), 65535, start),
	}
	events[0].Content = "line\nline\ttab \"quoted\" \\ \x00 ünï 🚀 " + strings.Repeat("long ", 10_000)
	events[0].ID = events[0].GetID()
	if err := s.fill(events); err != nil {
		return err
	}
	for _, want := range events {
		for got, err := range s.Events(s.ctx, nostr.Filter{IDs: []string{want.ID}}) {
			if err != nil {
				return fmt.Errorf("Events: %w", err)
			}
			if got.String() != want.String() || got.Sig != want.Sig {
				return fmt.Errorf("saved and read differ:\n%.300s\n%.300s", want, got)
			}
		}
	}
	return s.holds()
}
