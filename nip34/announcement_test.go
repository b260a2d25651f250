package nip34

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
)

func texts[T fmt.Stringer](list []T) []string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = v.String()
	}
	return out
}

func TestParseAnnouncement(t *testing.T) {
	a := announcement(t, key(1),
		nostr.Tag{}, nostr.Tag{""}, nostr.Tag{"relays"},
		nostr.Tag{"d", "a:b", "ignored"}, nostr.Tag{"d", "second"},
		nostr.Tag{"name", "A thing"},
		nostr.Tag{"relays", "wss://one.example", "two.example", "", "ftp://three.example"},
		nostr.Tag{"relays", "WSS://One.Example:443/", "ws://four.example:7000/x/"},
		nostr.Tag{"clone", "https://one.example/x.git", "git://one.example/x.git"},
		nostr.Tag{"clone", "http://two.example/y.git"},
		nostr.Tag{"maintainers", key(2).String(), "nonsense", key(3).String()},
		nostr.Tag{"maintainers", key(2).String(), strings.ToUpper(key(2000).String())},
	)
	assert.Equal(t, graspsync.RepoRef{Owner: key(1), Identifier: "a:b"}, a.Ref)
	assert.Equal(t, eventID(7), a.ID)
	assert.Equal(t, "A thing", a.Name)
	assert.Equal(t, graspsync.EventKey{CreatedAt: 100, ID: eventID(7)}, a.Key())
	assert.Equal(t, []string{"wss://one.example", "wss://two.example", "ws://four.example:7000/x"}, texts(a.Relays))
	assert.Equal(t, 2, a.UnusableRelays)
	assert.Equal(t, []string{"https://one.example/x.git", "http://two.example/y.git"}, texts(a.Clones))
	assert.Equal(t, 1, a.UnusableClones)
	assert.Equal(t, []graspsync.PubKey{key(2), key(3)}, a.Maintainers)
	assert.Equal(t, 2, a.UnusableMaintainers)
	assert.Zero(t, a.DroppedRelays+a.DroppedClones+a.DroppedMaintainers)
	assert.NotNil(t, a.Event)
}

func TestParseAnnouncementRefuses(t *testing.T) {
	for name, change := range map[string]func(*nostr.Event){
		"another kind":          func(ev *nostr.Event) { ev.Kind = graspsync.KindState },
		"no tags":               func(ev *nostr.Event) { ev.Tags = nil },
		"empty tags":            func(ev *nostr.Event) { ev.Tags = nostr.Tags{{}, nil, {""}} },
		"bare d":                func(ev *nostr.Event) { ev.Tags = nostr.Tags{{"d"}} },
		"bare d before another": func(ev *nostr.Event) { ev.Tags = nostr.Tags{{"d"}, {"d", "x"}} },
		"empty identifier":      func(ev *nostr.Event) { ev.Tags = nostr.Tags{{"d", ""}} },
		"long identifier":       func(ev *nostr.Event) { ev.Tags = nostr.Tags{{"d", strings.Repeat("x", 256)}} },
		"control byte":          func(ev *nostr.Event) { ev.Tags = nostr.Tags{{"d", "a\nb"}} },
		"not UTF-8":             func(ev *nostr.Event) { ev.Tags = nostr.Tags{{"d", "a\xff"}} },
	} {
		t.Run(name, func(t *testing.T) {
			ev := event(graspsync.KindAnnouncement, key(1), nostr.Tag{"d", "x"})
			change(ev)
			a, err := ParseAnnouncement(eventtest.Of(ev))
			require.ErrorIs(t, err, ErrInvalid)
			assert.Nil(t, a)
			ev.Kind = graspsync.KindState + graspsync.KindAnnouncement - ev.Kind
			s, err := ParseState(eventtest.Of(ev))
			require.ErrorIs(t, err, ErrInvalid, "states have the same header")
			assert.Nil(t, s)
		})
	}
}

// One announcement with 10,000 relays made a server dial all of them.
func TestTrapD7_FirstRelaysCount(t *testing.T) {
	const n = 10_000
	one := nostr.Tag{"relays"}
	var many nostr.Tags
	for i := range n {
		one = append(one, fmt.Sprintf("wss://r%d.example", i))
		many = append(many, nostr.Tag{"clone", fmt.Sprintf("https://r%d.example/x.git", i)})
	}
	tags := append(nostr.Tags{{"d", "x"}, one}, many...)
	a := announcement(t, key(1), tags...)
	require.Len(t, a.Relays, MaxListed)
	require.Len(t, a.Clones, MaxListed)
	assert.Equal(t, "wss://r63.example", a.Relays[63].String())
	assert.Equal(t, n-MaxListed, a.DroppedRelays)
	assert.Equal(t, n-MaxListed, a.DroppedClones)
}

