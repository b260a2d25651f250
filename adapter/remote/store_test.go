package remoteadapter_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/graspsync/graspsync"
	remoteadapter "github.com/graspsync/graspsync/adapter/remote"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/storetest"
	"github.com/graspsync/graspsync/sync/wire"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const ownURL = "wss://internal.example"

func relayURL(t testing.TB, s string) graspsync.RelayURL {
	t.Helper()
	u, err := graspsync.ParseRelayURL(s)
	require.NoError(t, err)
	return u
}

func open(t testing.TB, net *relaytest.Network, cfg remoteadapter.Config) *remoteadapter.Store {
	t.Helper()
	s, err := remoteadapter.New(relayURL(t, ownURL), net, cfg)
	require.NoError(t, err)
	return s
}

// served makes a relay answer from a Store, with the usual texts.
func served(store relaysync.Store) func(*relaytest.ConnScript, wire.Request) bool {
	words := map[graspsync.Result]string{
		graspsync.Duplicate: "duplicate: already have this event", graspsync.Superseded: "replaced: have newer event",
		graspsync.Deleted: "deleted: user requested deletion", graspsync.Refused: "invalid: no",
	}
	return func(c *relaytest.ConnScript, req wire.Request) bool {
		ctx := context.Background()
		switch req.Type {
		case wire.TypePublish:
			out, err := store.Save(ctx, []graspsync.Incoming{{Event: eventtest.Of(req.Event)}})
			if err != nil {
				panic(err)
			}
			id, _ := graspsync.ParseEventID(req.Event.ID)
			r := out[0].Result
			ok := r == graspsync.Stored || r == graspsync.Duplicate
			c.Send(wire.Message{Type: wire.TypeOK, ID: id, Accepted: ok, Text: words[r]})
		case wire.TypeReq:
			var found []*nostr.Event
			for ev, err := range store.Events(ctx, req.Filters[0]) {
				if err != nil {
					panic(err)
				}
				found = append(found, ev.Event)
			}
			slices.SortFunc(found, func(a, b *nostr.Event) int {
				return cmp.Or(cmp.Compare(b.CreatedAt, a.CreatedAt), strings.Compare(a.ID, b.ID))
			})
			for _, ev := range found[:min(len(found), req.Filters[0].Limit)] {
				c.Send(wire.Message{Type: wire.TypeEvent, Sub: req.Sub, Event: eventtest.Of(ev)})
			}
			c.Send(wire.Message{Type: wire.TypeEOSE, Sub: req.Sub})
		}
		return true
	}
}

// The contract of a Store holds over a relay that returns enough events per answer.
func TestSuite(t *testing.T) {
	storetest.Run(t, func(t *testing.T) relaysync.Store {
		net := relaytest.NewNetwork()
		net.Add(ownURL, relaytest.Behavior{Handle: served(memstore.New())})
		s := open(t, net, remoteadapter.Config{}.With(0, 5_000))
		t.Cleanup(func() { require.NoError(t, s.Close()) })
		return s
	})
}

func save(t testing.TB, s relaysync.Store, events ...*nostr.Event) []graspsync.Outcome {
	t.Helper()
	var in []graspsync.Incoming
	for _, ev := range events {
		in = append(in, graspsync.Incoming{Event: eventtest.Of(ev)})
	}
	out, err := s.Save(t.Context(), in)
	require.NoError(t, err)
	return out
}

func at(ago time.Duration) nostr.Timestamp { return nostr.Timestamp(time.Now().Add(-ago).Unix()) }

func bubble(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	synctest.Test(t, f)
}

// A relay with limited answers is read completely. A second that cannot be read is an error, never
// a short answer.
func TestCappedRelay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		own := net.Add(ownURL, relaytest.Behavior{Cap: 50})
		s := open(t, net, remoteadapter.Config{})
		defer s.Close()
		owner := relaytest.NewCheapKey("owner")
		for i := range 730 {
			own.Publish(owner.Issue(at(time.Duration(i/7)*time.Minute), owner.Ref("repo"), fmt.Sprint(i)))
		}
		count := func() (n int, err error) {
			for _, err := range s.Keys(t.Context(), nostr.Filter{Kinds: []int{1621}}) {
				if err != nil {
					return n, err
				}
				n++
			}
			return n, nil
		}
		n, err := count()
		require.NoError(t, err)
		require.Equal(t, 730, n)
		for i := range 60 {
			own.Publish(owner.Issue(at(5*time.Minute), owner.Ref("repo"), fmt.Sprint("same", i)))
		}
		_, err = count()
		require.ErrorIs(t, err, remoteadapter.ErrIncomplete)
		require.Empty(t, own.Violations())
	})
}

