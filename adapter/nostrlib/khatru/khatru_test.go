package khatruadapter

import (
	"context"
	"strings"
	"testing"
	"time"

	"fiatjaf.com/nostr"
	"fiatjaf.com/nostr/eventstore"
	"fiatjaf.com/nostr/khatru"
	"fiatjaf.com/nostr/nip77/negentropy"
	"fiatjaf.com/nostr/nip77/negentropy/storage/vector"
	"github.com/coder/websocket"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/internal/embedding"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
)

func ids(list ...nostr.Event) (out []graspsync.EventID) {
	for _, e := range list {
		out = append(out, graspsync.EventID(e.ID))
	}
	return out
}

func TestDirect(t *testing.T) {
	relay := khatru.NewRelay()
	var stored, gone []graspsync.EventID
	s, _, m := embed(t, relay, newSlice(t), Config{
		Stored:  func(e graspsync.Event) { stored = append(stored, e.ID) },
		Removed: func(e graspsync.Event) { gone = append(gone, e.ID) },
	})
	one, repo := event(alice, 1, start), event(alice, 30617, start, nostr.Tag{"d", "repo"})
	newer := event(alice, 30617, start+1, nostr.Tag{"d", "repo"})
	require.NoError(t, publish(t, relay, one))
	require.NoError(t, publish(t, relay, repo))
	require.NoError(t, publish(t, relay, newer))
	require.NoError(t, publish(t, relay, repo), "an older version is taken note of by nobody")
	skip, err := relay.AddEvent(t.Context(), one)
	require.NoError(t, err)
	require.True(t, skip, "it is here already")
	require.Equal(t, ids(one, repo, newer), m.stored)
	require.Equal(t, m.stored, stored)
	require.Equal(t, ids(repo), gone)
	require.ElementsMatch(t, []nostr.ID{one.ID, newer.ID}, content(t, s.Store()))
	require.Zero(t, m.judged)
	require.NoError(t, relay.DeleteEvent(t.Context(), one.ID))
	require.NoError(t, relay.DeleteEvent(t.Context(), nostr.ID{9}))
	require.Equal(t, ids(one), m.gone())
	require.Equal(t, ids(repo, one), gone)
	require.NoError(t, publish(t, relay, event(alice, 20001, start)), "nobody stores it")
	require.Len(t, content(t, s.Store()), 1)
}

// Every hook of the relay is called. Run fails if a hook is set after New.
func TestHooksOfTheRelay(t *testing.T) {
	relay, db := khatru.NewRelay(), newSlice(t)
	var called []string
	note := func(name string) { called = append(called, name) }
	relay.OnEvent = func(_ context.Context, e nostr.Event) (bool, string) {
		note("OnEvent")
		return e.Kind == 4, "blocked: no letters"
	}
	relay.DeleteEvent = func(context.Context, nostr.ID) error { note("DeleteEvent"); return nil }
	relay.OnEventSaved = func(context.Context, nostr.Event) { note("OnEventSaved") }
	relay.OnEventDeleted = func(context.Context, nostr.Event) { note("OnEventDeleted") }
	relay.OnRequest = func(context.Context, nostr.Filter) (bool, string) { note("OnRequest"); return true, "blocked: no" }
	s, store, _ := embed(t, relay, db, Config{})
	was := func(want ...string) {
		t.Helper()
		require.Equal(t, want, called)
		called = nil
	}
	one, version := event(alice, 1, start), event(alice, 0, start)
	require.NoError(t, publish(t, relay, one))
	was("OnEvent", "OnEventSaved")
	require.ElementsMatch(t, []nostr.ID{one.ID}, content(t, s.Store()))
	require.NoError(t, publish(t, relay, version))
	was("OnEvent", "OnEventSaved")
	require.ErrorContains(t, publish(t, relay, event(alice, 4, start)), "no letters")
	was("OnEvent")
	require.NoError(t, relay.DeleteEvent(t.Context(), one.ID))
	was("DeleteEvent")
	reject, msg := relay.OnRequest(t.Context(), nostr.Filter{})
	require.True(t, reject)
	require.Equal(t, "blocked: no", msg)
	was("OnRequest")

	synced, newer := event(bob, 1, start), event(alice, 0, start+1)
	importEvents(t, store, synced)
	was("OnEvent", "OnEventSaved")
	importEvents(t, store, newer)
	was("OnEvent", "OnEventSaved", "DeleteEvent", "OnEventDeleted")
	require.Equal(t, s.embedded, pointers(relay))

	for name, set := range map[string]func(r *khatru.Relay){
		"OnEvent": func(r *khatru.Relay) {
			r.OnEvent = func(context.Context, nostr.Event) (bool, string) { return false, "" }
		},
		"StoreEvent":   func(r *khatru.Relay) { r.StoreEvent = nil },
		"QueryStored":  func(r *khatru.Relay) { r.UseEventstore(db, 500) },
		"OnEventSaved": func(r *khatru.Relay) { r.OnEventSaved = func(context.Context, nostr.Event) {} },
	} {
		relay := khatru.NewRelay()
		s, _, _ := embed(t, relay, db, Config{})
		require.Equal(t, s.embedded, pointers(relay))
		set(relay)
		require.ErrorIs(t, s.Run(t.Context()), ErrReplaced, name)
	}
}

