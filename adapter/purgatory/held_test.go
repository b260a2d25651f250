package purgatoryadapter

import (
	"context"
	"testing"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory"
)

// holds is a purgatory with two events.
type holds struct{}

func (holds) Submit(context.Context, graspsync.Event, graspsync.Source) (purgatory.Answer, error) {
	return purgatory.Answer{Decision: purgatory.Held}, nil
}

func (holds) NotifyStored(graspsync.Event)     {}
func (holds) NotifySuperseded(graspsync.Event) {}

func (holds) Held(f nostr.Filter) []graspsync.EventKey {
	if len(f.Kinds) == 0 {
		return nil
	}
	return []graspsync.EventKey{{CreatedAt: 5, ID: graspsync.EventID{1}}, {CreatedAt: 6, ID: graspsync.EventID{2}}}
}

func (holds) Announcements(string) []*nip34.Announcement       { return nil }
func (holds) Remembered(string) []*nip34.Announcement          { return nil }
func (holds) Event(graspsync.EventID) graspsync.Event          { return graspsync.Event{} }
func (holds) Submitted(graspsync.EventID) (byUser, waits bool) { return false, false }
func (holds) EventsOf(graspsync.PubKey) []graspsync.Event      { return nil }
func (holds) Generation(string) any                            { return nil }
func (holds) Knows(string, graspsync.PubKey) bool              { return false }
func (holds) AllAnnouncements() []*nip34.Announcement          { return nil }
func (holds) Lacking() map[graspsync.RepoRef]bool              { return nil }

// Reconciliations include time and id of held events. Otherwise each pass would fetch them again.
func TestTrapP3_HeldIsKnown(t *testing.T) {
	p := NewPolicy(nil)
	_, err := p.Held(t.Context(), nostr.Filter{Kinds: []int{graspsync.KindState}})
	require.ErrorIs(t, err, ErrNotJoined)
	p.Join(holds{})
	got, err := p.Held(t.Context(), nostr.Filter{Kinds: []int{graspsync.KindState}})
	require.NoError(t, err)
	require.Equal(t, []graspsync.EventKey{{CreatedAt: 5, ID: graspsync.EventID{1}}, {CreatedAt: 6, ID: graspsync.EventID{2}}}, got)
	got, err = p.Held(t.Context(), nostr.Filter{})
	require.NoError(t, err)
	require.Empty(t, got)
}
