package main

import (
	"slices"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"
)

// The archive must not lose events.
func TestArchive(t *testing.T) {
	events, err := newHub(200)
	require.NoError(t, err)
	last := events[199]
	comment := events[120]
	a := newArchive(slices.Clone(events))
	until := a.records[50].CreatedAt
	since := a.records[150].CreatedAt
	for _, f := range []nostr.Filter{
		{}, {Until: &until}, {Since: &since}, {Until: &until, Since: &since},
		{IDs: []string{events[7].ID, last.ID, events[7].ID, "none"}},
		{Kinds: []int{30617, 30618}, Until: &until},
		{Kinds: []int{30617, 30618}},
		{Authors: []string{last.PubKey, events[0].PubKey}, Kinds: []int{1111}},
		{Tags: nostr.TagMap{"e": {last.Tags[3][1], comment.Tags[0][1]}}},
		{Tags: nostr.TagMap{"E": {last.Tags[0][1]}, "k": {"1111"}}},
		{Tags: nostr.TagMap{"q": {last.ID}}},
	} {
		want := []int{}
		for i, r := range a.records {
			if f.Matches(r) {
				want = append(want, i)
			}
		}
		require.Equal(t, want, append([]int{}, a.query(f, 1000)...), f.String())
		require.Equal(t, want[:min(5, len(want))], append([]int{}, a.query(f, 5)...), f.String())
	}
}
