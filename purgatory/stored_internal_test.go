package purgatory

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
)

// library is a relay that has events, and says how much it was asked and gave.
type library struct {
	*scales
	events      []*nostr.Event
	err         error // comes last
	asked, gave int
}

func (l *library) Events(_ context.Context, f nostr.Filter) iter.Seq2[graspsync.Event, error] {
	l.asked++
	return func(yield func(graspsync.Event, error) bool) {
		for _, ev := range l.events {
			if !f.Matches(ev) {
				continue
			}
			if l.gave++; !yield(eventtest.Of(ev), nil) {
				return
			}
		}
		if l.err != nil {
			yield(graspsync.Event{}, l.err)
		}
	}
}

// A list of announcements that a relay can't give completely is as long as it is; one that
// fails is none.
func TestAnnouncedOfAnIncompleteRelay(t *testing.T) {
	l := &library{events: []*nostr.Event{eventBy(graspsync.PubKey{1}, 1, graspsync.KindAnnouncement, nostr.Tag{"d", "one"})}}
	s := stored{containedRelay{l, newReport(&Config{})}}
	l.err = fmt.Errorf("501 in a second: %w", ErrIncomplete)
	refs, err := s.announcedRefs(t.Context())
	require.NoError(t, err)
	require.Len(t, refs, 1)
	l.err = errors.New("no disk")
	_, err = s.announcedRefs(t.Context())
	require.ErrorIs(t, err, l.err)
}

// Which of many events are stored is asked a hundred at a time; of a relay that fails nothing is
// known.
func TestWhichAreStored(t *testing.T) {
	l := &library{}
	s := stored{containedRelay{l, newReport(&Config{})}}
	var here, ids, lacking []graspsync.EventID
	for n := range 250 {
		ev := eventBy(graspsync.PubKey{1}, int64(n), graspsync.KindPullRequest)
		id, err := graspsync.ParseEventID(ev.ID)
		require.NoError(t, err)
		if ids = append(ids, id); n%50 == 7 {
			lacking = append(lacking, id)
			continue
		}
		here = append(here, id)
		l.events = append(l.events, ev)
	}
	for _, c := range []struct{ ids, lacking []graspsync.EventID }{{nil, nil}, {ids[:1], nil}, {lacking[:1], lacking[:1]}, {here, nil}, {ids, lacking}} {
		l.asked = 0
		got, err := s.lacks(t.Context(), c.ids)
		require.NoError(t, err)
		require.ElementsMatch(t, c.lacking, got)
		require.Equal(t, (len(c.ids)+99)/100, l.asked)
	}
	for id, want := range map[graspsync.EventID]bool{here[3]: true, lacking[3]: false} {
		has, err := s.has(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, want, has)
	}
	l.err = errors.New("no disk")
	got, err := s.lacks(t.Context(), lacking)
	require.ErrorIs(t, err, l.err)
	require.Empty(t, got)
	has, err := s.has(t.Context(), lacking[0])
	require.ErrorIs(t, err, l.err)
	require.False(t, has)
	has, err = s.has(t.Context(), here[0])
	require.NoError(t, err, "it has come before that")
	require.True(t, has)
}

// Pull requests and updates for one repository are found, and nothing else.
func TestPullRequestsOfARelay(t *testing.T) {
	owner, author := graspsync.PubKey{1}, graspsync.PubKey{2}
	here, there := graspsync.RepoRef{Owner: owner, Identifier: "r"}, graspsync.RepoRef{Owner: owner, Identifier: "s"}
	l := &library{}
	s := stored{containedRelay{l, newReport(&Config{})}}
	put := func(kind int, ref graspsync.RepoRef, n int) {
		l.events = append(l.events, eventBy(author, int64(n), kind, nostr.Tag{"a", ref.String()}, nostr.Tag{"c", objectOf(n).String()}))
	}
	for n := range 250 {
		put(graspsync.KindPullRequest, here, n)
	}
	put(graspsync.KindPullRequestUpdate, here, 250)
	put(graspsync.KindPullRequest, there, 251)
	put(graspsync.KindPatch, here, 252)
	var pulls []*nip34.PullRequest
	require.NoError(t, s.pulls(t.Context(), here, func(pr *nip34.PullRequest) { pulls = append(pulls, pr) }))
	require.Len(t, pulls, 251)
	l.err = errors.New("no disk")
	require.ErrorIs(t, s.pulls(t.Context(), here, func(*nip34.PullRequest) {}), l.err)
	_, err := s.has(t.Context(), graspsync.EventID{9})
	require.ErrorIs(t, err, l.err)
	l.err = nil
	has, err := s.has(t.Context(), pulls[7].ID)
	require.NoError(t, err)
	require.True(t, has)
	has, err = s.has(t.Context(), graspsync.EventID{9})
	require.NoError(t, err)
	require.False(t, has)
	require.True(t, slices.ContainsFunc(l.events, func(ev *nostr.Event) bool { return ev.ID == pulls[7].ID.String() }))
}

// Of relatives only those are read who are asked for, in parts; what makes a repository ours is
// none.
func TestRelativesOfARelay(t *testing.T) {
	l := &library{scales: &scales{}}
	s := stored{containedRelay{elsewhereAll{l}, newReport(&Config{})}}
	var authors []graspsync.PubKey
	for n := range 1_200 {
		author := graspsync.PubKey{byte(n), byte(n >> 8), 1}
		l.events = append(l.events, eventBy(author, 1, graspsync.KindAnnouncement, nostr.Tag{"d", "r"}))
		if n < 1_100 {
			authors = append(authors, author)
		}
	}
	all, err := s.relatives(t.Context(), "r", authors)
	require.NoError(t, err)
	require.Len(t, all, 1_100)
	require.Equal(t, []int{3, 1_100}, []int{l.asked, l.gave})
	ours, err := s.announcements(t.Context(), "r")
	require.NoError(t, err)
	require.Empty(t, ours)
}

// elsewhereAll is a relay of which no repository is ours.
type elsewhereAll struct{ *library }

func (elsewhereAll) Lists(*nip34.Announcement) bool { return false }