// Four spellings of one relay became four connections. They also count as one of the first relays.
func TestTrapD1_SpellingsCountOnce(t *testing.T) {
	tag := nostr.Tag{"relays"}
	for i := range MaxListed {
		tag = append(tag, fmt.Sprintf("r%d.example", i), fmt.Sprintf("WSS://R%d.Example:443/", i),
			fmt.Sprintf("wss://r%d.example./", i))
	}
	a := announcement(t, key(1), nostr.Tag{"d", "x"}, tag)
	assert.Len(t, a.Relays, MaxListed)
	assert.Equal(t, 2, a.DroppedRelays, "the spellings that came when the list was full")
}

func TestRealEvents(t *testing.T) {
	us, err := ParseIdentity("gitnostr.com")
	require.NoError(t, err)
	announced := make(map[graspsync.RepoRef]*Announcement)
	var states []*State
	for _, ev := range realEvents(t) {
		require.True(t, ev.CheckID())
		if ev.Kind == graspsync.KindState {
			s, err := ParseState(eventtest.Of(ev))
			require.NoError(t, err)
			states = append(states, s)
			continue
		}
		a, err := ParseAnnouncement(eventtest.Of(ev))
		require.NoError(t, err)
		assert.True(t, us.Lists(a), a.Ref)
		assert.Zero(t, a.DroppedRelays+a.DroppedClones+a.DroppedMaintainers+a.UnusableRelays+a.UnusableClones+a.UnusableMaintainers)
		assert.Equal(t, []graspsync.PubKey{a.Ref.Owner}, a.Maintainers)
		announced[a.Ref] = a
	}
	require.Len(t, announced, 4)
	require.Len(t, states, 4)
	for _, s := range states {
		a := announced[s.Ref]
		require.NotNil(t, a)
		assert.True(t, Membership{}.AnnouncementSet(a.Ref.Identifier, []*Announcement{a}).Authority(a.Ref).Has(s.Ref.Owner))
		assert.Equal(t, "refs/heads/main", s.HEAD.String())
		assert.Len(t, s.Refs, 1)
	}
	worker := announced[graspsync.RepoRef{Owner: states[0].Ref.Owner, Identifier: "loom-worker"}]
	assert.Len(t, worker.Relays, 7)
	assert.Len(t, worker.Clones, 4)
}

func TestNewer(t *testing.T) {
	v := []graspsync.EventKey{{CreatedAt: 1, ID: eventID(3)}, {CreatedAt: 2, ID: eventID(9)}, {CreatedAt: 2, ID: eventID(1)}, {CreatedAt: 3, ID: eventID(5)}}
	for i, a := range v {
		for j, b := range v {
			assert.Equal(t, i > j, a.Newer(b), "%d %d", i, j)
		}
	}
}

func FuzzParseAnnouncement(f *testing.F) {
	f.Add("d\tx\nrelays\twss://a.example\tb.example\n\nclone\thttps://a.example/x.git", int64(1))
	f.Add("d", int64(-1))
	f.Add("d\ta:b\nmaintainers\t"+key(1).String()+"\nname\t\t", int64(1<<62))
	f.Add("relays\nd\tx\nclone\t\nrelays\t\t\t", int64(0))
	us, err := ParseIdentity("a.example", "https://b.example/base")
	require.NoError(f, err)
	f.Fuzz(func(t *testing.T, text string, at int64) {
		ev := event(graspsync.KindAnnouncement, key(1), fuzzTags(text)...)
		ev.CreatedAt = nostr.Timestamp(at)
		a, err := ParseAnnouncement(eventtest.Of(ev))
		if err != nil {
			require.ErrorIs(t, err, ErrInvalid)
			return
		}
		require.NoError(t, graspsync.CheckIdentifier(a.Ref.Identifier))
		require.LessOrEqual(t, len(a.Relays), MaxListed)
		require.LessOrEqual(t, len(a.Clones), MaxListed)
		require.LessOrEqual(t, len(a.Maintainers), MaxMaintainers)
		for i, u := range a.Relays {
			require.NotContains(t, a.Relays[:i], u)
			again, err := graspsync.ParseRelayURL(u.String())
			require.NoError(t, err)
			require.Equal(t, u, again)
		}
		if us.Lists(a) {
			require.True(t, slices.ContainsFunc(a.Relays, us.IsRelay))
			require.True(t, slices.ContainsFunc(a.Clones, us.IsClone))
		}
		ref, err := graspsync.ParseRepoRef(a.Ref.String())
		require.NoError(t, err)
		require.Equal(t, a.Ref, ref)
		var u graspsync.CloneURL
		require.NotContains(t, a.Clones, u)
	})
}
