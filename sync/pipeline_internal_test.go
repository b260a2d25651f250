package sync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/pending"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/internal/session"
	"github.com/graspsync/graspsync/sync/wire"
)

// ruling is a Verifier that says what a test wants.
type ruling func([]*nostr.Event) []error

// Verify implements [Verifier].
func (r ruling) Verify(events []*nostr.Event) []error { return r(events) }

// Whatever a Verifier does, each event goes on, is a forgery, or is lost to a failure of
// ours: then its batch is repeated, a live one is asked for, and the relay pays nothing.
func TestEachVerdictOfAVerifier(t *testing.T) {
	all := func(err error) ruling {
		return func(events []*nostr.Event) []error { return slices.Repeat([]error{err}, len(events)) }
	}
	for name, c := range map[string]struct {
		rules                         ruling
		saved, forged, failed, panics int
		verified                      int
	}{
		"good":      {rules: all(nil), saved: 2, verified: 2},
		"forged":    {rules: all(fmt.Errorf("said: %w", ErrSignature)), forged: 2, verified: 2},
		"no answer": {rules: all(errors.New("out of memory")), failed: 2, verified: 2},
		"too few":   {rules: func([]*nostr.Event) []error { return []error{nil} }, failed: 2},
		"too many":  {rules: func([]*nostr.Event) []error { return make([]error, 3) }, failed: 2},
		"panics":    {rules: func([]*nostr.Event) []error { panic("x") }, failed: 2, panics: 1},
		"each another one": {
			rules: func([]*nostr.Event) []error { return []error{nil, errors.New("out of memory")} }, saved: 1, failed: 1, verified: 2,
		},
	} {
		for _, kind := range []graspsync.SourceKind{graspsync.Live, graspsync.CatchUp, graspsync.Daily} {
			t.Run(fmt.Sprint(name, " ", kind), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := tune(Config{Verifier: c.rules})
					s.manager.ingest.store.of = &oddStore{err: errors.New("not asked")}
					b := &bench{ingest: s.manager.ingest}
					var asked []graspsync.EventID
					b.refetch.ask = func(_ graspsync.RelayURL, ids []graspsync.EventID) { asked = append(asked, ids...) }
					from := newConn(t.Context(), s.manager.loop.env.conn, graspsync.RelayURL{}, 1, s.relay)
					tok := newToken(graspsync.RelayURL{})
					tok.ended = func() {}
					for range 2 {
						id := b.id()
						j := &job{key: copyKey{id: id}, size: 10_000, from: from, stats: s.relay, tokens: []*token{tok}}
						j.incoming = graspsync.Incoming{Event: eventtest.Of(&nostr.Event{ID: id.String()}), Source: graspsync.Source{Kind: kind}}
						require.NoError(t, b.flights.admit(t.Context(), j))
						tok.hold()
						require.True(t, b.flights.enter(j))
						b.toVerify <- j
					}
					ctx, cancel := context.WithCancel(t.Context())
					go b.verification.run(ctx)
					time.Sleep(verifyLinger)
					synctest.Wait()
					require.Len(t, b.toSave, c.saved)
					require.EqualValues(t, c.failed, b.report.failed.Load())
					require.EqualValues(t, c.forged, b.report.forged.Load())
					require.EqualValues(t, c.verified, b.report.verified.Load())
					require.EqualValues(t, c.panics, b.report.panics["verifier"])
					require.Equal(t, c.failed > 0, tok.failed.Load(), "the batch is repeated")
					require.EqualValues(t, 1+c.saved, tok.open.Load())
					if kind == graspsync.Live {
						require.Len(t, asked, c.failed)
					} else {
						require.Empty(t, asked)
					}
					for range c.saved {
						b.flights.settled(<-b.toSave, true)
					}
					b.leftOver(t)
					cancel()
					synctest.Wait()
				})
			})
		}
	}
}

