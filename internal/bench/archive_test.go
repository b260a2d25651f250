package main

import (
	"cmp"
	"slices"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/filters"
)

// archive answers filters from events that don't change, newest first. Everything is
// indexed, so that it is the clients that make the difference.
type archive struct {
	events  []*nostr.Event // newest first, the index into it is a place
	ids     map[string]int
	tags    map[[2]string][]int
	kinds   map[int][]int
	authors map[string][]int
	all     []int
}

func newArchive(events []*nostr.Event) *archive {
	a := &archive{
		events: events, ids: make(map[string]int), tags: make(map[[2]string][]int),
		kinds: make(map[int][]int), authors: make(map[string][]int),
	}
	slices.SortFunc(events, func(a, b *nostr.Event) int {
		return cmp.Or(cmp.Compare(b.CreatedAt, a.CreatedAt), cmp.Compare(a.ID, b.ID))
	})
	for i, ev := range events {
		a.all = append(a.all, i)
		a.ids[ev.ID] = i
		a.kinds[ev.Kind] = append(a.kinds[ev.Kind], i)
		a.authors[ev.PubKey] = append(a.authors[ev.PubKey], i)
		for _, t := range ev.Tags {
			if len(t) >= 2 && len(t[0]) == 1 {
				key := [2]string{t[0], t[1]}
				a.tags[key] = append(a.tags[key], i)
			}
		}
	}
	return a
}

// query returns the newest events that match, no more than most.
func (a *archive) query(f nostr.Filter, most int) []*nostr.Event {
	match := filters.Compile([]nostr.Filter{f})
	places := a.candidates(f)
	if f.Until != nil {
		from, _ := slices.BinarySearchFunc(places, *f.Until, func(i int, until nostr.Timestamp) int {
			return cmp.Compare(until, a.events[i].CreatedAt)
		})
		places = places[from:]
	}
	var found []*nostr.Event
	for _, i := range places {
		if len(found) == most {
			break
		}
		if match.Match(a.events[i]) {
			found = append(found, a.events[i])
		}
	}
	return found
}

// candidates returns in order the places of events among which all matches are.
func (a *archive) candidates(f nostr.Filter) []int {
	var lists [][]int
	switch {
	case len(f.IDs) > 0:
		for _, id := range f.IDs {
			if i, ok := a.ids[id]; ok {
				lists = append(lists, []int{i})
			}
		}
	case len(f.Tags) > 0:
		for name, values := range f.Tags {
			for _, v := range values {
				lists = append(lists, a.tags[[2]string{name, v}])
			}
			break // one of the names is enough
		}
	case len(f.Authors) > 0:
		for _, author := range f.Authors {
			lists = append(lists, a.authors[author])
		}
	case len(f.Kinds) > 0:
		for _, kind := range f.Kinds {
			lists = append(lists, a.kinds[kind])
		}
	default:
		return a.all
	}
	places := slices.Concat(lists...)
	slices.Sort(places)
	return slices.Compact(places)
}

// The archive must not be what loses events.
func TestArchive(t *testing.T) {
	events := newHub(t, 200, "ws://127.0.0.1:7777")
	a := newArchive(slices.Clone(events))
	until := a.events[50].CreatedAt
	since := a.events[150].CreatedAt
	last := events[199]
	for _, f := range []nostr.Filter{
		{}, {Until: &until}, {Since: &since}, {Until: &until, Since: &since},
		{IDs: []string{events[7].ID, last.ID, events[7].ID, "none"}},
		{Kinds: []int{30617, 30618}, Until: &until},
		{Authors: []string{last.PubKey, events[0].PubKey}, Kinds: []int{1111}},
		{Tags: nostr.TagMap{"e": {last.Tags[3][1], events[120].Tags[0][1]}}},
		{Tags: nostr.TagMap{"E": {last.Tags[0][1]}, "k": {"1111"}}},
		{Tags: nostr.TagMap{"q": {last.ID}}},
	} {
		var want []*nostr.Event
		for _, ev := range a.events {
			if f.Matches(ev) {
				want = append(want, ev)
			}
		}
		require.Equal(t, want, a.query(f, 1000), f.String())
		require.Equal(t, want[:min(5, len(want))], a.query(f, min(5, len(want))), f.String())
	}
}
