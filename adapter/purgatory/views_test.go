package purgatoryadapter_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	purgatoryadapter "github.com/graspsync/graspsync/adapter/purgatory"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// submitted is an event submitted to a purgatory.
type submitted struct {
	id  graspsync.EventID
	src graspsync.Source
}

// shelf is a list of events as a naive purgatory and a naive View.
type shelf struct {
	relaysync.View
	events     []*nostr.Event
	remembered []*nip34.Announcement
	answer     purgatory.Answer
	err        error
	submitted  []submitted
	asked      int
}

func (s *shelf) Submit(_ context.Context, ev graspsync.Event, src graspsync.Source) (purgatory.Answer, error) {
	s.submitted = append(s.submitted, submitted{ev.ID, src})
	return s.answer, s.err
}

func (s *shelf) Announcements(identifier string) (out []*nip34.Announcement) {
	for _, ev := range s.events {
		if a, err := nip34.ParseAnnouncement(eventtest.Of(ev)); err == nil && a.Ref.Identifier == identifier {
			out = append(out, a)
		}
	}
	return out
}

func (s *shelf) AllAnnouncements() (out []*nip34.Announcement) {
	for _, ev := range s.events {
		if a, err := nip34.ParseAnnouncement(eventtest.Of(ev)); err == nil {
			out = append(out, a)
		}
	}
	return out
}

func (s *shelf) Remembered(identifier string) (out []*nip34.Announcement) {
	return slices.DeleteFunc(slices.Clone(s.remembered), func(a *nip34.Announcement) bool { return a.Ref.Identifier != identifier })
}

func (s *shelf) Held(nostr.Filter) (out []graspsync.EventKey) {
	for _, ev := range s.events {
		id, _ := graspsync.ParseEventID(ev.ID)
		out = append(out, graspsync.EventKey{CreatedAt: ev.CreatedAt, ID: id})
	}
	return out
}

func (s *shelf) Submitted(id graspsync.EventID) (byUser, waits bool) {
	waits = s.event(id) != nil
	return waits && id[0]%2 == 0, waits
}

func (s *shelf) EventsOf(author graspsync.PubKey) (out []graspsync.Event) {
	for _, ev := range s.events {
		if ev.PubKey == author.String() {
			out = append(out, eventtest.Of(ev))
		}
	}
	return out
}

func (s *shelf) event(id graspsync.EventID) *nostr.Event {
	for _, ev := range s.events {
		if ev.ID == id.String() {
			return ev
		}
	}
	return nil
}

// held is a shelf as a purgatory.
type held struct{ *shelf }

func (held) NotifyStored(graspsync.Event)     {}
func (held) NotifySuperseded(graspsync.Event) {}

func (h held) Event(id graspsync.EventID) graspsync.Event { return eventtest.Of(h.event(id)) }

func (held) Generation(string) any { return nil }

func (held) Lacking() map[graspsync.RepoRef]bool { return nil }

func (held) Knows(string, graspsync.PubKey) bool { return true }

func (s *shelf) Event(_ context.Context, id graspsync.EventID) (graspsync.Event, error) {
	s.asked++
	return eventtest.Of(s.event(id)), s.err
}

func (s *shelf) Events(_ context.Context, ids []graspsync.EventID) (map[graspsync.EventID]graspsync.Event, error) {
	s.asked++
	out := make(map[graspsync.EventID]graspsync.Event)
	for _, id := range ids {
		if ev := s.event(id); ev != nil {
			out[id] = eventtest.Of(ev)
		}
	}
	return out, s.err
}

func (s *shelf) Addressed(_ context.Context, at []graspsync.Address) (bool, error) {
	s.asked++
	return slices.ContainsFunc(s.events, func(ev *nostr.Event) bool {
		c, ok := eventtest.Of(ev).Address()
		return ok && slices.Contains(at, c)
	}), s.err
}

func (s *shelf) Near(context.Context, []graspsync.EventID, []graspsync.Address) ([]graspsync.Event, error) {
	s.asked++
	return nil, s.err
}

func (s *shelf) Wrote(_ context.Context, author graspsync.PubKey) (bool, error) {
	s.asked++
	return len(s.EventsOf(author)) > 0, s.err
}

func (s *shelf) Announced(ref graspsync.RepoRef) bool {
	return slices.ContainsFunc(s.Announcements(ref.Identifier), func(a *nip34.Announcement) bool { return a.Ref == ref })
}