func TestOutcomes(t *testing.T) {
	type ok struct {
		accepted bool
		text     string
	}
	for say, want := range map[ok]graspsync.Result{
		{true, ""}: graspsync.Stored,
		{true, "duplicate: already have this event"}: graspsync.Duplicate,
		{false, "duplicate: have this event"}:        graspsync.Duplicate,
		{false, "duplicate: have a newer event"}:     graspsync.Superseded,
		{false, "replaced: have newer event"}:        graspsync.Superseded,
		{true, "replaced: have newer event"}:         graspsync.Superseded,
		{false, "deleted: user requested deletion"}:  graspsync.Deleted,
		{false, "blocked: this event was deleted"}:   graspsync.Deleted,
		{false, "blocked: not on the list"}:          graspsync.Refused,
		{false, "invalid: too long"}:                 graspsync.Refused,
		{false, "no"}:                                graspsync.Refused,
		{false, "error: could not save"}:             graspsync.Failed,
		{false, "rate-limited: slow down"}:           graspsync.Failed,
		{false, "auth-required: who are you?"}:       graspsync.Failed,
	} {
		bubble(t, func(t *testing.T) {
			net := relaytest.NewNetwork()
			net.Add(ownURL, relaytest.Behavior{Handle: func(c *relaytest.ConnScript, req wire.Request) bool {
				id, _ := graspsync.ParseEventID(req.Event.ID)
				c.Send(wire.Message{Type: wire.TypeOK, ID: id, Accepted: say.accepted, Text: say.text})
				return true
			}})
			s := open(t, net, remoteadapter.Config{})
			defer s.Close()
			out := save(t, s, relaytest.NewCheapKey("a").Event(at(0), 1, "x"))
			require.Equal(t, want, out[0].Result, "%+v", say)
			require.Equal(t, want == graspsync.Refused || want == graspsync.Failed, errors.Is(out[0].Err, remoteadapter.ErrRefused))
		})
	}
}

// Any failure of the relay is an error within the time limit, and the next call reconnects.
func TestFailures(t *testing.T) {
	ev := relaytest.NewCheapKey("a").Event(1, 1, "x")
	for name, b := range map[string]relaytest.Behavior{
		"down":       {Down: true},
		"no answer":  {NoAnswer: true},
		"never EOSE": {Handle: func(*relaytest.ConnScript, wire.Request) bool { return true }},
		"closed":     {ClosedReason: func(wire.Request) string { return "error: no" }},
		"cut":        {Handle: func(c *relaytest.ConnScript, _ wire.Request) bool { c.Cut(); return true }},
		"stops":      {StopReading: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				net := relaytest.NewNetwork()
				own := net.Add(ownURL, b)
				s := open(t, net, remoteadapter.Config{}.With(10*time.Second, 0))
				began := time.Now()
				id, _ := graspsync.ParseEventID(ev.ID)
				_, err := s.Has(t.Context(), []graspsync.EventID{id})
				require.Error(t, err)
				if name != "closed" {
					out, err := s.Save(t.Context(), []graspsync.Incoming{{Event: eventtest.Of(ev)}})
					if err == nil {
						require.Equal(t, graspsync.Failed, out[0].Result)
						require.Error(t, out[0].Err)
					}
				}
				require.LessOrEqual(t, time.Since(began), 21*time.Second)
				own.Update(func(b *relaytest.Behavior) { *b = relaytest.Behavior{} })
				own.Cut()
				synctest.Wait()
				require.NotEqual(t, graspsync.Failed, save(t, s, ev)[0].Result)
				has, err := s.Has(t.Context(), []graspsync.EventID{id})
				require.NoError(t, err)
				require.Equal(t, []bool{true}, has)
				require.NoError(t, s.Close())
				require.NoError(t, s.Close())
				_, err = s.Has(t.Context(), []graspsync.EventID{id})
				require.ErrorIs(t, err, remoteadapter.ErrClosed)
			})
		})
	}
}

// deaf never answers a dial.
type deaf struct{}

func (deaf) Dial(ctx context.Context, _ graspsync.RelayURL) (relaysync.Conn, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

func (deaf) Export() [][]byte { return nil }
func (deaf) Import([][]byte)  {}

// Close does not wait for a relay that does not answer.
func TestCloseWhileDialing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := remoteadapter.New(relayURL(t, ownURL), deaf{}, remoteadapter.Config{})
		require.NoError(t, err)
		failed := make(chan error, 2)
		for range 2 {
			go func() {
				_, err := s.Has(context.Background(), []graspsync.EventID{{1}})
				failed <- err
			}()
		}
		synctest.Wait()
		begun := time.Now()
		require.NoError(t, s.Close())
		require.NoError(t, s.Close())
		require.ErrorIs(t, <-failed, remoteadapter.ErrClosed)
		require.ErrorIs(t, <-failed, remoteadapter.ErrClosed)
		require.Zero(t, time.Since(begun))
	})
}

func TestNewNamesWhatIsWrong(t *testing.T) {
	_, err := remoteadapter.New(graspsync.RelayURL{}, nil, remoteadapter.Config{})
	for _, word := range []string{"relay is empty", "transport is nil"} {
		require.ErrorContains(t, err, word)
	}
}

