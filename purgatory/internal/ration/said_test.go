package ration_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/ration"
)

var owner, author, other = graspsync.PubKey{1}, graspsync.PubKey{2}, graspsync.PubKey{3}

func eventBy(by graspsync.PubKey, at nostr.Timestamp, kind int, tags ...nostr.Tag) *nostr.Event {
	ev := &nostr.Event{PubKey: by.String(), CreatedAt: at, Kind: kind, Tags: tags, Sig: strings.Repeat("0", 128)}
	ev.ID = ev.GetID()
	return ev
}

func proposed(t *testing.T, by graspsync.PubKey, kind int, text string, tags ...nostr.Tag) *nip34.PullRequest {
	ref := graspsync.RepoRef{Owner: owner, Identifier: "r"}
	tags = append(tags, nostr.Tag{"a", ref.String()}, nostr.Tag{"c", strings.Repeat("1", 40)}, nostr.Tag{"x", text})
	pr, err := nip34.ParsePullRequest(eventtest.Of(eventBy(by, 100, kind, tags...)))
	require.NoError(t, err)
	return pr
}

// standings has each filter find what it matches.
func standings(pulls []*nip34.PullRequest, members map[graspsync.PubKey]struct{}, events ...*nostr.Event) map[graspsync.EventID]ration.Standing {
	said := ration.NewSaid(pulls, members)
	for _, f := range said.Filters(pulls) {
		for _, ev := range events {
			if f.Matches(ev) {
				said.Note(eventtest.Of(ev))
			}
		}
	}
	return said.Standings()
}

// What is said of a pull request counts from its author, of its status, and from who has a
// say; the newest status does. An update stands as what it updates, if that is its author's.
func TestStandingsOfPullRequests(t *testing.T) {
	const comment, label, open, applied, closes = 1111, 1985, 1630, 1631, 1632
	at := nostr.Timestamp(200)
	says := func(by graspsync.PubKey, kind int, pr *nip34.PullRequest) *nostr.Event {
		at++
		name := "e"
		if kind == comment {
			name = "E"
		}
		return eventBy(by, at, kind, nostr.Tag{name, pr.ID.String()})
	}
	want := make(map[graspsync.EventID]ration.Standing)
	var pulls []*nip34.PullRequest
	add := func(pr *nip34.PullRequest, standing ration.Standing) *nip34.PullRequest {
		pulls = append(pulls, pr)
		if standing != ration.Open {
			want[pr.ID] = standing
		}
		return pr
	}
	pull := func(text string, standing ration.Standing) *nip34.PullRequest {
		return add(proposed(t, author, graspsync.KindPullRequest, text), standing)
	}
	for i := range 50 {
		pull(fmt.Sprint(i), ration.Open)
	}
	merged, closed, reopened := pull("merged", ration.Closed), pull("closed", ration.Closed), pull("reopened", ration.Regarded)
	commented, labelled, loud := pull("commented", ration.Regarded), pull("labelled", ration.Regarded), pull("loud", ration.Open)
	update := func(by graspsync.PubKey, of *nip34.PullRequest, standing ration.Standing) {
		add(proposed(t, by, graspsync.KindPullRequestUpdate, "u", nostr.Tag{"E", of.ID.String()}), standing)
	}
	update(author, merged, ration.Closed)
	update(author, commented, ration.Regarded)
	update(other, commented, ration.Open)
	events := []*nostr.Event{
		says(owner, applied, merged), says(author, closes, closed),
		says(owner, closes, reopened), says(owner, open, reopened),
		says(owner, comment, commented), says(owner, label, labelled),
		says(author, comment, loud), says(other, closes, loud), says(other, comment, loud), says(author, open, loud),
	}
	require.Equal(t, want, standings(pulls, map[graspsync.PubKey]struct{}{owner: {}}, events...))
	require.Len(t, standings(pulls, nil, events...), 1, "of which only its author can say anything")
	require.Empty(t, standings(nil, nil, events...))
}

// What can't be read says nothing of a pull request.
func TestOddSayings(t *testing.T) {
	pull := proposed(t, author, graspsync.KindPullRequest, "x")
	id := pull.ID.String()
	for what, c := range map[string]struct {
		change func(ev *nostr.Event)
		want   ration.Standing
	}{
		"no tag":         {func(ev *nostr.Event) { ev.Tags = nil }, ration.Open},
		"short tag":      {func(ev *nostr.Event) { ev.Tags = nostr.Tags{{"e"}, {}} }, ration.Open},
		"other tag":      {func(ev *nostr.Event) { ev.Tags = nostr.Tags{{"q", id}} }, ration.Open},
		"no id":          {func(ev *nostr.Event) { ev.Tags = nostr.Tags{{"e", "bad"}} }, ration.Open},
		"another":        {func(ev *nostr.Event) { ev.Tags = nostr.Tags{{"e", ev.ID}} }, ration.Open},
		"of a stranger":  {func(ev *nostr.Event) { ev.PubKey = other.String() }, ration.Open},
		"of its author":  {func(ev *nostr.Event) { ev.PubKey = author.String() }, ration.Closed},
		"words":          {func(ev *nostr.Event) { ev.Kind = 1 }, ration.Regarded},
		"words of his":   {func(ev *nostr.Event) { ev.Kind, ev.PubKey = 1, author.String() }, ration.Open},
		"a comment":      {func(ev *nostr.Event) { ev.Kind, ev.Tags = 1111, nostr.Tags{{"E", id}} }, ration.Regarded},
		"after odd ones": {func(ev *nostr.Event) { ev.Tags = nostr.Tags{{"e"}, {"e", "bad"}, {"e", id}} }, ration.Closed},
	} {
		said := ration.NewSaid([]*nip34.PullRequest{pull}, map[graspsync.PubKey]struct{}{owner: {}})
		ev := eventBy(owner, 2, 1632, nostr.Tag{"e", id})
		c.change(ev)
		said.Note(eventtest.Of(ev))
		got, is := said.Standings()[pull.ID]
		require.Equal(t, c.want != ration.Open, is, what)
		if is {
			require.Equal(t, c.want, got, what)
		}
	}
}
