package khatruadapter

import (
	"context"
	"encoding/json"
	"net/http/httptest"
	"testing"

	"github.com/fiatjaf/eventstore/slicestore"
	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	relaysync "github.com/graspsync/graspsync/sync"
)

// withSecond returns a relay whose hooks copy events to a second store, such as a search index.
func withSecond(t *testing.T) (relay *khatru.Relay, db, second *slicestore.SliceStore, deleted *[]string) {
	t.Helper()
	relay, db, second, deleted = khatru.NewRelay(), newSlice(t), newSlice(t), new([]string)
	relay.OnEventSaved = append(relay.OnEventSaved, func(ctx context.Context, e *nostr.Event) { assert.NoError(t, second.SaveEvent(ctx, e)) })
	relay.DeleteEvent = append(relay.DeleteEvent, second.DeleteEvent, func(_ context.Context, e *nostr.Event) error {
		*deleted = append(*deleted, e.ID)
		return nil
	})
	return relay, db, second, deleted
}

// in returns the ids in a backend.
func in(t *testing.T, db *slicestore.SliceStore) (ids []string) {
	t.Helper()
	ch, err := db.QueryEvents(t.Context(), nostr.Filter{})
	require.NoError(t, err)
	for e := range ch {
		ids = append(ids, e.ID)
	}
	return ids
}

// A second store missed synced events and kept events that sync had deleted or replaced.
func TestSecondStoreSeesWhatSyncDoes(t *testing.T) {
	relay, db, second, deleted := withSecond(t)
	s, store, m := embed(t, relay, db, Config{})
	d := nostr.Tag{"d", "repo"}
	issue, v0, v1, v2 := event(alice, 1621, start), event(alice, 30617, start-1, d), event(alice, 30617, start, d), event(alice, 30617, start+1, d)
	profile, theirs := event(alice, 0, start), event(bob, 1621, start)
	importEvents(t, store, issue, v0, v1, profile, theirs)
	assert.ElementsMatch(t, []string{issue.ID, v1.ID, profile.ID, theirs.ID}, in(t, second))
	deletion := event(alice, 5, start+5, nostr.Tag{"e", issue.ID}, nostr.Tag{"e", theirs.ID})
	importEvents(t, store, deletion, v2)
	want := []string{deletion.ID, v2.ID, profile.ID, theirs.ID}
	assert.ElementsMatch(t, want, in(t, second))
	assert.ElementsMatch(t, want, in(t, db))
	assert.ElementsMatch(t, []string{issue.ID, v0.ID, v1.ID}, *deleted, "each once")
	vanish := event(alice, 62, start+9, nostr.Tag{"relay", "ALL_RELAYS"})
	importEvents(t, store, vanish)
	assert.ElementsMatch(t, []string{vanish.ID, theirs.ID}, in(t, second))
	assert.ElementsMatch(t, []string{vanish.ID, theirs.ID}, in(t, db))
	assert.Empty(t, m.gone(), "the manager did it")

	// The same for a released event and for events of a client.
	held := event(bob, 30617, start, d)
	o, err := s.Release(t.Context(), eventtest.Of(held))
	require.NoError(t, err)
	require.Equal(t, graspsync.Stored, o.Result)
	assert.Contains(t, in(t, second), held.ID)
	gone := event(bob, 62, start+9, nostr.Tag{"relay", "ALL_RELAYS"})
	_, err = relay.AddEvent(t.Context(), gone)
	require.NoError(t, err)
	assert.ElementsMatch(t, []string{vanish.ID, gone.ID}, in(t, second))
	assert.ElementsMatch(t, []string{vanish.ID, gone.ID}, in(t, db))
}

