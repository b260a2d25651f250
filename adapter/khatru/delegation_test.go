package khatruadapter

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/internal/embedding"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// The release of a client's event needs no authentication. A synced event does.
func TestReleasedAsWhatItCame(t *testing.T) {
	relay := khatru.NewRelay()
	relay.RejectEvent = append(relay.RejectEvent, func(context.Context, *nostr.Event) (bool, string) {
		return true, "auth-required: who are you?"
	})
	expectLog(t, "WARN hook refused a synced event, khatruadapter.IsSynced lets it accept such events")
	s, _, m := embed(t, relay, newSlice(t), Config{})
	for kind, want := range map[graspsync.SourceKind]graspsync.Result{graspsync.Direct: graspsync.Stored, graspsync.Live: graspsync.Refused} {
		e := event(alice, 1, start)
		id, err := graspsync.ParseEventID(e.ID)
		require.NoError(t, err)
		m.from = map[graspsync.EventID]graspsync.Source{id: {Kind: kind}}
		o, err := s.Release(t.Context(), eventtest.Of(e))
		require.NoError(t, err)
		assert.Equal(t, want, o.Result)
	}
}

// keeps is a policy that holds every event.
type keeps struct {
	relaysync.Policy
	mu    sync.Mutex
	asked []string // guarded by mu
}

func (k *keeps) Judge(_ context.Context, e graspsync.Event, _ graspsync.Source, _ relaysync.View) (graspsync.Verdict, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked = append(k.asked, e.ID.String())
	return graspsync.Verdict{Decision: graspsync.Hold, Reason: held}, nil
}

// If a hook refuses a synced event, the policy is not asked, so that no git data is fetched.
func TestHooksComeBeforeAPolicyThatHolds(t *testing.T) {
	identity, err := nip34.ParseIdentity("grasp.example.com")
	require.NoError(t, err)
	relay := khatru.NewRelay()
	synctest.Test(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		a := net.Add("wss://a.example", relaytest.Behavior{})
		owner, spammer := relaytest.NewCheapKey("owner"), relaytest.NewCheapKey("spammer")
		at := nostr.Timestamp(time.Now().Add(-time.Hour).Unix())
		db := newSlice(t)
		announcement := owner.Hosted(at, "repo", "grasp.example.com", "a.example")
		require.NoError(t, db.SaveEvent(t.Context(), announcement))
		wanted, unwanted := owner.Issue(at, owner.Ref("repo"), "x"), spammer.Issue(at, owner.Ref("repo"), "spam")
		a.Publish(announcement, wanted, unwanted)
		relay.RejectEvent = append(relay.RejectEvent, func(_ context.Context, e *nostr.Event) (bool, string) {
			return e.PubKey == spammer.Hex(), "blocked: spam"
		})
		policy := &keeps{Policy: relaysync.NewGRASPPolicy(identity)}
		expectLog(t, "WARN hook refused a synced event, khatruadapter.IsSynced lets it accept such events")
		s, err := New(relay, db, identity, Config{Transport: net, Sync: relaysync.Config{
			Policy: policy, Holder: holder{}, Verifier: relaytest.CheapVerifier{}, Logger: logged(t),
		}})
		require.NoError(t, err)
		stop := run(t, s)
		time.Sleep(time.Minute)
		synctest.Wait()
		stop()
		policy.mu.Lock()
		defer policy.mu.Unlock()
		assert.Equal(t, []string{wanted.ID}, policy.asked)
		assert.Equal(t, uint64(1), s.Manager().Status().Events.Rejected[embedding.ReasonHook])
		refused, err := s.Manager().EventState(t.Context(), eventtest.Of(unwanted).ID)
		assert.NoError(t, err)
		assert.Equal(t, `"blocked: spam"`, refused.Detail)
		assert.Equal(t, uint64(1), s.Manager().Status().Events.Held)
	})
}

// A policy that holds events without a Holder loses nothing silently: the client is told that the
// event cannot be judged, and the log names the missing setting.
func TestPolicyThatHoldsAndHasNoHolder(t *testing.T) {
	identity, err := nip34.ParseIdentity("grasp.example.com")
	require.NoError(t, err)
	relay := khatru.NewRelay()
	synctest.Test(t, func(t *testing.T) {
		expectLog(t, "ERROR judging an event failed")
		policy := &keeps{Policy: relaysync.NewGRASPPolicy(identity)}
		s, err := New(relay, newSlice(t), identity, Config{ApplyPolicyToClients: true, Transport: relaytest.NewNetwork(), Sync: relaysync.Config{
			Policy: policy, Verifier: relaytest.CheapVerifier{}, Logger: logged(t),
		}})
		require.NoError(t, err)
		defer run(t, s)()
		synctest.Wait()
		_, err = relay.AddEvent(t.Context(), relaytest.NewCheapKey("who").Event(nostr.Now(), 30618, "", nostr.Tag{"d", "repo"}))
		require.EqualError(t, err, embedding.MsgJudge)
		require.Empty(t, content(t, s.Store()))
	})
}

// A reply that names no issue and an event that an accepted event quotes were refused with a
// backend that has no limit for internal queries.
func TestConversationsOfClients(t *testing.T) {
	identity, err := nip34.ParseIdentity("grasp.example.com")
	require.NoError(t, err)
	relay := khatru.NewRelay()
	synctest.Test(t, func(t *testing.T) {
		owner, reader := relaytest.NewCheapKey("owner"), relaytest.NewCheapKey("reader")
		at := nostr.Timestamp(time.Now().Add(-time.Hour).Unix())
		s, err := New(relay, newSlice(t), identity, Config{ApplyPolicyToClients: true, Transport: relaytest.NewNetwork(), Sync: relaysync.Config{
			Verifier: relaytest.CheapVerifier{}, Logger: logged(t),
		}})
		require.NoError(t, err)
		defer run(t, s)()
		synctest.Wait()
		quoted := reader.Event(at, 1, "quoted")
		note := reader.Event(at, 1, "note", nostr.Tag{"q", owner.Ref("repo").String()}, nostr.Tag{"e", quoted.ID})
		answer := reader.Event(at, 1, "answer", nostr.Tag{"e", note.ID})
		for _, ev := range []*nostr.Event{
			owner.Hosted(at, "repo", "grasp.example.com"), note, answer, quoted,
			reader.Event(at, 7, "+", nostr.Tag{"e", answer.ID}), reader.Event(at, 7, "-", nostr.Tag{"e", quoted.ID}),
		} {
			_, err := relay.AddEvent(t.Context(), ev)
			require.NoError(t, err, "%d %s", ev.Kind, ev.Content)
			synctest.Wait()
		}
		_, err = relay.AddEvent(t.Context(), reader.Event(at, 1, "of nothing here"))
		require.ErrorContains(t, err, "blocked: not related")
	})
}
