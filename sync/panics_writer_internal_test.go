package sync

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
)

// countedStore is a Store that is down at times, and says what it has.
type countedStore struct {
	Store
	mu    sync.Mutex
	down  bool
	saved map[graspsync.EventID]bool
}

func newCountedStore(down bool) *countedStore {
	return &countedStore{down: down, saved: make(map[graspsync.EventID]bool)}
}

func (s *countedStore) set(down bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.down = down
}

func (s *countedStore) put(id graspsync.EventID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saved[id] = true
}

func (s *countedStore) has(id graspsync.EventID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.saved[id]
}

func (s *countedStore) Has(_ context.Context, ids []graspsync.EventID) ([]bool, error) {
	out := make([]bool, len(ids))
	for i, id := range ids {
		out[i] = s.has(id)
	}
	return out, nil
}
func (s *countedStore) Save(_ context.Context, in []graspsync.Incoming) ([]graspsync.Outcome, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.down {
		return nil, errors.New("down")
	}
	out := make([]graspsync.Outcome, len(in))
	for i := range in {
		s.saved[in[i].Event.ID] = true
		out[i].Result = graspsync.Stored
	}
	return out, nil
}

// judges has no room for some events.
type judges struct {
	mu    sync.Mutex
	later map[graspsync.EventID]bool
}

func (p *judges) room(id graspsync.EventID) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.later, id)
}

func (p *judges) Judge(_ context.Context, ev graspsync.Event, _ graspsync.Source, _ View) (graspsync.Verdict, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.later[ev.ID] {
		return graspsync.Verdict{Decision: graspsync.Later, Reason: "full"}, nil
	}
	return graspsync.Verdict{Decision: graspsync.Accept}, nil
}
func (p *judges) Lists(*nip34.Announcement) bool                     { return false }
func (p *judges) Authority(graspsync.RepoRef, View) *nip34.Authority { return nil }
func (p *judges) Heard(string, View) map[graspsync.PubKey]bool       { return nil }

type panicsAt struct {
	slog.Handler
	n  *int
	at int
}

func (l panicsAt) Handle(_ context.Context, r slog.Record) error {
	if r.Level == slog.LevelWarn {
		if *l.n++; *l.n == l.at {
			panic("logger")
		}
	}
	return nil
}
func (l panicsAt) Enabled(context.Context, slog.Level) bool { return true }

func panicking(s Store, p Policy, log slog.Handler) *bench {
	cfg := Config{Logger: slog.New(log)}.withDefaults()
	x := newWholeIndex(s, p.Lists, nip34.Identity{})
	return &bench{ingest: newIngest(cfg, s, p, x, newFeed(x.index, 10, 10), newReport(cfg), nil)}
}

func idleToken() *token {
	tok := newToken()
	tok.ended = func() {}
	return tok
}

func numbered(i int) graspsync.Event {
	ev := &nostr.Event{Kind: 1, Content: fmt.Sprint(i), PubKey: testKey(1).String()}
	ev.ID = ev.GetID()
	return eventtest.Of(ev)
}

func (b *bench) pass(t *testing.T, ev graspsync.Event, tok *token) {
	j := &job{key: copyKey{id: ev.ID}, size: 1000, tokens: []*token{tok}, incoming: graspsync.Incoming{Event: ev}}
	require.NoError(t, b.flights.admit(t.Context(), j))
	tok.hold()
	require.True(t, b.flights.enter(j))
	b.toSave <- j
}

// Once a turn of what was postponed had panicked, nothing postponed was judged again.
func TestPanicBesideWhatIsPostponed(t *testing.T) {
	for _, at := range []int{0, 1} {
		t.Run(fmt.Sprint("logger panics at warning ", at), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, p := newCountedStore(false), &judges{later: map[graspsync.EventID]bool{}}
				b := panicking(s, p, panicsAt{slog.DiscardHandler, new(int), at})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { b.run(ctx); close(done) }()
				tok := idleToken()
				x, y := numbered(1), numbered(2)
				p.later[x.ID], p.later[y.ID] = true, true
				b.pass(t, x, tok)
				synctest.Wait()
				s.set(true)
				p.room(x.ID)
				time.Sleep(30 * time.Minute)
				synctest.Wait()
				s.set(false)
				time.Sleep(30 * time.Minute)
				b.pass(t, y, tok)
				synctest.Wait()
				p.room(y.ID)
				time.Sleep(48 * time.Hour)
				synctest.Wait()
				cancel()
				<-done
				require.True(t, s.has(y.ID), "what was postponed afterwards is judged again")
			})
		})
	}
}