// Of a relay that has used up what it is allowed, what still waits costs us no signature. What
// another one brought as well is checked.
func TestNothingIsCheckedForTheWorthless(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := tune(Config{fixed: constants{Workers: 1}, Verifier: ruling(func(events []*nostr.Event) []error {
			return slices.Repeat([]error{ErrSignature}, len(events))
		})})
		s.manager.ingest.store.of = &oddStore{err: errors.New("not asked")}
		b := &bench{ingest: s.manager.ingest}
		made := func() *token {
			tok := newToken(graspsync.RelayURL{})
			tok.ended = func() {}
			return tok
		}
		hostile, honest := made(), made()
		from := newConn(t.Context(), s.manager.loop.env.conn, graspsync.RelayURL{}, 1, s.relay)
		enter := func(n int, tokens ...*token) {
			id := b.id()
			j := &job{key: copyKey{id: id}, size: 10, from: from, stats: s.relay, tokens: tokens}
			j.incoming = graspsync.Incoming{
				Event: eventtest.Of(&nostr.Event{ID: id.String(), Content: fmt.Sprint(n)}), Source: graspsync.Source{Kind: graspsync.CatchUp},
			}
			require.NoError(t, b.flights.admit(t.Context(), j))
			for _, tok := range tokens {
				tok.hold()
			}
			require.True(t, b.flights.enter(j))
			b.toVerify <- j
		}
		ctx, cancel := context.WithCancel(t.Context())
		const costs = forgeries + 1
		go b.verification.run(ctx)
		for n := range costs {
			enter(n, hostile)
		}
		time.Sleep(verifyLinger)
		synctest.Wait()
		require.EqualValues(t, costs, b.report.verified.Load())
		require.True(t, from.worthless())
		require.False(t, hostile.failed.Load())

		enter(1, hostile)
		enter(2, hostile, honest)
		time.Sleep(verifyLinger)
		synctest.Wait()
		require.EqualValues(t, costs+1, b.report.verified.Load())
		require.True(t, hostile.failed.Load(), "what was not looked at is asked for again, once it is back")
		require.False(t, honest.failed.Load())
		b.leftOver(t)
		cancel()
		synctest.Wait()
	})
}

// What is on its way when the pipeline stops is let go of, wherever it is: its batch is
// repeated.
func TestPipelineStopsAnywhere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		cfg := Config{fixed: constants{Workers: 1}, Verifier: ruling(func(events []*nostr.Event) []error {
			<-hold
			return make([]error, len(events))
		})}
		s := tune(cfg)
		b := &bench{ingest: s.manager.ingest}
		b.store.of = &oddStore{err: errors.New("not asked")}
		b.policy.view = newWholeIndex(b.store.of, nil, nip34.Identity{})
		tok := newToken(graspsync.RelayURL{})
		tok.ended = func() {}
		ctx, cancel := context.WithCancel(t.Context())
		submit := func(ctx context.Context, n int) error {
			ev := &nostr.Event{Kind: 1, Content: fmt.Sprint(n), PubKey: testKey(1).String()}
			ev.ID = ev.GetID()
			return b.intake.submit(ctx, delivery{ids: new(wire.IDChecker), event: eventtest.Of(ev), size: 500, token: tok})
		}
		n := 0
		for range cap(b.toVerify) { // as many as there is room for
			n++
			require.NoError(t, submit(t.Context(), n))
		}
		errs := make(chan error)
		go func() { errs <- submit(t.Context(), 0) }()
		synctest.Wait()
		for range cap(b.toSave) { // the next step has no room either
			id := b.id()
			j := &job{key: copyKey{id: id}, size: 100, foreign: true, tokens: []*token{tok}}
			require.NoError(t, b.flights.admit(t.Context(), j))
			tok.hold()
			require.True(t, b.flights.enter(j))
			b.toSave <- j
		}
		done := make(chan struct{})
		go func() { // the pipeline without its writer
			b.verification.run(ctx)
			close(b.ended)
			b.drain()
			close(done)
		}()
		synctest.Wait()
		require.NoError(t, <-errs)
		for range verifyBatch - 1 { // as many as were taken, but for the one that waited
			n++
			require.NoError(t, submit(t.Context(), n))
		}
		go func() { errs <- submit(t.Context(), -1) }()
		synctest.Wait()
		cancel()
		close(hold)
		require.NoError(t, <-errs, "it is dealt with, as far as that goes")
		<-done
		require.NoError(t, submit(t.Context(), -2))
		synctest.Wait()
		b.drain()
		require.True(t, tok.failed.Load())
		require.EqualValues(t, 1, tok.open.Load())
		b.leftOver(t)
	})
}