// A relay with hooks of its own database would store events twice, or the wrong ones.
func TestHooksOfADatabase(t *testing.T) {
	relay, db := khatru.NewRelay(), newBolt(t)
	relay.UseEventstore(db, 500)
	defer relay.DisableExpirationManager()
	_, err := build(relay, db, Config{})
	require.ErrorIs(t, err, ErrHooks)
}

// A deleted event stays away, a deletion that must not be executed is refused before it is stored,
// and a deletion itself stays.
func TestDeletions(t *testing.T) {
	relay := khatru.NewRelay()
	var deleted []nostr.ID
	relay.OnEventDeleted = func(_ context.Context, e nostr.Event) { deleted = append(deleted, e.ID) }
	s, store, _ := embed(t, relay, newSlice(t), Config{})
	url := serve(t, relay)
	c, key, other := dial(t, url), nostr.Generate(), nostr.Generate()
	note, repo := signed(t, key, 1), signed(t, key, 30617, nostr.Tag{"d", "repo"})
	foreign := signed(t, other, 1)
	for _, e := range []nostr.Event{note, repo, foreign} {
		require.Contains(t, c.publish(e), "true")
	}
	address := "30617:" + nostr.GetPublicKey(key).Hex() + ":repo"
	require.Contains(t, c.publish(signed(t, key, 5, nostr.Tag{"e", foreign.ID.Hex()})), "not the author")
	require.Len(t, content(t, s.Store()), 3, "neither executed nor stored")
	deletion := signed(t, key, 5, nostr.Tag{"e", note.ID.Hex()}, nostr.Tag{"a", address})
	require.Contains(t, c.publish(deletion), "true")
	require.ElementsMatch(t, []nostr.ID{note.ID, repo.ID}, deleted)
	require.Contains(t, c.publish(note), embedding.MsgDeleted)
	require.Contains(t, c.publish(repo), embedding.MsgDeleted)
	require.Contains(t, c.publish(signed(t, key, 5, nostr.Tag{"e", deletion.ID.Hex()})), "can't be deleted")
	results, _ := importEvents(t, store, note)
	require.Equal(t, []graspsync.Result{graspsync.Deleted}, results)
	require.ElementsMatch(t, []nostr.ID{foreign.ID, deletion.ID}, content(t, s.Store()))
	require.Contains(t, c.publish(signed(t, other, 62, nostr.Tag{"relay", "ALL_RELAYS"})), "true")
	require.NotContains(t, content(t, s.Store()), foreign.ID)
}

