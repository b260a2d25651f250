package sync

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/session"
)

// fixedView has some repositories and what belongs to them.
type fixedView struct {
	View
	repos []graspsync.RepoRef
	roots map[graspsync.EventID]graspsync.PubKey
}

func (v fixedView) Announced(ref graspsync.RepoRef) bool { return slices.Contains(v.repos, ref) }
func (v fixedView) Left(graspsync.RepoRef) bool          { return false }
func (v fixedView) Root(id graspsync.EventID) bool       { _, ok := v.roots[id]; return ok }

func (v fixedView) Family(identifier string) []*nip34.Announcement { return nil }

func (v fixedView) Knows(string, graspsync.PubKey) bool { return true }

func (v fixedView) Generation(string) Generation { return Generation{} }

func (v fixedView) rootBy(id graspsync.EventID, author graspsync.PubKey) bool {
	by, ok := v.roots[id]
	return ok && by == author
}

func (v fixedView) rootOwner(id graspsync.EventID) (graspsync.PubKey, bool) {
	owner, ok := v.roots[id]
	return owner, ok
}

func (v fixedView) descends(graspsync.EventID) bool { return false }

// What belongs to our repositories never waits for what does not, so whatever our
// filters for repositories and what belongs to them bring must be taken for ours: whether
// it comes live, where a request may have filters of both kinds, or as history, where the
// filter tells. What has rules of its own is an exception: announcements and states that
// just name one of ours, and deletions by somebody else.
func TestWhatOurFiltersMatchIsOurs(t *testing.T) {
	racetest.Amounts(t)
	rng := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same each time
	key := func(n int) (k graspsync.PubKey) {
		k[0] = 1
		binary.BigEndian.PutUint32(k[4:], uint32(n)) //nolint:gosec // small
		return k
	}
	id := func(n int) graspsync.EventID { return graspsync.EventID(key(n)) }
	view := fixedView{roots: make(map[graspsync.EventID]graspsync.PubKey)}
	var roots []graspsync.EventID
	for i := range 10 {
		view.repos = append(view.repos, graspsync.RepoRef{Owner: key(i), Identifier: []string{"repo", "ä:b", "x y", "R.git"}[i%4]})
		view.roots[id(i)], roots = key(i), append(roots, id(i))
	}
	identity, err := nip34.ParseIdentity("grasp.example")
	require.NoError(t, err)
	g := newIngest(Config{}.withDefaults(), nil, NewGRASPPolicy(identity), view, nil, newReport(Config{}), nil)
	ours := append(filters.Repos(view.repos), filters.Roots(roots)...)
	for _, f := range ours {
		require.True(t, session.OfOurs(f), "%v", f)
	}
	for _, f := range slices.Concat(
		[]nostr.Filter{filters.Layer1(), filters.Announcements(), {Kinds: filters.Kinds()}, {IDs: []string{id(1).String()}}},
		filters.States(view.repos), filters.Deletions([]graspsync.PubKey{key(1)}),
	) {
		require.False(t, session.OfOurs(f), "%v brings what strangers made as well", f)
	}

	match := filters.Compile(ours)
	value := func() string {
		n := rng.IntN(20) // half of them are ours
		switch rng.IntN(3) {
		case 0:
			return id(n).String()
		case 1:
			return graspsync.RepoRef{Owner: key(n), Identifier: []string{"repo", "ä:b", "x y", "R.git"}[n%4]}.
				Address([]int{graspsync.KindAnnouncement, graspsync.KindState, 30023}[rng.IntN(3)])
		}
		return strings.ToUpper(id(n).String())
	}
	kinds := append(filters.Kinds(), 0, 1, 7, 1111, 1985, 9735, 30023, 62)
	matched, foreign := 0, 0
	for range 200_000 {
		ev := &nostr.Event{ID: id(99).String(), PubKey: key(rng.IntN(20)).String(), Kind: kinds[rng.IntN(len(kinds))]}
		for range rng.IntN(4) {
			tag := nostr.Tag{[]string{"a", "A", "q", "e", "E", "p", "d"}[rng.IntN(7)], value()}
			if rng.IntN(3) == 0 {
				tag = append(tag, "wss://a.example", fmt.Sprint(rng.IntN(9)))
			}
			ev.Tags = append(ev.Tags, tag)
		}
		switch concerns := g.relevance.concerns(eventtest.Of(ev)); {
		case !match.Match(ev):
			foreign++
		case ev.Kind == graspsync.KindAnnouncement, ev.Kind == graspsync.KindState, ev.Kind == graspsync.KindDeletion:
		default:
			matched++
			require.True(t, concerns, "%v", ev)
		}
	}
	require.Greater(t, matched, 10_000)
	require.Greater(t, foreign, 10_000)

	// A deletion counts if it is by the author of what it names.
	for i, ref := range view.repos {
		for name, tag := range map[string]nostr.Tag{
			"announcement": {"a", ref.Address(graspsync.KindAnnouncement)}, "state": {"a", ref.Address(graspsync.KindState)},
			"root": {"e", roots[i].String()},
		} {
			ev := &nostr.Event{ID: id(99).String(), PubKey: key(i).String(), Kind: graspsync.KindDeletion, Tags: nostr.Tags{tag}}
			require.True(t, match.Match(ev), name)
			require.True(t, g.relevance.concerns(eventtest.Of(ev)), name)
			ev.PubKey = key(50).String()
			require.False(t, g.relevance.concerns(eventtest.Of(ev)), name)
		}
	}
}

// An announcement is about its repository, if that is known; a deletion about the repositories
// of its author that it names, whatever of others' it names before.
func TestWhatAnEventIsAbout(t *testing.T) {
	author, other := testKey(1), testKey(2)
	mine, theirs := graspsync.RepoRef{Owner: author, Identifier: "mine"}, graspsync.RepoRef{Owner: other, Identifier: "theirs"}
	view := fixedView{repos: []graspsync.RepoRef{theirs, mine}}
	identity, err := nip34.ParseIdentity("grasp.example")
	require.NoError(t, err)
	g := newIngest(Config{}.withDefaults(), nil, NewGRASPPolicy(identity), view, nil, newReport(Config{}), nil)
	deletes := func(refs ...graspsync.RepoRef) []graspsync.PubKey {
		var tags nostr.Tags
		for _, ref := range refs {
			tags = append(tags, nostr.Tag{"a", ref.String()})
		}
		return g.relevance.about(eventtest.Of(&nostr.Event{Kind: graspsync.KindDeletion, PubKey: author.String(), Tags: tags}))
	}
	require.Equal(t, []graspsync.PubKey{author}, deletes(theirs, mine))
	require.Equal(t, []graspsync.PubKey{author}, deletes(theirs), "of what the others delete it says nothing")
	require.Equal(t, []graspsync.PubKey{author}, g.relevance.about(eventtest.Of(testAnnouncement(1, 1, "mine", 1, "ours"))), "a newer version")
	require.Equal(t, []graspsync.PubKey{{}}, g.relevance.about(eventtest.Of(testAnnouncement(1, 1, "new", 1, "ours"))), "anybody may make one ours")
}
