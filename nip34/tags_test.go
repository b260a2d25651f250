package nip34

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/filters"
)

func repo(n int, identifier string) filters.RepoRef {
	return filters.RepoRef{Owner: key(n), Identifier: identifier}
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
		nostr.Tag{"a", repo(6, "state").Address(filters.KindState)},
		nostr.Tag{"a", "30023:" + key(7).String() + ":"},
	)
	assert.Equal(t, []filters.RepoRef{repo(1, "one"), repo(2, "two"), repo(3, "three")}, RepoRefs(ev))
	assert.Equal(t, []filters.EventID{eventID(1), eventID(2), eventID(3)}, EventRefs(ev))
	assert.Equal(t, []Address{
		{filters.KindAnnouncement, key(1), "one"}, {filters.KindAnnouncement, key(2), "two"},
		{filters.KindAnnouncement, key(3), "three"}, {filters.KindState, key(6), "state"}, {30023, key(7), ""},
	}, Addresses(ev))
	assert.Empty(t, RepoRefs(event(1, key(1))))
}

// Identifiers with ":" were cut short, and only the first a tag was used.
func TestTrapD4_WholeIdentifiersAndAllTags(t *testing.T) {
	ev := event(filters.KindIssue, key(1), nostr.Tag{"a", repo(1, "a:b:c").String()}, nostr.Tag{"a", repo(2, ":").String()})
	want := []filters.RepoRef{repo(1, "a:b:c"), repo(2, ":")}
	assert.Equal(t, want, RepoRefs(ev))
	assert.Equal(t, want, RootRefs(ev))
	ev.Kind = filters.KindDeletion
	_, addresses := ParseDeletion(ev)
	assert.Equal(t, "a:b:c", addresses[0].Identifier)
}

func TestRootRefs(t *testing.T) {
	a := nostr.Tag{"a", repo(1, "x").String()}
	for kind := range 32000 {
		want := kind == 1617 || kind == 1618 || kind == 1621
		require.Equal(t, want, IsRoot(kind), kind)
	}
	assert.Equal(t, []filters.RepoRef{repo(1, "x")}, RootRefs(event(filters.KindPatch, key(1), a)))
	assert.Empty(t, RootRefs(event(1619, key(1), a)), "a pull request update is no root")
	assert.Empty(t, RootRefs(event(filters.KindIssue, key(1), nostr.Tag{"q", a[1]}, nostr.Tag{"A", a[1]})))
	ev := event(filters.KindIssue, key(1))
	for i := range 100 {
		ev.Tags = append(ev.Tags, nostr.Tag{"a", repo(i, "x").String()})
	}
	assert.Len(t, RootRefs(ev), MaxRepos)
	assert.Len(t, RepoRefs(ev), 100)
}

func TestParseAddress(t *testing.T) {
	k := key(1).String()
	for s, want := range map[string]Address{
		"30617:" + k + ":x":    {30617, key(1), "x"},
		"30618:" + k + ":x:y":  {30618, key(1), "x:y"},
		"0:" + k + ":":         {0, key(1), ""},
		"30023:" + k + ":a\nb": {30023, key(1), "a\nb"},
		"65535:" + k + "::":    {65535, key(1), ":"},
	} {
		a, err := ParseAddress(s)
		require.NoError(t, err, s)
		assert.Equal(t, want, a)
		ref, ok := a.Repo()
		assert.Equal(t, a.Kind == 30617 || a.Kind == 30618, ok)
		assert.Equal(t, !ok, ref.IsZero())
	}
	for _, s := range []string{
		"", ":", "::", "30617", "30617:" + k, "30617:" + k + ":", "30618:" + k + ":" + strings.Repeat("x", 300),
		"x:" + k + ":x", "-1:" + k + ":x", "65536:" + k + ":x", "+1:" + k + ":x", "30617:" + k[1:] + ":x",
		"30617::x", "30617:" + k + ":a\nb",
	} {
		_, err := ParseAddress(s)
		require.ErrorIs(t, err, errAddress, "%q", s)
	}
}

func TestParseDeletion(t *testing.T) {
	ev := event(filters.KindDeletion, key(1),
		nostr.Tag{"e", eventID(1).String()}, nostr.Tag{"e", eventID(1).String()}, nostr.Tag{"e"}, nostr.Tag{"e", "x"},
		nostr.Tag{"E", eventID(2).String()}, nostr.Tag{"q", eventID(3).String()},
		nostr.Tag{"a", repo(1, "x").String()}, nostr.Tag{"A", repo(1, "y").String()}, nostr.Tag{"a", repo(2, "z").Address(30618)},
	)
	ids, addresses := ParseDeletion(ev)
	assert.Equal(t, []filters.EventID{eventID(1)}, ids)
	assert.Equal(t, []Address{{30617, key(1), "x"}, {30618, key(2), "z"}}, addresses)
	ev.Kind = 1
	ids, addresses = ParseDeletion(ev)
	assert.Empty(t, ids)
	assert.Empty(t, addresses)
}

func TestMarks(t *testing.T) {
	assert.False(t, IsProtected(event(1, key(1), nostr.Tag{}, nostr.Tag{"--"}, nostr.Tag{"x", "-"})))
	assert.True(t, IsProtected(event(1, key(1), nostr.Tag{"x"}, nostr.Tag{"-"})))
	assert.True(t, IsProtected(event(1, key(1), nostr.Tag{"-", "x"})))

	for value, want := range map[string]nostr.Timestamp{
		"0": 0, "1700000000": 1700000000, "9223372036854775807": 1<<63 - 1,
	} {
		at, ok := Expiration(event(1, key(1), nostr.Tag{"expiration", value}))
		assert.True(t, ok)
		assert.Equal(t, want, at)
	}
	for _, value := range []string{"", "x", "-1", "1.5", "1e9", "9223372036854775808", " 1"} {
		_, ok := Expiration(event(1, key(1), nostr.Tag{"expiration", value}))
		assert.False(t, ok, "%q", value)
	}
	_, ok := Expiration(event(1, key(1), nostr.Tag{"expiration"}))
	assert.False(t, ok)
	_, ok = Expiration(event(1, key(1)))
	assert.False(t, ok)
}

// 10,000 tags are what one event may bring; nothing here is more than one pass.
func TestHostileTags(t *testing.T) {
	ev := event(filters.KindIssue, key(1))
	for i := range 10_000 {
		ev.Tags = append(ev.Tags, []nostr.Tag{
			{}, nil, {""}, {"a"}, {"d"}, {"e", ""}, {"q", repo(i, "x").String()}, {"e", eventID(i).String()},
			{"a", "30617:" + key(i).String() + ":"}, {"E", fmt.Sprint(i)},
		}[i%10])
	}
	assert.Len(t, RepoRefs(ev), 1000)
	assert.Len(t, EventRefs(ev), 1000)
	assert.Empty(t, RootRefs(ev))
	assert.False(t, IsProtected(ev))
	ev.Kind = filters.KindAnnouncement
	_, err := ParseAnnouncement(ev)
	require.ErrorIs(t, err, ErrInvalid)
}

// naiveRefs is references without its set.
func naiveRefs(ev *nostr.Event) (refs []filters.RepoRef) {
	for _, name := range ev.Tags {
		if len(name) > 1 && (name[0] == "a" || name[0] == "A" || name[0] == "q") {
			if ref, err := filters.ParseRepoRef(name[1]); err == nil && !slices.Contains(refs, ref) {
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