// Of each event that a connection hands over it is told what became of it, and nothing of it
// stays where it was not taken.
func TestEachWayOutOfSubmit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := tune(Config{Limits: Limits{InFlight: 4 << 20}})
		b := &bench{ingest: s.manager.ingest}
		b.store.of = &oddStore{}
		b.policy.view = newWholeIndex(b.store.of, nil, nip34.Identity{})
		from := newConn(t.Context(), s.manager.loop.env.conn, graspsync.RelayURL{}, 1, s.relay)
		tok := newToken(graspsync.RelayURL{})
		tok.ended = func() {}
		next := 0
		event := func() *nostr.Event {
			next++
			ev := &nostr.Event{Kind: 1, Content: fmt.Sprint(next), PubKey: testKey(1).String(), Sig: "x"}
			ev.ID = ev.GetID()
			return ev
		}
		keyOf := func(ev *nostr.Event) copyKey {
			id, err := graspsync.ParseEventID(ev.ID)
			require.NoError(t, err)
			return copyKey{id, ev.Sig}
		}
		submit := func(ctx context.Context, ev *nostr.Event) error {
			return b.intake.submit(ctx, delivery{ids: new(wire.IDChecker), event: eventtest.Of(ev), size: 500, token: tok, from: from})
		}
		counts := func() []uint64 {
			return []uint64{b.report.received.Load(), b.report.duplicates.Load(), b.report.forged.Load(), uint64(len(b.toVerify))}
		}

		another := event()
		another.CreatedAt++
		require.NoError(t, submit(t.Context(), another))
		require.Equal(t, []uint64{1, 0, 1, 0}, counts())
		wrong := event()
		wrong.Content += "!"
		require.NoError(t, submit(t.Context(), wrong))
		require.Equal(t, []uint64{2, 0, 2, 0}, counts())
		require.Len(t, from.mailbox.take(), 2, "the session is told of both")
		here := event()
		b.absences.known.Add(keyOf(here).id)
		require.NoError(t, submit(t.Context(), here))
		require.Equal(t, []uint64{3, 1, 2, 0}, counts())
		bad := event()
		s.relay.bad.add(keyOf(bad))
		require.NoError(t, submit(t.Context(), bad))
		require.Equal(t, []uint64{4, 2, 2, 0}, counts())
		require.EqualValues(t, 1, tok.open.Load())
		b.leftOver(t)

		ours := event()
		require.NoError(t, submit(t.Context(), ours))
		require.Equal(t, []uint64{5, 2, 2, 1}, counts())
		require.EqualValues(t, 2, tok.open.Load())
		require.True(t, b.met(keyOf(ours).id))
		require.False(t, b.met(keyOf(event()).id))
		require.True(t, b.met(keyOf(here).id))
		require.NoError(t, submit(t.Context(), ours))
		require.Equal(t, []uint64{6, 3, 2, 1}, counts(), "another copy, that this one speaks for")
		require.EqualValues(t, 3, tok.open.Load())
		b.flights.settled(<-b.toVerify, true)
		require.EqualValues(t, 1, tok.open.Load())
		require.False(t, b.met(keyOf(ours).id))
		b.leftOver(t)

		// No room: of the relay, or of all. Whoever waits can go.
		for _, who := range []limit.Stranger{s.relay.host, {}} {
			fill := func() func() {
				units := int64(4 << 20)
				if who.ID != "" {
					units = hostShare(units)
				}
				slot, err := b.flights.room.Acquire(t.Context(), who, units)
				require.NoError(t, err)
				return slot.Release
			}
			undo := fill()
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error)
			go func() { ended <- submit(ctx, event()) }()
			synctest.Wait()
			cancel()
			require.ErrorIs(t, <-ended, context.Canceled)
			undo()
			require.EqualValues(t, 1, tok.open.Load())
			b.leftOver(t)
			// One that was dealt with while it waited.
			undo = fill()
			late := event()
			go func() { ended <- submit(t.Context(), late) }()
			synctest.Wait()
			b.absences.known.Add(keyOf(late).id)
			duplicates := b.report.duplicates.Load()
			undo()
			require.NoError(t, <-ended)
			require.Equal(t, duplicates+1, b.report.duplicates.Load())
			require.EqualValues(t, 1, tok.open.Load())
			require.Empty(t, b.toVerify)
			b.leftOver(t)
		}
		require.False(t, tok.failed.Load())

		// A message is charged with what it takes, and never with more than there is room for.
		for size, want := range map[int]int64{0: 512, 1_000: 1_512, 4<<20 - 512: hostShare(4 << 20), 4 << 20: hostShare(4 << 20)} {
			require.NoError(t, b.intake.submit(t.Context(), delivery{ids: new(wire.IDChecker), event: eventtest.Of(event()), size: size, token: tok}))
			j := <-b.toVerify
			require.Equal(t, want, j.size)
			b.flights.settled(j, true)
		}
		many := event()
		many.Tags = nostr.Tags{{}, make(nostr.Tag, 1_000)}
		many.ID = many.GetID()
		require.NoError(t, b.intake.submit(t.Context(), delivery{ids: new(wire.IDChecker), event: eventtest.Of(many), size: 3_000, token: tok}))
		j := <-b.toVerify
		require.EqualValues(t, 3_512+2*24+1_000*16, j.size)
		b.flights.settled(j, true)
	})
}