func (s *shelf) Family(identifier string) []*nip34.Announcement { return s.Announcements(identifier) }

func (s *shelf) Waiting(string) []*nip34.Announcement { return nil }

func (s *shelf) Revision(string) relaysync.Revision { return relaysync.Revision{} }

// asInner is an inner policy that exposes its view.
type asInner struct {
	verdict graspsync.Verdict
	err     error
	lists   bool
	view    relaysync.View
}

func (*asInner) Authority(graspsync.RepoRef, relaysync.View) *nip34.Authority { return nil }

func (*asInner) RecognizedAuthors(string, relaysync.View) map[graspsync.PubKey]bool { return nil }

func (p *asInner) Judge(_ context.Context, _ graspsync.Event, _ graspsync.Source, view relaysync.View) (graspsync.Verdict, error) {
	p.view = view
	return p.verdict, p.err
}

func (p *asInner) Lists(*nip34.Announcement) bool { return p.lists }

// The view of the inner policy depends on the kind of the event: no held events, held
// announcements, or all held events.
func TestWhatWaitsIsSeenBesideWhatIsStored(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 5))
		var all []*nostr.Event
		for i, k := range []*relaytest.Key{owner, helper, stranger} {
			for _, name := range []string{"a", "b"} {
				all = append(all, k.Hosted(nostr.Timestamp(1+i), name, us), k.State(nostr.Timestamp(2+i), name, nil, ""),
					k.Issue(nostr.Timestamp(3+i), owner.Ref(name), name))
			}
		}
		stored, waits := &shelf{}, &shelf{}
		for _, ev := range all {
			if rng.IntN(3) == 0 {
				stored.events = append(stored.events, ev)
			}
			if rng.IntN(3) == 0 {
				waits.events = append(waits.events, ev)
			}
		}
		for _, a := range (&shelf{events: all}).AllAnnouncements() {
			if rng.IntN(4) == 0 {
				waits.remembered = append(waits.remembered, a)
			}
		}
		inner := &asInner{verdict: graspsync.Verdict{Decision: graspsync.Reject, Reason: "no"}}
		p := purgatoryadapter.NewPolicy(inner)
		p.Join(held{waits})
		ev := []*nostr.Event{
			owner.State(9, "a", nil, ""), owner.PullRequest(9, owner.Ref("a"), "x", commit),
			owner.PullRequestUpdate(9, owner.PullRequest(9, owner.Ref("a"), "x", commit), commit),
			owner.Hosted(9, "a", us), owner.Hosted(9, "a", us), owner.Issue(9, owner.Ref("a"), "x"),
			owner.Deletion(9, all[0]), owner.Event(9, graspsync.KindVanish, ""),
		}[seed%8]
		inner.lists = seed%8 != 4
		v, err := p.Judge(t.Context(), eventtest.Of(ev), graspsync.Source{}, stored)
		require.NoError(t, err)
		require.Equal(t, inner.verdict, v)
		require.Empty(t, waits.submitted)

		announcements, events := seed%8 != 3 && seed%8 != 5, seed%8 > 5
		one := &shelf{events: slices.Clone(stored.events)} // visible by address and announcement
		if announcements {
			one.events = append(one.events, waits.events...)
		}
		view := inner.view
		for _, k := range []graspsync.PubKey{owner.PubKey(), helper.PubKey(), stranger.PubKey()} {
			for _, name := range []string{"a", "b", "c"} {
				ref := graspsync.RepoRef{Owner: k, Identifier: name}
				require.Equal(t, one.Announced(ref), view.Announced(ref))
				family := stored.Family(name)
				if announcements {
					family = append(family, waits.Remembered(name)...)
				}
				require.Equal(t, family, view.Family(name))
				want, got := map[graspsync.RepoRef]int{}, map[graspsync.RepoRef]int{}
				for _, a := range one.Announcements(name) {
					want[a.Ref] = 1 // once, although it is stored and held
				}
				for _, a := range view.Announcements(name) {
					got[a.Ref]++
				}
				require.Equal(t, want, got)
			}
		}
		both := stored
		if events {
			both = &shelf{events: slices.Concat(stored.events, waits.events)}
		}
		var ids []graspsync.EventID
		for _, ev := range all {
			id, err := graspsync.ParseEventID(ev.ID)
			require.NoError(t, err)
			ids = append(ids, id)
			got, err := view.Event(t.Context(), id)
			require.NoError(t, err)
			require.Equal(t, both.event(id), got.Event)
			if c, ok := eventtest.Of(ev).Address(); ok {
				for _, at := range [][]graspsync.Address{{c}, {{Kind: c.Kind, Author: graspsync.PubKey{9}, Identifier: "x"}, c}, {{Kind: c.Kind, Author: c.Author, Identifier: "x"}, c}} {
					want, _ := both.Addressed(t.Context(), at)
					got, err := view.Addressed(t.Context(), at)
					require.NoError(t, err)
					require.Equal(t, want, got)
				}
			}
		}
		got, err := view.Events(t.Context(), ids)
		require.NoError(t, err)
		want, _ := both.Events(t.Context(), ids)
		require.Equal(t, want, got)
		for _, k := range []graspsync.PubKey{owner.PubKey(), helper.PubKey(), stranger.PubKey(), {}} {
			want, _ := both.Wrote(t.Context(), k)
			got, err := view.Wrote(t.Context(), k)
			require.NoError(t, err)
			require.Equal(t, want, got)
		}
		// A failure is returned if the answer depends on it.
		stored.err = errDisk
		_, err = view.Events(t.Context(), ids)
		require.ErrorIs(t, err, errDisk)
		nobody := graspsync.PubKey{1}
		_, err = view.Wrote(t.Context(), nobody)
		require.ErrorIs(t, err, errDisk)
		_, err = view.Addressed(t.Context(), nil)
		require.ErrorIs(t, err, errDisk)
		_, err = view.Event(t.Context(), graspsync.EventID{1})
		require.ErrorIs(t, err, errDisk)
	}
}