// khatru executes a stored deletion in another way than NIP-09. It would delete versions by all d tags,
// or report a failure after it has executed a part. We execute deletions instead, and refuse an id that
// khatru cannot read.
func TestDeletionsThatKhatruMisreads(t *testing.T) {
	relay := khatru.NewRelay()
	s, store, _ := embed(t, relay, newBolt(t), Config{})
	c, key := dial(t, serve(t, relay)), nostr.Generate()
	author, other := nostr.GetPublicKey(key).Hex(), nostr.GetPublicKey(nostr.Generate()).Hex()
	note, issue := signed(t, key, 1), signed(t, key, 1621, nostr.Tag{"d", "q"})
	repo, list := signed(t, key, 30617, nostr.Tag{"d", "repo"}, nostr.Tag{"d", "second"}), signed(t, key, 10317, nostr.Tag{"d", "x"})
	here := []nostr.ID{note.ID, issue.ID, repo.ID, list.ID}
	for _, e := range []nostr.Event{note, issue, repo, list} {
		require.Contains(t, c.publish(e), "true")
	}
	e := func(v string) nostr.Tag { return nostr.Tag{"e", v} }
	a := func(v string) nostr.Tag { return nostr.Tag{"a", v} }
	for _, id := range []string{"zz", strings.ToUpper(note.ID.Hex())} {
		require.Contains(t, c.publish(signed(t, key, 5, e(id), e(note.ID.Hex()))), "has no id")
		require.ElementsMatch(t, here, content(t, s.Store()))
	}
	for _, at := range []string{
		"96153:" + author + ":repo", "+30617:" + author + ":repo", "1621:" + author + ":q", "10317:" + author + ":x", "30617:" + other + ":repo",
		"30617:" + author + ":second",
	} {
		draft := signed(t, key, 1)
		require.Contains(t, c.publish(draft), "true")
		require.Contains(t, c.publish(signed(t, key, 5, e(draft.ID.Hex()), a(at))), "true")
		require.Subset(t, content(t, s.Store()), here, at)
		require.NotContains(t, content(t, s.Store()), draft.ID, at)
	}
	old := event(nostr.PubKey{}, 5, 0, a("30617:"+author+":repo"), e(note.ID.Hex()))
	require.NoError(t, old.Sign(key))
	require.Contains(t, c.publish(old), "true")
	require.NotContains(t, content(t, s.Store()), note.ID, "an id has no time")
	require.Contains(t, content(t, s.Store()), repo.ID)
	synced := signed(t, key, 5, e("zz"), a("1621:"+author+":q"), a("30617:"+author+":repo"))
	results, _ := importEvents(t, store, synced)
	require.Equal(t, []graspsync.Result{graspsync.Stored}, results)
	require.NotContains(t, content(t, s.Store()), repo.ID)
}

// AllowDeleting also applies to synced deletions.
func TestAllowDeleting(t *testing.T) {
	relay := khatru.NewRelay()
	relay.AllowDeleting = func(_ context.Context, target, _ nostr.Event) bool { return target.Kind != 30617 }
	s, store, _ := embed(t, relay, newSlice(t), Config{})
	repo, issue := event(alice, 30617, start, nostr.Tag{"d", "repo"}), event(alice, 1621, start)
	importEvents(t, store, repo, issue)
	results, outcomes := importEvents(t, store, event(alice, 5, start, nostr.Tag{"e", repo.ID.Hex()}, nostr.Tag{"e", issue.ID.Hex()}))
	require.Equal(t, []graspsync.Result{graspsync.Refused}, results)
	require.ErrorIs(t, outcomes[0].Err, embedding.ErrRejected)
	require.ErrorContains(t, publish(t, relay, event(alice, 5, start, nostr.Tag{"a", "30617:" + alice.Hex() + ":repo"})), "can't be deleted")
	require.Len(t, content(t, s.Store()), 2)
}

// A second store receives synced events and removals.
func TestSecondStore(t *testing.T) {
	relay, db, second := khatru.NewRelay(), newSlice(t), newSlice(t)
	relay.OnEventSaved = func(_ context.Context, e nostr.Event) { require.NoError(t, second.SaveEvent(e)) }
	relay.DeleteEvent = func(_ context.Context, id nostr.ID) error { return second.DeleteEvent(id) }
	s, store, m := embed(t, relay, db, Config{})
	d := nostr.Tag{"d", "repo"}
	issue, v1, v2 := event(alice, 1621, start), event(alice, 30617, start, d), event(alice, 30617, start+1, d)
	importEvents(t, store, issue, v1, v2)
	require.ElementsMatch(t, []nostr.ID{issue.ID, v2.ID}, in(t, second))
	deletion := event(alice, 5, start+5, nostr.Tag{"e", issue.ID.Hex()})
	importEvents(t, store, deletion)
	require.ElementsMatch(t, []nostr.ID{deletion.ID, v2.ID}, in(t, second))
	require.ElementsMatch(t, []nostr.ID{deletion.ID, v2.ID}, content(t, s.Store()))
	o, err := s.Release(t.Context(), ours(t, event(bob, 1621, start)))
	require.NoError(t, err)
	require.Equal(t, graspsync.Stored, o.Result)
	require.Len(t, in(t, second), 3)
	require.Empty(t, m.gone(), "the manager did it")
}