// The ids that are needed are those that are neither known nor stored, whatever is asked at
// once; if the Store can't tell, nobody knows.
func TestNeeded(t *testing.T) {
	b := newBench(t, nil, 0)
	store := &listedStore{stored: make(map[graspsync.EventID]bool)}
	b.ingest.store.of = store
	var ids, want []graspsync.EventID
	for i := range 3*256 + 1 {
		id := b.id()
		switch i % 3 {
		case 0:
			b.absences.known.Add(id)
		case 1:
			store.stored[id] = true
		default:
			want = append(want, id)
		}
		ids = append(ids, id)
	}
	for n, calls := range map[int]int{0: 0, 1: 1, 255: 1, 256: 1, 257: 2, len(ids): 4} {
		store.asked = nil
		got, err := b.absences.needed(t.Context(), ids[:n])
		require.NoError(t, err)
		require.Equal(t, n/3, len(got))
		require.True(t, len(got) == 0 || slices.Equal(want[:len(got)], got))
		require.Len(t, store.asked, calls)
		for fails := range calls {
			store.asked, store.fails = nil, fails+1
			got, err := b.absences.needed(t.Context(), ids[:n])
			require.ErrorIs(t, err, errFault)
			require.Nil(t, got)
			store.fails = 0
		}
	}
	// The workers look at all of what the Store can't tell, else at what it has not.
	jobs := func() (jobs []*job) {
		for _, id := range ids[:9] {
			j := &job{key: copyKey{id: id}}
			require.NoError(t, b.flights.admit(t.Context(), j))
			require.True(t, b.flights.enter(j))
			jobs = append(jobs, j)
		}
		return jobs
	}
	store.asked, store.fails = nil, 1
	all := jobs()
	require.Len(t, b.verification.unstored(t.Context(), all), 9)
	for _, j := range all {
		b.flights.settled(j, true)
	}
	store.fails = 0
	kept := b.verification.unstored(t.Context(), jobs())
	require.Len(t, kept, 6)
	require.EqualValues(t, 3, b.report.duplicates.Load())
	for i, id := range ids[:9] {
		require.Equal(t, i%3 < 2, b.absences.known.Has(id), "what is stored needs no second look")
	}
	for _, j := range kept {
		b.flights.settled(j, true)
	}
	b.leftOver(t)
}

