package sync_test

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"
	"go.uber.org/mock/gomock"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/syncmock"
	"github.com/graspsync/graspsync/sync/wire"
)

// pipeline is a manager without relays in a bubble.
type pipeline struct {
	t     *testing.T
	m     *relaysync.SyncManager
	store relaysync.Store
	mu    sync.Mutex
	asked map[string]graspsync.RelayURL // by id
}

func newPipeline(t *testing.T, store relaysync.Store, cfg relaysync.Config) *pipeline {
	t.Helper()
	identity, err := nip34.ParseIdentity(us)
	require.NoError(t, err)
	if cfg.Verifier == nil {
		cfg.Verifier = relaytest.CheapVerifier{}
	}
	m, err := relaysync.New(store, relaytest.NewNetwork(), identity, cfg)
	require.NoError(t, err)
	p := &pipeline{t: t, m: m, store: store, asked: make(map[string]graspsync.RelayURL)}
	m.OnRefetch(func(u graspsync.RelayURL, ids []graspsync.EventID) {
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, id := range ids {
			p.asked[id.String()] = u
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.RunPipeline(ctx)
	}()
	t.Cleanup(func() {
		synctest.Wait()
		m.AuditPipeline(t)
		cancel()
		<-ended
		m.PipelineLeftOver(t)
	})
	return p
}

func source(t *testing.T) graspsync.Source {
	return graspsync.Source{Kind: graspsync.CatchUp, Relay: relayURL(t, "wss://a.example")}
}

// bring submits events like sync, one after the other.
func (p *pipeline) bring(events ...*nostr.Event) {
	p.t.Helper()
	for _, ev := range events {
		require.NoError(p.t, p.m.Submit(p.t.Context(), ev, source(p.t)))
		synctest.Wait()
	}
}

func (p *pipeline) has(ev *nostr.Event) bool {
	p.t.Helper()
	return (&rig{t: p.t, store: p.store}).has(ev)
}

func (p *pipeline) wasAsked(ev *nostr.Event) bool {
	synctest.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.asked[ev.ID]
	return ok
}

// Rejected events were fetched again every day. Now a hub with 2,500 announcements of other
// services sends them once. Later reconciliations request no ids and need few bytes.
func TestTrapH8_RejectedIsNotFetchedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		hub := net.Add("wss://hub.example", relaytest.Behavior{})
		stranger := relaytest.NewCheapKey("stranger")
		for i := range 2_500 {
			hub.Publish(stranger.Hosted(at(time.Duration(i)*time.Minute), fmt.Sprint("foreign", i), "elsewhere.example"))
		}
		r, _ := hosted(t, net, relaysync.Config{}, "hub.example")
		defer r.stop()
		after(5 * time.Minute)
		first := r.relay("wss://hub.example")
		require.GreaterOrEqual(t, first.Events, uint64(2_500))
		byID := func() (n int) {
			for _, r := range hub.Requests(wire.TypeReq) {
				n += len(r.Filters[0].IDs)
			}
			return n
		}
		asked := byID()
		require.GreaterOrEqual(t, asked, 2_500)
		hub.SetDown(true)
		after(20 * time.Minute)
		hub.SetDown(false)
		after(20 * time.Minute)
		second := r.relay("wss://hub.example")
		require.Equal(t, uint64(2), second.Connects)
		require.Equal(t, asked, byID(), "not one was asked for again")
		after(26 * time.Hour)
		require.Equal(t, asked, byID(), "nor a day later")
	})
}