// OverwriteDeletionOutcome was not called for synced deletions.
func TestOverwriteDeletionOutcomeOfSync(t *testing.T) {
	relay, db, _, deleted := withSecond(t)
	relay.OverwriteDeletionOutcome = append(relay.OverwriteDeletionOutcome,
		func(_ context.Context, target, _ *nostr.Event) (bool, string) {
			return target.Kind != 30617, "announcements stay"
		})
	s, store, _ := embed(t, relay, db, Config{})
	ann, issue := event(alice, 30617, start, nostr.Tag{"d", "repo"}), event(alice, 1621, start)
	importEvents(t, store, ann, issue)
	outcomes := importEvents(t, store,
		event(alice, 5, start, nostr.Tag{"e", issue.ID}, nostr.Tag{"e", ann.ID}),
		event(alice, 5, start, nostr.Tag{"a", "30617:" + alice + ":repo"}))
	assert.Equal(t, []graspsync.Result{graspsync.Refused, graspsync.Refused}, results(outcomes))
	require.ErrorContains(t, outcomes[0].Err, "announcements stay")
	assert.ElementsMatch(t, []string{ann.ID, issue.ID}, content(t, s.Store()))
	assert.Equal(t, []graspsync.Result{graspsync.Stored},
		results(importEvents(t, store, event(alice, 5, start, nostr.Tag{"e", issue.ID}))))
	assert.Equal(t, []string{issue.ID}, *deleted)
}

// An event that sync removes because no announcement lists its author leaves all stores, and hooks
// are called.
func TestSecondStoreSeesWhatIsRemoved(t *testing.T) {
	relay, db, second, deleted := withSecond(t)
	_, store, m := embed(t, relay, db, Config{})
	one, other := event(alice, 30617, start, nostr.Tag{"d", "repo"}), event(bob, 30617, start, nostr.Tag{"d", "repo"})
	importEvents(t, store, one, other)
	var remover relaysync.Store = store
	require.NoError(t, remover.Remove(t.Context(), eventtest.Of(one)))
	require.NoError(t, remover.Remove(t.Context(), eventtest.Of(event(alice, 30617, start, nostr.Tag{"d", "never here"}))))
	assert.Equal(t, []string{other.ID}, in(t, db))
	assert.Equal(t, []string{other.ID}, in(t, second))
	assert.Equal(t, one.ID, (*deleted)[0])
	assert.Empty(t, m.removed, "who had it removed knows")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.Error(t, remover.Remove(ctx, eventtest.Of(other)))
	assert.Equal(t, []string{other.ID}, in(t, db))
}

// khatru executes a published deletion before its hooks decide: a refused deletion removed its
// target and was not stored.
func TestRefusedDeletionDeletesNothing(t *testing.T) {
	for _, name := range []string{"our hooks", "a query hook that comes later"} {
		t.Run(name, func(t *testing.T) {
			relay, db := khatru.NewRelay(), newSlice(t)
			s, _, m := embed(t, relay, db, Config{ApplyPolicyToClients: true})
			if name == "a query hook that comes later" { // khatru finds targets with it
				relay.QueryEvents = append(relay.QueryEvents, db.QueryEvents)
			}
			refuse := false
			relay.RejectEvent = append(relay.RejectEvent, // after New
				func(context.Context, *nostr.Event) (bool, string) { return refuse, "blocked: not today" })
			server := httptest.NewServer(relay)
			defer server.Close()
			key := nostr.GeneratePrivateKey()
			c := dial(t, server.URL)
			publish := func(e *nostr.Event) string {
				data, err := json.Marshal(e)
				require.NoError(t, err)
				return c.say(`["EVENT",%s]`, data)
			}
			m.verdict = graspsync.Verdict{Decision: graspsync.Accept}
			note, other := signed(t, key, 1), signed(t, key, 1)
			require.Contains(t, publish(note), "true")
			require.Contains(t, publish(other), "true")
			deletion := signed(t, key, 5, nostr.Tag{"e", note.ID}, nostr.Tag{"e", other.ID})

			m.verdict = graspsync.Verdict{Decision: graspsync.Reject, Reason: "blocked: because"}
			require.Contains(t, publish(deletion), "because")
			require.ElementsMatch(t, []string{note.ID, other.ID}, content(t, s.Store()))
			m.verdict, refuse = graspsync.Verdict{Decision: graspsync.Accept}, true
			require.Contains(t, publish(deletion), "not today")
			require.ElementsMatch(t, []string{note.ID, other.ID}, content(t, s.Store()))
			refuse = false
			require.Contains(t, publish(deletion), "true")
			require.Equal(t, []string{deletion.ID}, content(t, s.Store()), "before the client hears OK, whether or not Run runs")
			stranger := signed(t, nostr.GeneratePrivateKey(), 5, nostr.Tag{"e", deletion.ID})
			require.Contains(t, publish(stranger), "not the author")
		})
	}
}