type holder struct{ relaysync.Holder }

// The client of a held event receives OK and the reason, and nothing is stored.
func TestHold(t *testing.T) {
	relay := khatru.NewRelay()
	saved := 0
	relay.OnEventSaved = func(context.Context, nostr.Event) { saved++ }
	s, _, m := embed(t, relay, newSlice(t), Config{ApplyPolicyToClients: true, Sync: relaysync.Config{Holder: holder{}}})
	m.verdict = graspsync.Verdict{Decision: graspsync.Hold, Reason: "purgatory: wait"}
	c, key := dial(t, serve(t, relay)), nostr.Generate()
	e := signed(t, key, 30617, nostr.Tag{"d", "repo"})
	require.JSONEq(t, `["NOTICE","purgatory: wait"]`, c.publish(e))
	require.JSONEq(t, `["OK","`+e.ID.Hex()+`",true,""]`, c.read())
	require.Zero(t, saved)
	require.Empty(t, content(t, s.Store()))
	o, err := s.Release(t.Context(), ours(t, e))
	require.NoError(t, err)
	require.Equal(t, graspsync.Stored, o.Result)
	require.Equal(t, ids(e), m.stored)
	require.Equal(t, 1, saved)
	m.verdict = graspsync.Verdict{Decision: graspsync.Reject}
	require.Contains(t, c.publish(signed(t, key, 1)), embedding.MsgReject)
}

// Events of an author whom the hook refuses later are neither released nor synced.
func TestOnEventKeepsOut(t *testing.T) {
	relay := khatru.NewRelay()
	verdict := map[nostr.PubKey]string{bob: "blocked: spam"}
	relay.OnEvent = func(_ context.Context, e nostr.Event) (bool, string) {
		msg, is := verdict[e.PubKey]
		return is, msg
	}
	cfg, book := logging(Config{})
	s, store, _ := embed(t, relay, newSlice(t), cfg)
	results, outcomes := importEvents(t, store, event(alice, 1, start), event(bob, 1, start))
	require.Equal(t, []graspsync.Result{graspsync.Stored, graspsync.Refused}, results)
	require.ErrorIs(t, outcomes[1].Err, embedding.ErrRejected)
	require.Contains(t, book.String(), "hook refused a synced event")
	o, err := s.Release(t.Context(), ours(t, event(bob, 1, start)))
	require.NoError(t, err)
	require.Equal(t, graspsync.Refused, o.Result)
}

// nostrlib computes other ids than NIP-01 for some control characters. Other relays would refuse
// such an event.
func TestIDsOfNIP01(t *testing.T) {
	relay := khatru.NewRelay()
	s, _, _ := embed(t, relay, newSlice(t), Config{})
	e := nostr.Event{Kind: 1, CreatedAt: start, Content: "\x1b[31mred"}
	require.NoError(t, e.Sign(nostr.Generate()))
	require.Contains(t, dial(t, serve(t, relay)).publish(e), msgID)
	require.Empty(t, content(t, s.Store()))
}