// An event stayed rejected although its dependency had arrived since. Now it is judged again while
// it is kept whole, and later requested by id, whatever delivered the dependency.
func TestTrapH8_JudgedAgain(t *testing.T) {
	owner, maintainer, stranger := relaytest.NewCheapKey("owner"), relaytest.NewCheapKey("m"), relaytest.NewCheapKey("s")
	for _, late := range []bool{false, true} {
		for _, direct := range []bool{false, true} {
			t.Run(fmt.Sprintf("late=%t direct=%t", late, direct), func(t *testing.T) {
				bubble(t, func(t *testing.T) {
					var cfg relaysync.Config
					if late {
						cfg.Fixed().Waiting = 1
					}
					p := newPipeline(t, memstore.New(), cfg)
					ann := owner.Hosted(at(time.Hour), "repo", us)
					relays, clones := []string{"wss://" + us}, []string{owner.CloneURL("wss://"+us, "repo")}
					newer := owner.Announcement(at(30*time.Minute), "repo", relays, clones, maintainer)
					answer := maintainer.Announcement(at(20*time.Minute), "repo", []string{"wss://elsewhere.example"},
						[]string{maintainer.CloneURL("wss://elsewhere.example", "repo")}, owner)
					state := maintainer.State(at(time.Minute), "repo", nil, "")
					quoted := stranger.Event(at(time.Hour), 1, "quoted")
					issue := owner.Event(at(time.Minute), 1621, "x", nostr.Tag{"a", owner.Ref("repo").String()}, nostr.Tag{"q", quoted.ID})
					elsewhere := owner.Hosted(at(0), "two", "elsewhere.example")
					p.bring(elsewhere, quoted, state)
					if late {
						p.bring(stranger.State(at(0), "other", nil, "")) // uses up the room
						after(3 * time.Minute)
					}
					for _, ev := range []*nostr.Event{ann, owner.Hosted(at(time.Hour), "two", us), newer, answer, issue} {
						if direct {
							(&rig{t: t, store: p.store, manager: p.m}).save(ev)
							synctest.Wait()
						} else {
							p.bring(ev)
						}
					}
					for _, ev := range []*nostr.Event{state, quoted} {
						require.Equal(t, late, p.wasAsked(ev), ev.Kind)
						require.Equal(t, !late, p.has(ev), ev.Kind)
					}
					require.True(t, p.wasAsked(elsewhere), "its signature was not checked when it came")
					for id, u := range p.asked {
						require.Equal(t, relayURL(t, "wss://a.example"), u, id)
					}
					p.bring(state, quoted, elsewhere)
					for _, ev := range []*nostr.Event{state, quoted, elsewhere} {
						require.True(t, p.has(ev), ev.Kind)
					}
				})
			})
		}
	}
}

// An owner moves a repository from this server: the announcement that no longer lists us replaces
// the earlier one, in either order, and the repository is not followed.
func TestOwnerUnlistsUs(t *testing.T) {
	for _, newestFirst := range []bool{false, true} {
		bubble(t, func(t *testing.T) {
			net := relaytest.NewNetwork()
			relays := []*relaytest.Relay{net.Add("wss://a.example", relaytest.Behavior{}), net.Add("wss://c.example", relaytest.Behavior{})}
			b := net.Add("wss://b.example", relaytest.Behavior{})
			r, _ := hosted(t, net, relaysync.Config{}, "a.example", "c.example")
			defer r.stop()
			bob := relaytest.NewCheapKey("bob")
			ours, moved := bob.Hosted(at(2*time.Hour), "two", us, "b.example"), bob.Hosted(at(time.Hour), "two", "elsewhere.example")
			events := []*nostr.Event{ours, moved}
			if newestFirst {
				slices.Reverse(events)
			}
			for i, ev := range events {
				relays[i].Publish(ev)
				after(time.Minute)
			}
			require.True(t, r.has(moved))
			require.False(t, r.has(ours))
			require.Equal(t, 0, b.Open())
			require.Len(t, r.manager.Status().Relays, 2)
		})
	}
}

// After a request to vanish, all events of the author are removed and not stored again, including
// deleted ones. The relays of the repositories are no longer followed.
func TestPromiseP29_Vanish(t *testing.T) {
	racetest.Amounts(t)
	for name, relay := range map[string]string{"us": "wss://" + us, "all": "ALL_RELAYS", "elsewhere": "wss://elsewhere.example"} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				identity, err := nip34.ParseIdentity(us)
				require.NoError(t, err)
				net := relaytest.NewNetwork()
				a := net.Add("wss://a.example", relaytest.Behavior{})
				b := net.Add("wss://b.example", relaytest.Behavior{})
				owner, bob := relaytest.NewCheapKey("owner"), relaytest.NewCheapKey("bob")
				r := &rig{t: t, store: memstore.New(memstore.WithIdentity(identity))}
				r.save(owner.Hosted(at(24*time.Hour), "repo", us, "a.example"))
				r = start(t, net, r.store, relaysync.Config{})
				defer r.stop()
				ann := bob.Hosted(at(2*time.Hour), "bobs", us, "b.example")
				issue := bob.Issue(at(time.Hour), owner.Ref("repo"), "mine")
				answer := owner.Comment(at(time.Minute), issue, "answer")
				a.Publish(ann, issue, answer)
				after(time.Minute)
				require.True(t, r.has(issue) && r.has(answer) && b.Open() == 1)
				request := bob.Event(at(0), graspsync.KindVanish, "", nostr.Tag{"relay", relay})
				a.Publish(request)
				after(26 * time.Hour) // requested by author, daily
				gone := name != "elsewhere"
				require.Equal(t, gone, r.has(request))
				require.Equal(t, !gone, r.has(ann))
				require.Equal(t, !gone, r.has(issue))
				require.True(t, r.has(answer), "somebody else's")
				require.Equal(t, gone, b.Open() == 0)
				a.Cut()
				after(26 * time.Hour)
				require.Equal(t, !gone, r.has(issue), "it does not come back")
			})
		})
	}
}