// listedStore has some ids, and fails when it is asked for the so manieth time.
type listedStore struct {
	Store
	stored map[graspsync.EventID]bool
	asked  []int
	fails  int
}

// Has implements [Store].
func (s *listedStore) Has(_ context.Context, ids []graspsync.EventID) (has []bool, err error) {
	if s.asked = append(s.asked, len(ids)); len(s.asked) == s.fails {
		return nil, errFault
	}
	for _, id := range ids {
		has = append(has, s.stored[id])
	}
	return has, nil
}

// What is fulfilled is gathered until the writer takes it; when there is too much, all that
// waits is judged.
func TestWhatIsFulfilledIsGathered(t *testing.T) {
	s := tune(Config{fixed: constants{FeedQueue: 10}})
	g := s.manager.ingest
	for n, all := range map[int]bool{9: false, 10: false, 11: true, 15: true} {
		var want []pending.Key
		for i := range n {
			k := pending.Key(i)
			if i < 10 {
				want = append(want, k)
			}
			g.news.wakeFor([]pending.Key{k})
			require.Len(t, g.news.wake, 1)
		}
		got, overrun := g.news.takeFulfilled()
		require.Equal(t, want, got)
		require.Equal(t, all, overrun, n)
		<-g.news.wake
		got, overrun = g.news.takeFulfilled()
		require.Empty(t, got)
		require.False(t, overrun)
	}
}

// What a scan has found fulfils what it would have, had it come one by one.
func TestWhatAScanFulfils(t *testing.T) {
	a := testAnnouncement(1, 1, "x", 1, "ours")
	a.Tags = append(a.Tags, nostr.Tag{"maintainers", testKey(2).String(), testKey(3).String()})
	ann, err := nip34.ParseAnnouncement(eventtest.Of(a))
	require.NoError(t, err)
	g := tune(Config{}).manager.ingest
	var c indexChange
	c.setRepo(ann.Ref, ann)
	c.setRepo(testRepo(5, "gone"), nil)
	c.setRoot(testID(7), []graspsync.RepoRef{ann.Ref})
	c.setRoot(testID(8), nil)
	g.discovered(c)
	got, all := g.news.takeFulfilled()
	require.Empty(t, got)
	require.False(t, all)
	got = g.news.takeFound()()
	require.Nil(t, g.news.takeFound())
	want := []pending.Key{pending.KeyOf(graspsync.OnEvent(testID(7)))}
	for _, k := range pending.Fulfils(eventtest.Of(a), true) {
		if c, _ := eventtest.Of(a).Address(); k != pending.KeyOf(graspsync.OnVersion(c)) { // any version may have been there before
			want = append(want, k)
		}
	}
	for n := range 3 {
		want = append(want, pending.KeyOf(graspsync.OnSay("x", testKey(1+n))), pending.KeyOf(graspsync.OnWanted("x", testKey(1+n))))
	}
	slices.Sort(got)
	slices.Sort(want)
	require.Equal(t, slices.Compact(want), slices.Compact(got))

	// Of what was stored meanwhile that counts for which something waits.
	keys := make(map[pending.Key]struct{})
	g.absences.awaited(eventtest.Of(a), keys)
	require.Empty(t, keys, "nothing waits")
	note := testNote(9, graspsync.OnEvent(testID(1)), graspsync.OnEvent(testID(2)), graspsync.OnMaintainer("x", testKey(3)), graspsync.OnSay("x", testKey(3)), graspsync.OnWanted("x", testKey(2)), graspsync.OnSay("x", testKey(4)))
	note.Waits = true
	g.absences.rejected.Add(note)
	g.absences.awaited(eventtest.Of(a), keys)
	require.Equal(t, map[pending.Key]struct{}{pending.KeyOf(graspsync.OnEvent(testID(1))): {}, pending.KeyOf(graspsync.OnMaintainer("x", testKey(3))): {},
		pending.KeyOf(graspsync.OnSay("x", testKey(3))): {}, pending.KeyOf(graspsync.OnWanted("x", testKey(2))): {}}, keys)
	require.False(t, g.later.known.Load())
	g.recalled(keys)
	require.True(t, g.later.known.Load(), "relays are known by now")
	got, _ = g.news.takeFulfilled()
	require.Len(t, got, 4)
}

