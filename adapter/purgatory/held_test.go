package purgatoryadapter

import (
	"context"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
	relaysync "github.com/graspsync/graspsync/sync"
)

// holds is a purgatory with two events.
type holds struct{}

func (holds) Submit(context.Context, graspsync.Event, bool) (purgatory.Answer, error) {
	return purgatory.Answer{Decision: purgatory.Held}, nil
}

func (holds) SubmitFrom(context.Context, graspsync.Event, string) (purgatory.Answer, error) {
	return purgatory.Answer{Decision: purgatory.Held}, nil
}

func (holds) Held(f nostr.Filter) []purgatory.Stamp {
	if len(f.Kinds) == 0 {
		return nil
	}
	return []purgatory.Stamp{{CreatedAt: 5, ID: graspsync.EventID{1}}, {CreatedAt: 6, ID: graspsync.EventID{2}}}
}

func (holds) Announcements(string) []*nip34.Announcement       { return nil }
func (holds) Remembered(string) []*nip34.Announcement          { return nil }
func (holds) Event(graspsync.EventID) graspsync.Event          { return graspsync.Event{} }
func (holds) Submitted(graspsync.EventID) (byUser, waits bool) { return false, false }
func (holds) EventsOf(graspsync.PubKey) []graspsync.Event      { return nil }
func (holds) Generation(string) any                            { return nil }
func (holds) Knows(string, graspsync.PubKey) bool              { return false }
func (holds) AllAnnouncements() []*nip34.Announcement          { return nil }

// What waits is told to reconciliation by time and id: else it is fetched again by
// every pass, as if it were not here.
func TestTrapP3_HeldIsKnown(t *testing.T) {
	p := NewPolicy(nil)
	_, err := p.Held(t.Context(), nostr.Filter{Kinds: []int{graspsync.KindState}})
	require.ErrorIs(t, err, ErrNotJoined)
	p.Join(holds{})
	got, err := p.Held(t.Context(), nostr.Filter{Kinds: []int{graspsync.KindState}})
	require.NoError(t, err)
	require.Equal(t, []graspsync.Stamp{{CreatedAt: 5, ID: graspsync.EventID{1}}, {CreatedAt: 6, ID: graspsync.EventID{2}}}, got)
	got, err = p.Held(t.Context(), nostr.Filter{})
	require.NoError(t, err)
	require.Empty(t, got)
}

// relays is a purgatory that is told which relay brought an event.
type relays struct {
	holds
	told []string
}

func (r *relays) SubmitFrom(_ context.Context, _ graspsync.Event, relay string) (purgatory.Answer, error) {
	r.told = append(r.told, relay)
	return purgatory.Answer{Decision: purgatory.Held}, nil
}

// anything accepts whatever comes.
type anything struct{ relaysync.Policy }

func (anything) Judge(context.Context, graspsync.Event, graspsync.Source, relaysync.View) (graspsync.Verdict, error) {
	return graspsync.Verdict{Decision: graspsync.Accept}, nil
}

// nowhere has nothing stored.
type nowhere struct{ relaysync.View }

func (nowhere) Event(context.Context, graspsync.EventID) (graspsync.Event, error) {
	return graspsync.Event{}, nil
}

// Places are shared by the relays that bring what waits, by their names: ports and paths are
// free.
func TestPurgatoryIsToldWhichRelay(t *testing.T) {
	p, where := NewPolicy(anything{}), &relays{}
	p.Join(where)
	ev := &nostr.Event{Kind: graspsync.KindPullRequest}
	for _, relay := range []string{"wss://a.example:4848/x", "wss://b.example", ""} {
		src := graspsync.Source{Kind: graspsync.Live}
		if relay == "" {
			src.Kind = graspsync.Direct
		} else {
			var err error
			src.Relay, err = graspsync.ParseRelayURL(relay)
			require.NoError(t, err)
		}
		v, err := p.Judge(t.Context(), eventtest.Of(ev), src, nowhere{})
		require.NoError(t, err)
		require.Equal(t, graspsync.Hold, v.Decision)
	}
	require.Equal(t, []string{"a.example", "b.example"}, where.told)
}
