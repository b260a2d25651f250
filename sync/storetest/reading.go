package storetest

import (
	"fmt"
	"slices"
	"strings"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
)

// corpus returns about 2,600 events by 30 authors over 400 seconds, with all tags that filters use.
func corpus(g *gen) []*nostr.Event {
	authors := keys(g, 30)
	kinds := []int{1, kindIssue, 1617, 1618, kindComment, 1630, 7, 9842}
	events := make([]*nostr.Event, 0, 2600)
	for i := range 2400 {
		tags := nostr.Tags{
			{"a", address(kindAnnouncement, authors[i%10], fmt.Sprint("repo", i%40)), "wss://x.example"},
			{"t"}, {"alt", "a description"},
			{"p", authors[g.IntN(30)]}, {"p", authors[g.IntN(30)]}, {"client", "t" + fmt.Sprint(i%3)},
		}
		if i > 0 {
			tags = append(tags, nostr.Tag{[]string{"e", "E", "q"}[i%3], events[g.IntN(i)].ID})
		}
		if i%7 == 0 {
			tags = append(tags, nostr.Tag{"A", tags[0][1]}, nostr.Tag{"t", fmt.Sprint("topic", i%5)})
		}
		at := start + nostr.Timestamp(g.IntN(400))
		events = append(events, g.event(authors[g.IntN(30)], kinds[g.IntN(len(kinds))], at, tags...))
	}
	for i := range 200 {
		at := start + nostr.Timestamp(g.IntN(400))
		events = append(events, g.event(authors[i%30], kindAnnouncement, at, nostr.Tag{"d", fmt.Sprint("repo", i)}))
	}
	return events
}

func keys(g *gen, n int) []string {
	authors := make([]string, n)
	for i := range authors {
		authors[i] = g.key()
	}
	return authors
}

func checkComplete(s *subject) error {
	events := corpus(s.gen)
	some := func(n int, of func(e *nostr.Event) string) []string {
		values := make([]string, n)
		for i := range values {
			values[i] = of(events[s.IntN(2400)])
		}
		slices.Sort(values)
		return slices.Compact(values)
	}
	id := func(e *nostr.Event) string { return e.ID }
	author := func(e *nostr.Event) string { return e.PubKey }
	repo := func(e *nostr.Event) string { return e.Tags[0][1] }
	return s.answers(events, []nostr.Filter{
		{},
		{Kinds: []int{1}},
		{Kinds: []int{1, 7, kindIssue, 4711}},
		{Kinds: []int{kindAnnouncement, 30618}},
		{Authors: some(1, author)},
		{Authors: some(20, author)},
		{Authors: some(3, author), Kinds: []int{kindAnnouncement}},
		{Authors: some(3, author), Kinds: []int{1, 7, kindAnnouncement}},
		{IDs: some(290, id)},
		{IDs: some(290, id), Kinds: []int{1, 7}, Since: at(100)},
		{Tags: nostr.TagMap{"a": some(1, repo)}},
		{Tags: nostr.TagMap{"a": some(100, repo)}},
		{Tags: nostr.TagMap{"A": some(100, repo)}},
		{Tags: nostr.TagMap{"a": some(30, repo)}, Kinds: []int{1, kindIssue}},
		{Tags: nostr.TagMap{"a": some(30, repo)}, Authors: some(10, author), Since: at(50), Until: at(300)},
		{Tags: nostr.TagMap{"a": some(30, repo), "e": some(100, id)}},
		{Tags: nostr.TagMap{"a": some(30, repo), "A": some(30, repo), "t": {"topic0", "topic4"}}},
		{Tags: nostr.TagMap{"e": some(150, id)}},
		{Tags: nostr.TagMap{"E": some(150, id)}},
		{Tags: nostr.TagMap{"q": some(150, id)}, Kinds: []int{7, 1111, 1630}},
		{Tags: nostr.TagMap{"p": some(5, author)}},
		{Tags: nostr.TagMap{"p": some(5, author)}, Kinds: []int{1, 7}},
		{Tags: nostr.TagMap{"p": some(2, author)}, Authors: some(2, author)},
		{Tags: nostr.TagMap{"d": {"repo1", "repo10", "repo100"}}},
		{Tags: nostr.TagMap{"t": {"topic1", "topic"}}},
		{Tags: nostr.TagMap{"t": {"t1"}}},
		{Since: at(200)}, {Until: at(200)}, {Since: at(200), Until: at(201)},
		{Since: at(300), Until: at(200)},
		{Kinds: []int{4711}}, {IDs: []string{s.key()}}, {Tags: nostr.TagMap{"a": {s.key()}}},
	}...)
}

func at(seconds nostr.Timestamp) *nostr.Timestamp {
	t := start + seconds
	return &t
}