// Future events are rejected and accepted when their time has come. Expired events are not fetched
// again in each pass.
func TestPromiseP25_FutureAndExpired(t *testing.T) {
	bubble(t, func(t *testing.T) {
		p := newPipeline(t, memstore.New(), relaysync.Config{})
		owner := relaytest.NewCheapKey("owner")
		p.bring(owner.Hosted(at(time.Hour), "repo", us))
		ref := nostr.Tag{"a", owner.Ref("repo").String()}
		ahead := owner.Event(at(-16*time.Minute), 1621, "ahead", ref)
		near := owner.Event(at(-14*time.Minute), 1621, "clocks differ", ref)
		expired := owner.Event(at(time.Hour), 1621, "gone", ref, nostr.Tag{"expiration", fmt.Sprint(at(time.Minute))})
		p.bring(ahead, near, expired)
		require.False(t, p.has(ahead) || p.has(expired))
		require.True(t, p.has(near))
		received := p.m.Verified()
		p.bring(expired)
		require.Equal(t, received, p.m.Verified(), "it is known")
		after(2 * time.Minute)
		p.bring(ahead)
		require.True(t, p.has(ahead))
	})
}

// judging counts the calls of a policy.
type judging struct {
	relaysync.Policy
	mu   sync.Mutex
	seen []graspsync.Source
}

func (j *judging) Judge(ctx context.Context, ev graspsync.Event, src graspsync.Source, view relaysync.View) (graspsync.Verdict, error) {
	j.mu.Lock()
	j.seen = append(j.seen, src)
	j.mu.Unlock()
	return j.Policy.Judge(ctx, ev, src, view)
}

// Every event passes the same Policy with its source, and is saved with the same source.
func TestPromiseP13_OneWayIn(t *testing.T) {
	bubble(t, func(t *testing.T) {
		identity, err := nip34.ParseIdentity(us)
		require.NoError(t, err)
		store := syncmock.NewMockStore(gomock.NewController(t))
		inner := memstore.New()
		store.EXPECT().Has(gomock.Any(), gomock.Any()).DoAndReturn(inner.Has).AnyTimes()
		store.EXPECT().Events(gomock.Any(), gomock.Any()).DoAndReturn(inner.Events).AnyTimes()
		var saved []graspsync.Incoming
		store.EXPECT().Save(gomock.Any(), gomock.Any()).DoAndReturn(
			func(ctx context.Context, in []graspsync.Incoming) ([]graspsync.Outcome, error) {
				saved = append(saved, in...)
				return inner.Save(ctx, in)
			}).AnyTimes()
		policy := &judging{Policy: relaysync.NewGRASPPolicy(identity)}
		p := newPipeline(t, store, relaysync.Config{Policy: policy})
		owner := relaytest.NewCheapKey("owner")
		issue := owner.Issue(at(0), owner.Ref("repo"), "waits")
		want := map[string]graspsync.Source{
			issue.ID: {Kind: graspsync.Live, Relay: relayURL(t, "wss://live.example")},
		}
		ann := owner.Hosted(at(time.Hour), "repo", us)
		want[ann.ID] = graspsync.Source{Kind: graspsync.Daily, Relay: relayURL(t, "wss://daily.example")}
		for _, ev := range []*nostr.Event{issue, ann} {
			require.NoError(t, p.m.Submit(t.Context(), ev, want[ev.ID]))
			synctest.Wait()
		}
		require.Len(t, saved, 2)
		for _, in := range saved {
			require.Equal(t, want[in.Event.ID.String()], in.Source, "with the source that brought it, though it waited")
		}
		require.Equal(t, []graspsync.Source{want[issue.ID], want[ann.ID], want[issue.ID]}, policy.seen)
		_, err = p.m.Judge(t.Context(), eventtest.Of(issue))
		require.ErrorIs(t, err, relaysync.ErrNotReady)
	})
}