// What our relay has removed does not come back until its note expires: what is known stays
// out for as long as the process lives, so it is forgotten there.
func TestRemovedIsDealtWith(t *testing.T) {
	g := tune(Config{}).manager.ingest
	ev := testEvent(1, 1621, 1, 1)
	g.absences.known.Add(testID(1))
	g.removed(eventtest.Of(ev))
	require.False(t, g.absences.known.Has(testID(1)))
	require.True(t, g.absences.dealtWith(testID(1)))
	require.True(t, g.absences.rejected.Has(testID(1)), "nor after a restart")
}

// The turns of what there was no room for: every five seconds, every second once there was
// room for one, but not more than once a minute; relays are asked once a minute.
func TestTurnsOfWhatThereWasNoRoomFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l laterTurns
		began := time.Now()
		require.Nil(t, l.due(), "there is nothing")
		l.come()
		time.Sleep(laterEvery / 2)
		l.come() // more of it
		<-l.due()
		require.Equal(t, laterEvery, time.Since(began))
		l.arm(3 * time.Second)
		<-l.due()
		require.Equal(t, laterEvery+3*time.Second, time.Since(began))

		require.False(t, l.asks(time.Now()), "nobody is known")
		l.known.Store(true)
		require.True(t, l.asks(time.Now()))
		now := time.Now()
		require.False(t, l.asks(now.Add(time.Minute-1)))
		require.True(t, l.asks(now.Add(time.Minute)))

		l.found(now)
		require.True(t, l.hurrying)
		l.hurrying = false
		l.found(now.Add(time.Minute - 1))
		require.False(t, l.hurrying, "they were all tried a moment ago")
		l.found(now.Add(time.Minute))
		require.True(t, l.hurrying)
		require.Equal(t, now.Add(time.Minute), l.hurriedAt)
	})
}

// tardy is a Store that takes its time to save.
type tardy struct {
	Store
	takes time.Duration
}

// Save implements [Store].
func (s *tardy) Save(_ context.Context, events []graspsync.Incoming) ([]graspsync.Outcome, error) {
	time.Sleep(s.takes)
	return slices.Repeat([]graspsync.Outcome{{Result: graspsync.Stored}}, len(events)), nil
}

// roomy is a Policy that has room for some events, and none for the others.
type roomy func(*nostr.Event) bool

// Lists implements [Policy].
func (roomy) Lists(*nip34.Announcement) bool { return false }

func (roomy) Authority(graspsync.RepoRef, View) *nip34.Authority { return nil }

func (roomy) Heard(string, View) map[graspsync.PubKey]bool { return nil }

// Judge implements [Policy].
func (r roomy) Judge(_ context.Context, ev graspsync.Event, _ graspsync.Source, _ View) (graspsync.Verdict, error) {
	if r(ev.Event) {
		return graspsync.Verdict{Decision: graspsync.Accept}, nil
	}
	return graspsync.Verdict{Decision: graspsync.Later, Reason: "full"}, nil
}