// All parts together: a relay that is reached only over websocket is kept in sync, with its
// clients' events as own feed.
func TestFollowsOverWebsocketOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		own := net.Add(ownURL, relaytest.Behavior{Cap: 500})
		a := net.Add("wss://a.example", relaytest.Behavior{})
		owner := relaytest.NewCheapKey("owner")
		own.Publish(owner.Hosted(at(24*time.Hour), "repo", "grasp.example", "a.example"))
		for i := range 700 {
			a.Publish(owner.Issue(at(time.Duration(i)*time.Minute), owner.Ref("repo"), fmt.Sprint(i)))
		}
		s := open(t, net, remoteadapter.Config{})
		identity, err := nip34.ParseIdentity("grasp.example")
		require.NoError(t, err)
		m, err := relaysync.New(s, net, identity, relaysync.Config{
			OwnRelay: relayURL(t, ownURL), Verifier: relaytest.CheapVerifier{},
		})
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			_ = m.Run(ctx)
		}()
		after := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		after(2 * time.Minute)
		require.Len(t, own.Query(nostr.Filter{Kinds: []int{1621}}), 700)
		require.True(t, m.Status().Synced)
		own.Cut() // a lost connection in between
		late := owner.Issue(at(0), owner.Ref("repo"), "late")
		a.Publish(late)
		own.Publish(owner.Hosted(at(0), "submitted", "grasp.example", "a.example"))
		after(time.Minute)
		require.Len(t, own.Query(nostr.Filter{IDs: []string{late.ID}}), 1)
		require.Equal(t, 2, m.Status().Repos)
		cancel()
		<-ended
		require.NoError(t, s.Close())
	})
}

// follow runs a manager over a relay that is reached only over websocket.
func follow(t *testing.T, net *relaytest.Network) (m *relaysync.SyncManager, stop func()) {
	t.Helper()
	store := open(t, net, remoteadapter.Config{})
	us, err := nip34.ParseIdentity("grasp.example")
	require.NoError(t, err)
	m, err = relaysync.New(store, net, us, relaysync.Config{OwnRelay: relayURL(t, ownURL), Verifier: relaytest.CheapVerifier{}})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = m.Run(ctx)
	}()
	return m, func() {
		cancel()
		<-ended
		require.NoError(t, store.Close())
	}
}

// An event that makes our relay disconnect fails alone. Before, it repeatedly took 63 concurrent
// events with it, and finally they were lost.
func TestEventThatCutsTheConnectionIsAlone(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		own := net.Add(ownURL, relaytest.Behavior{MaxMessage: 131_072, Latency: 5 * time.Millisecond})
		other := net.Add("wss://other.example", relaytest.Behavior{})
		owner := relaytest.NewCheapKey("owner")
		own.Publish(owner.Hosted(at(24*time.Hour), "repo", "grasp.example", "other.example"))
		other.Publish(owner.Event(at(time.Minute), 1621, strings.Repeat("x", 200_000), nostr.Tag{"a", owner.Ref("repo").String()}))
		for i := range 63 {
			other.Publish(owner.Issue(at(time.Hour+time.Duration(i)*time.Minute), owner.Ref("repo"), fmt.Sprint(i)))
		}
		_, stop := follow(t, net)
		defer stop()
		time.Sleep(time.Minute)
		require.Len(t, own.Query(nostr.Filter{Kinds: []int{1621}}), 63)
		time.Sleep(24 * time.Hour)
		// 96 are for reading the Store every 15 minutes, because idle connections are closed.
		require.Less(t, len(own.Dials()), 96+400, "connections in a day")
	})
}

// A relay that disconnects on every event is not reconnected to endlessly.
func TestRelayThatCutsEverything(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		own := net.Add(ownURL, relaytest.Behavior{MaxMessage: 100})
		s := open(t, net, remoteadapter.Config{})
		defer s.Close()
		owner := relaytest.NewCheapKey("owner")
		var events []*nostr.Event
		for i := range 64 {
			events = append(events, owner.Issue(at(time.Hour), owner.Ref("repo"), fmt.Sprint(i)))
		}
		for _, o := range save(t, s, events...) {
			require.Equal(t, graspsync.Failed, o.Result)
		}
		require.LessOrEqual(t, len(own.Dials()), 10)
	})
}

// With 501 events in one second, our relay cannot be read completely, and repositories are still
// followed. Before, none was.
func TestFullSecondOfOurRelay(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		own := net.Add(ownURL, relaytest.Behavior{Cap: 500})
		other := net.Add("wss://other.example", relaytest.Behavior{})
		owner, stranger := relaytest.NewCheapKey("owner"), relaytest.NewCheapKey("stranger")
		own.Publish(owner.Hosted(at(24*time.Hour), "repo", "grasp.example", "other.example"))
		when := at(3 * time.Hour)
		for i := range 501 {
			own.Publish(stranger.Issue(when, owner.Ref("repo"), fmt.Sprint(i)))
		}
		m, stop := follow(t, net)
		defer stop()
		time.Sleep(time.Minute)
		<-m.Ready()
		require.Equal(t, 1, other.Open())
		asked := len(own.Requests(wire.TypeReq))
		time.Sleep(24 * time.Hour)
		require.Less(t, len(own.Requests(wire.TypeReq))-asked, 1_000)
	})
}