// An event that the inner policy accepts is held if necessary. Each answer of purgatory becomes a
// verdict, and purgatory receives the source.
func TestVerdictsOfPurgatory(t *testing.T) {
	ev := owner.State(1, "a", nil, "")
	url, err := graspsync.ParseRelayURL("wss://x.example")
	require.NoError(t, err)
	author := []graspsync.Dependency{graspsync.OnAuthor(owner.PubKey())}
	asked := []graspsync.Dependency{graspsync.OnOperatorRequest(eventtest.Of(ev).ID)}
	accept := graspsync.Verdict{Decision: graspsync.Accept, Reason: "it is welcome"}
	for _, c := range []struct {
		answer purgatory.Answer
		want   graspsync.Verdict
	}{
		{purgatory.Answer{Decision: purgatory.Pass}, accept},
		{purgatory.Answer{Decision: purgatory.Held}, graspsync.Verdict{Decision: graspsync.Hold, Reason: purgatory.Message}},
		{purgatory.Answer{Decision: purgatory.Full, Reason: "full"}, graspsync.Verdict{Decision: graspsync.Later, Reason: "full"}},
		{purgatory.Answer{Decision: purgatory.Refused, Reason: "no"}, graspsync.Verdict{Decision: graspsync.Reject, Reason: "no", DependsOn: author}},
		{purgatory.Answer{Decision: purgatory.Refused, Reason: "invalid: x"}, graspsync.Verdict{Decision: graspsync.Reject, Reason: "invalid: x"}},
		{purgatory.Answer{Decision: purgatory.Refused, Reason: "blocked: x"}, graspsync.Verdict{Decision: graspsync.Reject, Reason: "blocked: x", DependsOn: asked}},
	} {
		for _, src := range []graspsync.Source{{Kind: graspsync.Direct}, {Kind: graspsync.CatchUp, Relay: url}} {
			waits, stored := &shelf{answer: c.answer}, &shelf{}
			inner := &asInner{verdict: accept, lists: true}
			p := purgatoryadapter.NewPolicy(inner)
			p.Join(held{waits})
			v, err := p.Judge(t.Context(), eventtest.Of(ev), src, stored)
			require.NoError(t, err)
			require.Equal(t, c.want, v)
			require.Equal(t, []submitted{{eventtest.Of(ev).ID, src}}, waits.submitted)

			waits.err = errDisk
			v, err = p.Judge(t.Context(), eventtest.Of(ev), src, stored)
			require.ErrorIs(t, err, errDisk)
			require.Zero(t, v)
			waits.err, waits.submitted, stored.events = nil, nil, []*nostr.Event{ev}
			v, err = p.Judge(t.Context(), eventtest.Of(ev), src, stored)
			require.NoError(t, err)
			require.Equal(t, accept, v, "it is served")
			require.Empty(t, waits.submitted)
			stored.events, inner.err = nil, errDisk
			_, err = p.Judge(t.Context(), eventtest.Of(ev), src, stored)
			require.ErrorIs(t, err, errDisk)
			require.Empty(t, waits.submitted)
		}
	}
}