// checkFullSecond saves more events in one second than a backend returns in one answer.
func checkFullSecond(s *subject) error {
	authors := keys(s.gen, 12)
	var events []*nostr.Event
	for i := range 1300 {
		tags := nostr.Tags{{"a", address(kindAnnouncement, authors[0], fmt.Sprint("repo", i%2))}}
		kind := []int{kindIssue, kindComment, 1}[s.IntN(3)]
		events = append(events, s.event(authors[s.IntN(12)], kind, start, tags...))
	}
	for i := range 1000 {
		at := start + nostr.Timestamp(i%21) - 10
		events = append(events, s.event(authors[i%5], kindComment, at,
			nostr.Tag{"a", address(kindAnnouncement, authors[0], "repo1")}))
	}
	repos := []string{address(kindAnnouncement, authors[0], "repo0"), address(kindAnnouncement, authors[0], "repo1")}
	return s.answers(events, []nostr.Filter{
		{}, {Since: at(0)}, {Until: at(0)}, {Since: at(0), Until: at(0)}, {Until: at(-1)}, {Since: at(1)},
		{Kinds: []int{kindComment, kindIssue, 1}},
		{Kinds: []int{kindComment}},
		{Authors: authors}, {Authors: authors[:1]},
		{Tags: nostr.TagMap{"a": repos}}, {Tags: nostr.TagMap{"a": repos[:1]}},
		{Tags: nostr.TagMap{"a": repos[1:]}, Kinds: []int{kindComment, 1}, Since: at(-3)},
	}...)
}

func checkManyValues(s *subject) error {
	authors := keys(s.gen, 250)
	f := nostr.Filter{Tags: nostr.TagMap{}}
	byAuthor, byKind, byRepo, byTopic := f, f, f, f
	var repos, topics []string
	events := make([]*nostr.Event, 0, 1000)
	for i := range 1000 {
		repo := address(kindAnnouncement, authors[i%250], "r")
		topic := fmt.Sprint("topic ", i%250)
		kind := 40000 + i%250
		events = append(events, s.event(authors[i%250], kind, start+nostr.Timestamp(i/3),
			nostr.Tag{"A", repo}, nostr.Tag{"t", topic}))
		if i < 250 && i%5 != 0 {
			repos, topics = append(repos, repo), append(topics, topic)
			byAuthor.Authors, byKind.Kinds = append(byAuthor.Authors, authors[i]), append(byKind.Kinds, kind)
		}
	}
	byRepo.Tags, byTopic.Tags = nostr.TagMap{"A": repos}, nostr.TagMap{"t": topics}
	all := nostr.Filter{Authors: byAuthor.Authors, Kinds: byKind.Kinds, Tags: nostr.TagMap{"A": repos, "t": topics}}
	return s.answers(events, []nostr.Filter{byAuthor, byKind, byRepo, byTopic, all}...)
}

// checkSimilarValues saves tag values with the same beginning as the wanted value, values too long
// for many indexes, and tag names that differ only in case.
func checkSimilarValues(s *subject) error {
	owner := s.key()
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
		value := values[1+s.IntN(6)]
		events = append(events, s.event(s.key(), 1, start+nostr.Timestamp(s.IntN(2)*100_000_000-i), nostr.Tag{"a", value}))
	}
	for i := range 400 {
		name := []string{"a", "A", "q", "t", "d"}[i%5]
		events = append(events, s.event(owner, kindIssue, start+nostr.Timestamp(i*1000),
			nostr.Tag{name, values[i%len(values)]}, nostr.Tag{"x", base}))
	}
	var filters []nostr.Filter
	for _, name := range []string{"a", "A", "q", "t", "d"} {
		for _, value := range values {
			if value == "" {
				continue // the meaning of an empty value in a filter is not specified
			}
			if filters = append(filters, nostr.Filter{Tags: nostr.TagMap{name: {value}}}); name == "a" {
				filters = append(filters, nostr.Filter{Tags: nostr.TagMap{name: {value}}, Since: at(5000)})
			}
		}
		filters = append(filters, nostr.Filter{Tags: nostr.TagMap{name: {values[0], values[9], values[10]}}, Since: at(5000)})
	}
	return s.answers(events, filters...)
}

// checkBoundaries checks that since and until are inclusive.
func checkBoundaries(s *subject) error {
	a, repo := s.key(), s.key()
	var events []*nostr.Event
	for i := range 10 {
		events = append(events, s.event(a, 1, start+nostr.Timestamp(i), nostr.Tag{"e", repo}, nostr.Tag{"t", "x"}))
	}
	events = append(events, s.event(a, 1, 0), s.event(a, 1, 1<<32-2)) // 1970 and 2106
	zero, late := nostr.Timestamp(0), nostr.Timestamp(1<<40)
	below := nostr.Timestamp(-1)
	shapes := []nostr.Filter{
		{}, {Kinds: []int{1}}, {Authors: []string{a}}, {IDs: []string{events[4].ID, events[5].ID}},
		{Tags: nostr.TagMap{"e": {repo}}}, {Tags: nostr.TagMap{"t": {"x"}}, Kinds: []int{1}},
	}
	bounds := [][2]*nostr.Timestamp{
		{at(4), at(4)}, {at(4), at(5)}, {at(5), at(4)}, {at(9), nil}, {nil, at(0)}, {at(10), nil}, {nil, at(-1)},
		{&zero, &zero}, {&zero, nil}, {&below, &late}, {nil, &below}, {&late, nil}, {nil, &late},
	}
	var filters []nostr.Filter
	for _, f := range shapes {
		for _, b := range bounds {
			f.Since, f.Until = b[0], b[1]
			filters = append(filters, f)
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
	return s.holds(events, events)
}

func checkHas(s *subject) error {
	events := make([]*nostr.Event, 700)
	for i := range events {
		events[i] = s.event(s.key(), 1, start+nostr.Timestamp(i%9))
	}
	if err := s.fill(events); err != nil {
		return err
	}
	var ids []graspsync.EventID
	for _, e := range events {
		missing := idOf(s.event(e.PubKey, 1, start))
		ids = append(ids, idOf(e), missing, idOf(e))
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