// No unverified event reaches Policy, memory or Store. A forged copy is not judged and does not
// exclude the real event.
func TestPromiseP21_NothingUnverified(t *testing.T) {
	bubble(t, func(t *testing.T) {
		identity, err := nip34.ParseIdentity(us)
		require.NoError(t, err)
		policy := &judging{Policy: relaysync.NewGRASPPolicy(identity)}
		net := relaytest.NewNetwork()
		liar := net.Add("wss://liar.example", relaytest.Behavior{Forge: relaytest.ForgeSignature, Negentropy: relaytest.NegNotice})
		honest := net.Add("wss://honest.example", relaytest.Behavior{Latency: 2 * time.Second, Negentropy: relaytest.NegNotice})
		note := relaytest.NewCheapKey("s").Issue(at(time.Hour), relaytest.NewCheapKey("owner").Ref("repo"), "by a stranger")
		liar.Publish(note)
		honest.Publish(note)
		r, _ := hosted(t, net, relaysync.Config{Policy: policy}, "liar.example", "honest.example")
		defer r.stop()
		after(time.Minute)
		require.NotZero(t, r.manager.Status().Events.Forged)
		policy.mu.Lock()
		defer policy.mu.Unlock()
		require.Len(t, policy.seen, 1)
		require.Equal(t, relayURL(t, "wss://honest.example"), policy.seen[0].Relay)
	})
}

// failingVerifier fails a given number of times.
type failingVerifier struct{ left atomic.Int32 }

func (v *failingVerifier) Verify(events []*nostr.Event) []error {
	if v.left.Add(-1) >= 0 {
		panic("out of memory")
	}
	return relaytest.CheapVerifier{}.Verify(events)
}

// A live event was lost until the next catch-up if the verifier failed.
func TestVerifierFailureIsAskedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		v := &failingVerifier{}
		p := newPipeline(t, memstore.New(), relaysync.Config{Verifier: v})
		owner := relaytest.NewCheapKey("owner")
		p.bring(owner.Hosted(at(time.Hour), "repo", us))
		v.left.Store(2)
		live, old := owner.Issue(at(0), owner.Ref("repo"), "live"), owner.Issue(at(0), owner.Ref("repo"), "old")
		src := source(t)
		src.Kind = graspsync.Live
		require.NoError(t, p.m.Submit(t.Context(), live, src))
		synctest.Wait()
		p.bring(old)
		require.True(t, p.wasAsked(live))
		require.False(t, p.wasAsked(old), "its batch is repeated")
		p.bring(live)
		require.True(t, p.has(live))
	})
}

// panicking is a Store whose iterators panic, and a Policy that panics, while enabled.
type panicking struct {
	relaysync.Store
	relaysync.Policy
	holdsNothing
	on atomic.Bool
}

func (s *panicking) boom() {
	if s.on.Load() {
		panic("not my day")
	}
}

func (s *panicking) Keys(ctx context.Context, f nostr.Filter) iter.Seq2[graspsync.EventKey, error] {
	s.boom()
	return s.Store.Keys(ctx, f)
}

func (s *panicking) Events(ctx context.Context, f nostr.Filter) iter.Seq2[graspsync.Event, error] {
	return func(yield func(graspsync.Event, error) bool) {
		s.boom()
		s.Store.Events(ctx, f)(yield)
	}
}

func (s *panicking) Lists(a *nip34.Announcement) bool {
	s.boom()
	return s.Policy.Lists(a)
}

func (s *panicking) Held(context.Context, nostr.Filter) ([]graspsync.EventKey, error) {
	s.boom()
	return nil, nil
}

// explosive is a Transport whose connections panic in every call while enabled.
type explosive struct {
	relaysync.Transport
	of *panicking
}

type explosiveConn struct {
	relaysync.Conn
	of *panicking
}