// A synced event is broadcast, a subscription receives at most MaxQuery events, and a
// reconciliation includes all events.
func TestClients(t *testing.T) {
	relay := khatru.NewRelay()
	relay.Negentropy = true
	db := newBolt(t)
	s, store, _ := embed(t, relay, db, Config{MaxQuery: 3})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	c := dial(t, serve(t, relay))
	require.Contains(t, c.say(`["REQ","live",{"kinds":[1621],"limit":0}]`), "EOSE")
	issue := event(alice, 1621, start)
	importEvents(t, store, issue)
	require.Contains(t, c.read(), issue.ID.Hex())

	const many = 1100
	for range many {
		require.NoError(t, db.SaveEvent(event(bob, 1, start))) // in one second
	}
	require.Contains(t, c.say(`["REQ","all",{"kinds":[1]}]`), `["EVENT","all"`)
	for range 2 {
		require.Contains(t, c.read(), `["EVENT","all"`)
	}
	require.Contains(t, c.read(), "EOSE")
	vec := vector.New()
	vec.Seal()
	neg := negentropy.New(vec, 60_000, false, true)
	got := make(chan int, 1)
	go func() {
		n := 0
		for range neg.HaveNots {
			n++
		}
		got <- n
	}()
	msg := neg.Start()
	for label := "NEG-OPEN"; msg != ""; label = "NEG-MSG" {
		filter := `{"kinds":[1]},`
		if label == "NEG-MSG" {
			filter = ""
		}
		answer := c.say(`["%s","n",%s"%s"]`, label, filter, msg)
		require.Contains(t, answer, `["NEG-MSG","n","`)
		var err error
		msg, err = neg.Reconcile(answer[len(`["NEG-MSG","n","`) : len(answer)-len(`"]`)])
		require.NoError(t, err)
	}
	select {
	case n := <-got:
		require.Equal(t, many, n)
	case <-time.After(time.Minute):
		t.Fatal("the reconciliation has no end")
	}
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	require.ErrorIs(t, s.Run(t.Context()), relaysync.ErrRunning)
}

// A relay whose backend cannot be read, or which is closing, returns errors instead of empty
// answers.
func TestNoAnswers(t *testing.T) {
	relay, db := khatru.NewRelay(), newBolt(t)
	relay.Negentropy = true
	cfg, book := logging(Config{})
	s, _, _ := embed(t, relay, db, cfg)
	url, key := serve(t, relay), nostr.Generate()
	require.Contains(t, dial(t, url).publish(signed(t, key, 1)), "true")
	db.Close() // bolt then returns empty answers
	require.JSONEq(t, `["CLOSED","x","error: the store could not be read, try again later"]`, dial(t, url).say(`["REQ","x",{"kinds":[1]}]`))
	require.Contains(t, book.String(), "reading the store for a client failed")
	c := dial(t, url)
	require.NoError(t, c.conn.Write(t.Context(), websocket.MessageText, []byte(`["NEG-OPEN","n",{"kinds":[1]},"6100000200"]`)))
	_, err := c.next()
	require.Equal(t, websocket.StatusInternalError, websocket.CloseStatus(err))
	require.Contains(t, dial(t, url).publish(signed(t, key, 1)), "false")
	require.NoError(t, s.Close())
	require.JSONEq(t, `["CLOSED","x","error: the server is shutting down, try again later"]`, dial(t, url).say(`["REQ","x",{"kinds":[1]}]`))
	require.Contains(t, dial(t, url).publish(signed(t, key, 1)), embedding.MsgEnding)
}

func TestNew(t *testing.T) {
	identity, err := nip34.ParseIdentity("grasp.example.com")
	require.NoError(t, err)
	for name, c := range map[string]struct {
		relay *khatru.Relay
		db    eventstore.Store
		cfg   Config
	}{
		"no relay":   {nil, newSlice(t), Config{}},
		"no backend": {khatru.NewRelay(), nil, Config{}},
		"max query":  {khatru.NewRelay(), newSlice(t), Config{MaxQuery: -1}},
		"sync":       {khatru.NewRelay(), newSlice(t), Config{Sync: relaysync.Config{BatchWindow: -1}}},
	} {
		_, err := New(c.relay, c.db, identity, c.cfg)
		require.Error(t, err, name)
		if c.relay != nil {
			require.Nil(t, c.relay.OnEvent, name)
		}
	}
	relay := khatru.NewRelay()
	s, err := New(relay, newSlice(t), identity, Config{})
	require.NoError(t, err)
	require.Contains(t, relay.Info.SupportedNIPs, 62)
	require.Equal(t, 500, relay.Info.Limitation.MaxLimit)
	require.NotNil(t, s.Collector("x"))
	require.Zero(t, s.BroadcastsDropped())
	require.NoError(t, s.Close())
}