// The writer has four times as long for what comes now as a turn took.
func TestTurnsLeaveTimeForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := tune(Config{})
		g := s.manager.ingest
		room := false
		store := &tardy{}
		g.store.of, g.policy.of = store, roomy(func(*nostr.Event) bool { return room })
		f := newFeed(newIndex(listsByName, nip34.Identity{}, nil), 10, 10)
		g.feed, g.writer.feed, g.listings.feed = f, f, f
		turn := func() (pause time.Duration) {
			g.writer.judgeLater(t.Context())
			began := time.Now()
			g.later.any = true
			<-g.later.due()
			return time.Since(began)
		}
		add := func(from, n int) {
			for i := range n {
				n := testNote(from + i)
				n.Later = true
				g.absences.rejected.Add(n)
			}
		}
		left := func() int { return g.absences.rejected.Held().Later }
		add(0, 600)
		require.Equal(t, 600, left())
		time.Sleep(time.Minute)
		require.Equal(t, laterEvery, turn())
		require.Equal(t, 600, left(), "there was no room")
		room = true
		require.Equal(t, time.Second, turn())
		require.Equal(t, 600-256, left())
		store.takes = 10 * time.Second
		require.Equal(t, 40*time.Second, turn())
		require.Equal(t, 600-512, left())
		store.takes = 0
		require.Equal(t, time.Second, turn())
		require.Zero(t, left())
		require.Equal(t, laterEvery, turn(), "all had their turn")

		g.retrier.retries.wait = time.Second // nothing can be saved
		add(1_000, 5)
		time.Sleep(time.Hour)
		turn()
		require.Equal(t, 5, left())
		g.retrier.retries.wait = 0
		turn()
		require.Zero(t, left())
	})
}

// one is a Store that has one event.
type one struct {
	oddStore
	id string
}

// Has implements [Store].
func (o *one) Has(_ context.Context, ids []graspsync.EventID) (has []bool, err error) {
	for _, id := range ids {
		has = append(has, id.String() == o.id)
	}
	return has, nil
}

// The Verifier is not asked about nothing, where all that came is stored.
func TestVerifierIsNotAskedAboutNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		c := madeConn(t, Config{Verifier: ruling(func(events []*nostr.Event) []error {
			asked++
			return make([]error, len(events))
		})})
		g, store := c.env.ingest, &one{}
		g.store.of = store
		ctx, cancel := context.WithCancel(t.Context())
		go g.verification.run(ctx)
		for _, stored := range []bool{true, false} {
			ev := &nostr.Event{Kind: 1, PubKey: testKey(1).String(), Content: fmt.Sprint(stored)}
			ev.ID = ev.GetID()
			if stored {
				store.id = ev.ID
			}
			c.deliver(session.Deliver{Event: eventtest.Of(ev), Size: 100})
			synctest.Wait()
			require.Equal(t, map[bool]int{false: 1}[stored], asked)
		}
		g.flights.settled(<-g.toSave, true)
		cancel()
		synctest.Wait()
		g.leftOver(t)
	})
}

// What the writer has not got to when we end is let go of, and its batch repeated.
func TestWriterEndsBeforeItIsThrough(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := madeConn(t, Config{})
		f := &fetching{batch: plan.Batch{ID: 3}, token: newToken(c.url)}
		c.batches[3] = f
		ev := &nostr.Event{Kind: 1, PubKey: testKey(1).String()}
		ev.ID = ev.GetID()
		c.deliver(session.Deliver{Batch: 3, Event: eventtest.Of(ev), Size: 100})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		c.env.ingest.writer.process(ctx, []*job{<-c.env.ingest.toVerify})
		require.True(t, f.token.failed.Load())
		require.EqualValues(t, 1, f.token.open.Load())
		c.env.ingest.leftOver(t)
	})
}