// Once a try of what had failed had panicked, the others kept their room and were not tried again.
func TestPanicBesideWhatFailed(t *testing.T) {
	for _, at := range []int{0, 2} {
		t.Run(fmt.Sprint("logger panics at warning ", at), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, p := newCountedStore(false), &judges{}
				b := panicking(s, p, panicsAt{slog.DiscardHandler, new(int), at})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { b.run(ctx); close(done) }()
				tok := idleToken()
				s.set(true)
				for i := range 400 {
					b.pass(t, numbered(i), tok)
				}
				time.Sleep(time.Hour)
				synctest.Wait()
				s.set(false)
				time.Sleep(48 * time.Hour)
				synctest.Wait()
				b.flights.mu.Lock()
				left := len(b.flights.inFlight)
				b.flights.mu.Unlock()
				cancel()
				<-done
				require.Zero(t, left, "each batch comes to its end")
			})
		})
	}
}

type judgesAfter struct {
	judges
	dep map[graspsync.EventID]graspsync.Dependency
	s   *countedStore
}

func (p *judgesAfter) Judge(ctx context.Context, ev graspsync.Event, src graspsync.Source, v View) (graspsync.Verdict, error) {
	if d, ok := p.dep[ev.ID]; ok && !p.s.has(d.ID) {
		return graspsync.Verdict{Decision: graspsync.Depend, DependsOn: []graspsync.Dependency{d}}, nil
	}
	return p.judges.Judge(ctx, ev, src, v)
}

// What was taken out of where it waited when the writer panicked was known, and lost.
func TestPanicLosesNothingThatWaited(t *testing.T) {
	for _, at := range []int{0, 1} {
		t.Run(fmt.Sprint("logger panics at warning ", at), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newCountedStore(false)
				x, y := numbered(1), numbered(2)
				p := &judgesAfter{dep: map[graspsync.EventID]graspsync.Dependency{x.ID: graspsync.OnEvent(y.ID)}, s: s}
				b := panicking(s, p, panicsAt{slog.DiscardHandler, new(int), at})
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan struct{})
				go func() { b.run(ctx); close(done) }()
				tok := idleToken()
				b.pass(t, x, tok)
				synctest.Wait()
				s.put(y.ID) // a client submits y; then the Store fails once
				s.set(true)
				b.fulfil(y)
				synctest.Wait()
				s.set(false)
				time.Sleep(time.Hour)
				synctest.Wait()
				time.Sleep(5 * 24 * time.Hour)
				cancel()
				<-done
				require.True(t, s.has(x.ID) || !b.absences.dealtWith(x.ID))
			})
		})
	}
}

type unreadable struct{ *countedStore }

func (s *unreadable) Events(context.Context, nostr.Filter) iter.Seq2[graspsync.Event, error] {
	return func(func(graspsync.Event, error) bool) { panic("store of the embedder") }
}
func (s *unreadable) Remove(context.Context, graspsync.Event) error { return nil }

// A Store that panics while announcements are read that nobody lists any more.
func TestUnreadableAnnouncementsAreNotRetired(t *testing.T) {
	s, p := &unreadable{newCountedStore(false)}, &judges{}
	b := panicking(s, p, slog.DiscardHandler)
	require.NotPanics(t, func() { b.listings.retire(t.Context(), []*nip34.Announcement{{}}) })
}

type refuses struct{ *countedStore }

func (s *refuses) Save(_ context.Context, in []graspsync.Incoming) ([]graspsync.Outcome, error) {
	out := make([]graspsync.Outcome, len(in))
	for i := range in {
		out[i].Result = graspsync.Refused
	}
	return out, nil
}

type panicsAtRefused struct{ slog.Handler }

func (panicsAtRefused) Enabled(context.Context, slog.Level) bool { return true }
func (panicsAtRefused) Handle(_ context.Context, r slog.Record) error {
	if r.Message == "event not stored" {
		panic("x")
	}
	return nil
}

// An event that waits for room panicked once a minute, for ever.
func TestEventThatPanicsIsJudgedOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, p := &refuses{newCountedStore(false)}, &judges{later: map[graspsync.EventID]bool{}}
		b := panicking(s, p, panicsAtRefused{slog.DiscardHandler})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { b.run(ctx); close(done) }()
		tok := idleToken()
		x := numbered(1)
		p.later[x.ID] = true
		b.pass(t, x, tok)
		synctest.Wait()
		p.room(x.ID)
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		cancel()
		<-done
		n := b.report.panics["pipeline"]
		require.LessOrEqual(t, n, uint64(1), fmt.Sprint("panics in a day: ", n))
	})
}

type alwaysPanics struct{ slog.Handler }

func (alwaysPanics) Enabled(context.Context, slog.Level) bool  { return true }
func (alwaysPanics) Handle(context.Context, slog.Record) error { panic("logger") }

// A logger that panics at whatever it is told, that something has panicked among it, ended the
// process.
func TestLoggerThatAlwaysPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newCountedStore(true)
		b := panicking(s, &judges{}, alwaysPanics{slog.DiscardHandler})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { b.run(ctx); close(done) }()
		b.pass(t, numbered(1), idleToken())
		time.Sleep(time.Second)
		cancel()
		<-done
		require.Positive(t, b.report.panics["pipeline"])
	})
}
