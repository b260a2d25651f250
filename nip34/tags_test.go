package nip34

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
)

func repo(n int, identifier string) graspsync.RepoRef {
	return graspsync.RepoRef{Owner: key(n), Identifier: identifier}
}

func TestReferences(t *testing.T) {
	ev := event(1111, key(1),
		nostr.Tag{}, nostr.Tag{"a"}, nostr.Tag{"", "x"}, nostr.Tag{"aA", repo(9, "no").String()},
		nostr.Tag{"p", key(1).String()},
		nostr.Tag{"a", repo(1, "one").String(), "wss://hint.example"},
		nostr.Tag{"A", repo(2, "two").String()},
		nostr.Tag{"q", repo(3, "three").String()},
		nostr.Tag{"q", eventID(1).String()},
		nostr.Tag{"e", eventID(2).String(), repo(4, "not first").String()},
		nostr.Tag{"E", eventID(3).String()},
		nostr.Tag{"e", eventID(3).String()},
		nostr.Tag{"e", repo(5, "wrong tag").String()},
		nostr.Tag{"a", eventID(4).String()},
		nostr.Tag{"e", strings.ToUpper(eventID(0xabc).String())},
		nostr.Tag{"a", repo(1, "one").String()},
		nostr.Tag{"a", repo(6, "state").Address(graspsync.KindState)},
		nostr.Tag{"a", "30023:" + key(7).String() + ":"},
	)
	assert.Equal(t, []graspsync.RepoRef{repo(1, "one"), repo(2, "two"), repo(3, "three")}, RepoRefs(ev))
	assert.Equal(t, []graspsync.EventID{eventID(1), eventID(2), eventID(3)}, EventRefs(ev))
	assert.Equal(t, []graspsync.Address{
		{Kind: graspsync.KindAnnouncement, Author: key(1), Identifier: "one"}, {Kind: graspsync.KindAnnouncement, Author: key(2), Identifier: "two"},
		{Kind: graspsync.KindAnnouncement, Author: key(3), Identifier: "three"}, {Kind: graspsync.KindState, Author: key(6), Identifier: "state"}, {Kind: 30023, Author: key(7), Identifier: ""},
	}, Addresses(ev))
	assert.Empty(t, RepoRefs(event(1, key(1))))
}

// Another server cut identifiers at ":", and used only the first a tag.
func TestTrapD4_WholeIdentifiersAndAllTags(t *testing.T) {
	ev := event(graspsync.KindIssue, key(1), nostr.Tag{"a", repo(1, "a:b:c").String()}, nostr.Tag{"a", repo(2, ":").String()})
	want := []graspsync.RepoRef{repo(1, "a:b:c"), repo(2, ":")}
	assert.Equal(t, want, RepoRefs(ev))
	assert.Equal(t, want, RootRefs(ev))
	ev.Kind = graspsync.KindDeletion
	_, addresses := DeletionTargets(eventtest.Of(ev))
	assert.Equal(t, "a:b:c", addresses[0].Identifier)
}

func TestRootRefs(t *testing.T) {
	a := nostr.Tag{"a", repo(1, "x").String()}
	for kind := range 32000 {
		want := kind == 1617 || kind == 1618 || kind == 1621
		require.Equal(t, want, IsRoot(kind), kind)
	}
	assert.Equal(t, []graspsync.RepoRef{repo(1, "x")}, RootRefs(event(graspsync.KindPatch, key(1), a)))
	assert.Empty(t, RootRefs(event(1619, key(1), a)), "a pull request update is no root")
	assert.Empty(t, RootRefs(event(graspsync.KindIssue, key(1), nostr.Tag{"q", a[1]}, nostr.Tag{"A", a[1]})))
	ev := event(graspsync.KindIssue, key(1))
	for i := range 100 {
		ev.Tags = append(ev.Tags, nostr.Tag{"a", repo(i, "x").String()})
	}
	assert.Len(t, RootRefs(ev), MaxRepos)
	assert.Len(t, RepoRefs(ev), 100)
}

func TestDeletionTargets(t *testing.T) {
	ev := event(graspsync.KindDeletion, key(1),
		nostr.Tag{"e", eventID(1).String()}, nostr.Tag{"e", eventID(1).String()}, nostr.Tag{"e"}, nostr.Tag{"e", "x"},
		nostr.Tag{"E", eventID(2).String()}, nostr.Tag{"q", eventID(3).String()},
		nostr.Tag{"a", repo(1, "x").String()}, nostr.Tag{"A", repo(1, "y").String()}, nostr.Tag{"a", repo(2, "z").Address(30618)},
	)
	ids, addresses := DeletionTargets(eventtest.Of(ev))
	assert.Equal(t, []graspsync.EventID{eventID(1)}, ids)
	assert.Equal(t, []graspsync.Address{{Kind: 30617, Author: key(1), Identifier: "x"}}, addresses, "that of another author stays")
	ev.Kind = 1
	ids, addresses = DeletionTargets(eventtest.Of(ev))
	assert.Empty(t, ids)
	assert.Empty(t, addresses)
}

// naiveRefs is references without its set.
func naiveRefs(ev *nostr.Event) (refs []graspsync.RepoRef) {
	for _, name := range ev.Tags {
		if len(name) > 1 && (name[0] == "a" || name[0] == "A" || name[0] == "q") {
			if ref, err := graspsync.ParseRepoRef(name[1]); err == nil && !slices.Contains(refs, ref) {
				refs = append(refs, ref)
			}
		}
	}
	return refs
}

func TestReferencesAgainstNaiveTwin(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 4))
	names := []string{"a", "A", "q", "e", "E", "d", "", "aA"}
	for range 1000 {
		ev := event(1621, key(1))
		for range rnd.IntN(20) {
			value := []string{repo(rnd.IntN(4), "x").String(), eventID(rnd.IntN(4)).String(), "", "30617:x:y"}[rnd.IntN(4)]
			ev.Tags = append(ev.Tags, nostr.Tag{names[rnd.IntN(len(names))], value}[:1+rnd.IntN(2)])
		}
		assert.Equal(t, naiveRefs(ev), RepoRefs(ev))
	}
}
