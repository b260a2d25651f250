package storetest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

var (
	tagNames  = []string{"a", "A", "e", "E", "q", "p", "t", "d"}
	edgeTimes = []nostr.Timestamp{-1, 0, 1<<32 - 2, 1 << 40}
)

// corpus returns 2,600 events by 250 authors, with all tags that filters use. Half of them are in
// one second, because some backends return only a part of these.
func corpus(g *gen) []*nostr.Event {
	authors := g.keys(250)
	events := []*nostr.Event{g.event(authors[0], 1, 0), g.event(authors[0], 1, 1<<32-2)} // 1970 and 2106
	for i := len(events); i < 2600; i++ {
		kind := pick(g, []int{1, kindIssue, 1617, kindComment, 1630, 7, kindAnnouncement, 40000 + i%250})
		at := start + 200
		if i%2 == 0 {
			at = g.time(400)
		}
		tags := nostr.Tags{
			{"d", fmt.Sprint("repo", i)}, {"t"}, {"alt", "a description"}, {"client", "t1"},
			{"a", address(kindAnnouncement, authors[i%250], fmt.Sprint("repo", i%500)), "wss://x.example"},
			{"p", pick(g, authors)}, {"p", pick(g, authors[:9])}, {[]string{"e", "E", "q"}[i%3], pick(g, events).ID},
		}
		if i%3 == 0 {
			tags = append(tags, nostr.Tag{"A", tags[4][1]}, nostr.Tag{"t", fmt.Sprint("topic", i%300)})
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

func checkFilters(s *subject) error {
	events := corpus(s.gen)
	early, late := start+200, start+300
	filters := []nostr.Filter{
		{}, {Since: &early, Until: &early}, {Since: &late, Until: &early},
		{Kinds: []int{4711}}, {IDs: []string{s.key()}}, {Tags: nostr.TagMap{"a": {s.key()}}},
	}
	for range 100 {
		filters = append(filters, s.filter(events))
	}
	return s.answers(events, filters...)
}

// checkSimilarValues saves tag values with the same beginning as the wanted value, values too long
// for many indexes, and tag names that differ only in case.
func checkSimilarValues(s *subject) error {
	owner, names, later := s.key(), []string{"a", "A", "q", "t", "d"}, start+5000
	base := address(kindAnnouncement, owner, "repo")
	values := []string{
		base, base + "s", base + "-cli", base + "e" + strings.Repeat("f", 9), base + "d", base + "zz", base + "\x00",
		strings.Repeat("v", 100), strings.Repeat("v", 101), strings.Repeat("v", 300),
		"repo", "repos", "repo-cli", "Repo", "", "%", "a%", `\`, "_",
		s.hex(32), "30617:" + owner + ":", "030617:" + owner + ":repo",
	}
	var events []*nostr.Event
	for i := range 1200 {
		// Many similar values, older and newer than the wanted one.
		at := start + nostr.Timestamp(s.IntN(2)*100_000_000-i)
		events = append(events, s.event(s.key(), 1, at, nostr.Tag{"a", pick(s.gen, values[1:7])}))
	}
	for i := range 400 {
		events = append(events, s.event(owner, kindIssue, start+nostr.Timestamp(i*1000),
			nostr.Tag{names[i%5], values[i%len(values)]}, nostr.Tag{"x", base}))
	}
	var filters []nostr.Filter
	for _, name := range names {
		filters = append(filters, nostr.Filter{Tags: nostr.TagMap{name: {values[0], values[9], values[10]}}, Since: &later})
		for _, value := range values {
			if value != "" { // whose meaning in a filter is not specified
				f := nostr.Filter{Tags: nostr.TagMap{name: {value}}}
				filters = append(filters, f, nostr.Filter{Tags: f.Tags, Since: &later})
			}
		}
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

// checkHas looks up stored, missing and repeated ids, which holds does not.
func checkHas(s *subject) error {
	events := s.notes(700)
	if err := s.fill(events); err != nil {
		return err
	}
	var ids []graspsync.EventID
	for _, e := range events {
		ids = append(ids, idOf(e), idOf(s.event(e.PubKey, 1, start)), idOf(e))
	}
	has, err := s.Has(s.ctx, ids)
	if err != nil || len(has) != len(ids) {
		return fmt.Errorf("Has of %d ids: %d answers, %v", len(ids), len(has), err)
	}
	for i := range has {
		if has[i] != (i%3 != 1) {
			return fmt.Errorf("Has: %t for id %d", has[i], i)
		}
	}
	if has, err = s.Has(s.ctx, nil); err != nil || len(has) != 0 {
		return fmt.Errorf("Has of no ids: %d answers, %v", len(has), err)
	}
	return nil
}