func (e explosive) Dial(ctx context.Context, u graspsync.RelayURL) (relaysync.Conn, error) {
	c, err := e.Transport.Dial(ctx, u)
	if err != nil {
		return nil, err
	}
	return explosiveConn{c, e.of}, nil
}

func (c explosiveConn) Receive(ctx context.Context) (wire.Message, error) {
	c.of.boom()
	return c.Conn.Receive(ctx)
}

func (c explosiveConn) Send(ctx context.Context, r wire.Request) error {
	c.of.boom()
	return c.Conn.Send(ctx, r)
}

func (c explosiveConn) Close() error {
	_ = c.Conn.Close()
	c.of.boom()
	return nil
}

// A panic of the embedder's Store or Policy, or of the Transport to our own relay, does not end the
// process. It counts as an error, and the call is retried.
func TestPromiseP38_EmbeddersPanics(t *testing.T) {
	bubble(t, func(t *testing.T) {
		identity, err := nip34.ParseIdentity(us)
		require.NoError(t, err)
		net := relaytest.NewNetwork()
		a := net.Add("wss://a.example", relaytest.Behavior{})
		own := net.Add("wss://own.example", relaytest.Behavior{})
		owner := relaytest.NewCheapKey("owner")
		s := &panicking{Store: memstore.New(), Policy: relaysync.NewGRASPPolicy(identity)}
		r := &rig{t: t, store: s}
		r.save(owner.Hosted(at(24*time.Hour), "repo", us, "a.example"))
		s.on.Store(true)
		r = start(t, net, s, relaysync.Config{
			Policy: s, Holder: s, OwnRelay: relayURL(t, "wss://own.example"), OwnTransport: explosive{net, s},
		})
		defer r.stop()
		after(time.Minute)
		s.on.Store(false)
		after(time.Minute)
		require.Equal(t, 1, a.Open())
		s.on.Store(true)
		r.manager.NotifyStored(eventtest.Of(owner.Hosted(at(time.Hour), "repo", us, "a.example")))
		issue := owner.Event(at(0), 1111, "x", nostr.Tag{"e", owner.Issue(at(0), owner.Ref("repo"), "y").ID}, nostr.Tag{"a", owner.Ref("repo").String()})
		a.Publish(issue)
		a.Cut()
		own.Cut()
		after(20 * time.Minute)
		require.Positive(t, r.manager.Status().Events.Panics["transport"])
		require.False(t, r.manager.Status().Synced)
		s.on.Store(false)
		after(26 * time.Hour)
		require.True(t, r.has(issue))
		require.True(t, r.manager.Status().Synced)
	})
}

// loud is a logger that panics about one event.
type loud struct {
	slog.Handler
	over string
}

func (l loud) Handle(_ context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Value.String() == l.over && r.Level == slog.LevelDebug {
			panic("too much to say")
		}
		return true
	})
	return nil
}

func (l loud) Enabled(context.Context, slog.Level) bool { return true }

// A panic while an event is judged or applied costs only that event. Other events of its batch are
// processed, and the batch ends.
func TestPromiseP38_PanicOfThePipeline(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		a := net.Add("wss://a.example", relaytest.Behavior{})
		stranger, owner := relaytest.NewCheapKey("stranger"), relaytest.NewCheapKey("owner")
		poison := stranger.Hosted(at(time.Hour), "foreign", "elsewhere.example")
		a.Publish(poison)
		var ours []*nostr.Event
		for i := range 5 {
			ours = append(ours, owner.Issue(at(time.Hour), owner.Ref("repo"), fmt.Sprint(i)))
			a.Publish(ours[i])
		}
		r, _ := hosted(t, net, relaysync.Config{Logger: slog.New(loud{slog.DiscardHandler, poison.ID})}, "a.example")
		defer r.stop()
		after(5 * time.Minute)
		require.EqualValues(t, 1, r.manager.Status().Events.Panics["pipeline"])
		for _, ev := range ours {
			require.True(t, r.has(ev))
		}
		require.True(t, r.relay("wss://a.example").Synced)
		require.Zero(t, r.manager.Status().Events.InFlight)
		after(26 * time.Hour)
		require.EqualValues(t, 1, r.manager.Status().Events.Panics["pipeline"], "it is known by its id")
		last := owner.Issue(at(0), owner.Ref("repo"), "last")
		a.Publish(last)
		after(time.Minute)
		require.True(t, r.has(last))
	})
}