// Before Join nothing is held, and calls return an error.
func TestNotJoined(t *testing.T) {
	p := purgatoryadapter.NewPolicy(&asInner{})
	_, err := p.Held(t.Context(), nostr.Filter{})
	require.ErrorIs(t, err, purgatoryadapter.ErrNotJoined)
	byUser, holds := p.HeldForUser(graspsync.EventID{})
	require.False(t, byUser || holds)
	n := 0
	for a, err := range p.HeldAnnouncements(t.Context()) {
		require.Nil(t, a)
		require.ErrorIs(t, err, purgatoryadapter.ErrNotJoined)
		n++
	}
	require.Equal(t, 1, n)

	waits := &shelf{events: []*nostr.Event{owner.Hosted(1, "a", us), owner.Hosted(2, "b", us), owner.Issue(3, owner.Ref("a"), "x")}}
	p.Join(held{waits})
	stamps, err := p.Held(t.Context(), nostr.Filter{})
	require.NoError(t, err)
	require.Len(t, stamps, 3)
	for i, s := range stamps {
		require.Equal(t, waits.events[i].CreatedAt, s.CreatedAt)
		require.Equal(t, waits.events[i].ID, s.ID.String())
		wantUser, _ := waits.Submitted(s.ID)
		byUser, holds := p.HeldForUser(s.ID)
		require.True(t, holds)
		require.Equal(t, wantUser, byUser)
	}
	for most := 1; most <= 2; most++ {
		var got []string
		for a, err := range p.HeldAnnouncements(t.Context()) {
			require.NoError(t, err)
			if got = append(got, a.Ref.Identifier); len(got) == most {
				break
			}
		}
		require.Equal(t, strings.Split("a b", " ")[:most], got)
	}
}

// Events held by an inner policy would be missing in Held, so that relays would be asked for them
// again and again.
func TestInnerPolicyThatHolds(t *testing.T) {
	for name, ev := range map[string]*nostr.Event{
		"an announcement": owner.Hosted(1, "repo", us), "one that leaves": owner.Hosted(1, "repo"), "a state": owner.State(1, "repo", nil, ""),
		"a deletion": owner.Deletion(2, owner.State(1, "repo", nil, "")), "an issue": owner.Issue(1, owner.Ref("repo"), "x"),
	} {
		for _, lists := range []bool{true, false} {
			waits := &shelf{}
			p := purgatoryadapter.NewPolicy(&asInner{verdict: graspsync.Verdict{Decision: graspsync.Hold}, lists: lists})
			p.Join(held{waits})
			v, err := p.Judge(t.Context(), eventtest.Of(ev), graspsync.Source{}, &shelf{})
			require.ErrorContains(t, err, "inner policy", name)
			require.Zero(t, v, name)
			require.Empty(t, waits.submitted, name)
		}
	}
}

// The message for an event that depends on a held event says so, and asks only clients to submit
// again.
func TestEarly(t *testing.T) {
	for name, one := range map[string]struct {
		remembered int
		src        graspsync.SourceKind
		said       string
	}{
		"submitted": {remembered: 1, src: graspsync.Direct, said: "is announced, and waits for its git data: submit this again when the data has arrived"},
		"synced":    {remembered: 1, src: graspsync.Live, said: "is announced, and waits for its git data"},
		"nothing":   {src: graspsync.Direct},
	} {
		t.Run(name, func(t *testing.T) {
			identity, err := nip34.ParseIdentity(us)
			require.NoError(t, err)
			ann, err := nip34.ParseAnnouncement(eventtest.Of(owner.Hosted(at(time.Hour), "repo", us)))
			require.NoError(t, err)
			waiting := &shelf{remembered: []*nip34.Announcement{ann}[:one.remembered]}
			p := purgatoryadapter.NewPolicy(relaysync.NewGRASPPolicy(identity))
			p.Join(held{waiting})
			v, err := p.Judge(t.Context(), eventtest.Of(stranger.Issue(at(0), owner.Ref("repo"), "x")), graspsync.Source{Kind: one.src}, &shelf{})
			require.NoError(t, err)
			require.Equal(t, graspsync.Depend, v.Decision)
			if one.said == "" {
				require.Empty(t, v.Detail)
				return
			}
			require.Equal(t, "repository "+owner.Npub()+"/repo "+one.said, v.Detail)
		})
	}
}
