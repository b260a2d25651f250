package purgatoryadapter

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// proposed is a pull request, or an update of one.
func proposed(k *relaytest.Key, kind int, ref graspsync.RepoRef, text string, tags ...nostr.Tag) *nostr.Event {
	tags = append(nostr.Tags{{"a", ref.String()}, {"c", "1234567890123456789012345678901234567890"}}, tags...)
	return k.Event(100, kind, text, tags...)
}

func stored(t *testing.T, store *memstore.Store, evs ...*nostr.Event) {
	t.Helper()
	var in []graspsync.Incoming
	for _, ev := range evs {
		in = append(in, graspsync.Incoming{Event: ev})
	}
	_, err := store.Save(t.Context(), in)
	require.NoError(t, err)
}

// Pull requests and updates for one repository are listed, and nothing else.
func TestPullRequestsAreListed(t *testing.T) {
	store := memstore.New()
	owner, author, other := relaytest.NewKey("owner"), relaytest.NewKey("author"), relaytest.NewKey("other")
	here, there := owner.Ref("r"), owner.Ref("s")
	stored(t, store,
		proposed(author, graspsync.KindPullRequest, here, "1"), proposed(author, graspsync.KindPullRequest, here, "2"),
		proposed(author, graspsync.KindPullRequestUpdate, here, "3"), proposed(author, graspsync.KindPullRequest, there, "4"),
		proposed(other, graspsync.KindPullRequest, here, "5"), proposed(other, graspsync.KindPatch, here, "6"),
	)
	lister, ok := Host{Store: store}.Relay().(purgatory.PullLister)
	require.True(t, ok)
	by := make(map[string]int)
	for pr, err := range lister.Pulls(t.Context(), here) {
		require.NoError(t, err)
		by[pr.Author.String()]++
	}
	require.Equal(t, map[string]int{author.PubKey().String(): 3, other.PubKey().String(): 1}, by)
	for range lister.Pulls(t.Context(), here) {
		break
	}
}

// What is said of a pull request counts from its author, of its status, and from who has a
// say; the newest status does. An update stands as what it updates, if that is its author's.
func TestStandingsOfPullRequests(t *testing.T) {
	store := memstore.New()
	owner, author, other := relaytest.NewKey("owner"), relaytest.NewKey("author"), relaytest.NewKey("other")
	ref := owner.Ref("r")
	at := nostr.Timestamp(200)
	says := func(k *relaytest.Key, kind int, pr *nostr.Event) *nostr.Event {
		at++
		name := "e"
		if kind == kindComment {
			name = "E"
		}
		return k.Event(at, kind, "", nostr.Tag{name, pr.ID})
	}
	want := make(map[graspsync.EventID]purgatory.PullStanding)
	var pulls []*nip34.PullRequest
	add := func(ev *nostr.Event, standing purgatory.PullStanding) *nostr.Event {
		pr, err := nip34.ParsePullRequest(ev)
		require.NoError(t, err)
		pulls = append(pulls, pr)
		if standing != 0 {
			want[pr.ID] = standing
		}
		stored(t, store, ev)
		return ev
	}
	pull := func(text string, standing purgatory.PullStanding) *nostr.Event {
		return add(proposed(author, graspsync.KindPullRequest, ref, text), standing)
	}
	for i := range 150 { // more than are asked about at once
		pull(string(rune('a'+i)), 0)
	}
	merged, closed, reopened := pull("merged", purgatory.PullClosed), pull("closed", purgatory.PullClosed), pull("reopened", purgatory.PullRegarded)
	commented, labelled, loud := pull("commented", purgatory.PullRegarded), pull("labelled", purgatory.PullRegarded), pull("loud", 0)
	update := func(k *relaytest.Key, of *nostr.Event, standing purgatory.PullStanding) {
		add(proposed(k, graspsync.KindPullRequestUpdate, ref, "u", nostr.Tag{"E", of.ID}), standing)
	}
	update(author, merged, purgatory.PullClosed)
	update(author, commented, purgatory.PullRegarded)
	update(other, commented, 0)
	stored(t, store,
		says(owner, kindStatusApplied, merged), says(author, kindClosed, closed),
		says(owner, kindClosed, reopened), says(owner, kindStatusOpen, reopened),
		says(owner, kindComment, commented), says(owner, kindLabel, labelled),
		says(author, kindComment, loud), says(other, kindClosed, loud), says(other, kindComment, loud), says(author, kindStatusOpen, loud),
	)
	lister := Host{Store: store}.Relay().(purgatory.PullLister)
	members := map[graspsync.PubKey]struct{}{owner.PubKey(): {}}
	got, err := lister.Standings(t.Context(), ref, pulls, members)
	require.NoError(t, err)
	require.Equal(t, want, got)
	got, err = lister.Standings(t.Context(), ref, pulls, nil)
	require.NoError(t, err)
	require.Len(t, got, 1, "of which only its author can say anything")
}
