package sync

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/internal/session"
	"github.com/graspsync/graspsync/sync/wire"
)

// madeConn is a connection that does not run, over a pipeline that does not either.
func madeConn(t *testing.T, cfg Config) *conn {
	t.Helper()
	s := tune(cfg)
	s.manager.loop.env.conn.transport = nowhere{}
	s.manager.ingest.store.of = &oddStore{}
	s.manager.ingest.policy.view = newWholeIndex(s.manager.ingest.store.of, nil, nip34.Identity{})
	c := newConn(t.Context(), s.manager.loop.env.conn, testURL(t, "wss://a.example"), 7, s.relay)
	c.session = session.New(s.session)
	c.conn = quiet{}
	return c
}

// quiet is a connection that tells nothing of its traffic.
type quiet struct{ Conn }

// Traffic implements [Conn].
func (quiet) Traffic() Traffic { return Traffic{} }

// What is delivered is counted, and goes on as what it was asked for: a batch counts on it.
// What is left of a batch that was given up is nobody's.
func TestDeliver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := madeConn(t, Config{})
		f := &fetching{batch: plan.Batch{ID: 3}, token: newToken()}
		c.batches[3] = f
		n := 0
		deliver := func(a session.Deliver) {
			n++
			ev := &nostr.Event{Kind: 1, Content: fmt.Sprint(n), PubKey: testKey(1).String()}
			ev.ID = ev.GetID()
			a.Event = eventtest.Of(ev)
			a.Size = 100
			c.deliver(a)
		}
		delivered := uint64(0)
		for _, w := range []struct {
			a    session.Deliver
			kind graspsync.SourceKind
			gap  bool
		}{
			{session.Deliver{}, graspsync.Live, false}, {session.Deliver{Gap: true}, graspsync.Live, true},
			{session.Deliver{Batch: 3, Kind: plan.History}, graspsync.CatchUp, false},
			{session.Deliver{Batch: 3, Kind: plan.Recent, Gap: true}, graspsync.CatchUp, true},
			{session.Deliver{Batch: 3, Kind: plan.DailyHistory}, graspsync.Daily, false},
			{session.Deliver{Batch: 3, Kind: plan.DailyHistory, Gap: true}, graspsync.Daily, true},
			{session.Deliver{Batch: 3, Kind: plan.Audit}, graspsync.Daily, true},
		} {
			deliver(w.a)
			delivered++
			require.Equal(t, delivered, c.stats.events.Load())
			require.Len(t, c.env.ingest.toVerify, 1)
			j := <-c.env.ingest.toVerify
			require.Equal(t, graspsync.Source{Relay: c.url, Kind: w.kind}, j.incoming.Source)
			require.Equal(t, w.gap, j.gap)
			counts := c.live
			if w.a.Batch != 0 {
				counts = f.token
			}
			require.EqualValues(t, 2, counts.open.Load())
			c.env.ingest.flights.settled(j, true)
			require.EqualValues(t, 1, counts.open.Load())
		}
		deliver(session.Deliver{Batch: 4, Kind: plan.History})
		require.Equal(t, delivered, c.stats.events.Load())
		require.Empty(t, c.env.ingest.toVerify)
		c.done(session.Done{Batch: 4})
		require.Empty(t, c.env.inbox.take())
		c.done(session.Done{Batch: 3, Result: plan.Failed})
		require.Empty(t, c.batches)
		told := c.env.inbox.take()
		require.Len(t, told, 1)
		require.Equal(t, plan.Failed, told[0].(batchDone).done.Result)
		require.NoError(t, c.ended)

		// The time that the pipeline takes is not the relay's.
		full, err := c.env.ingest.flights.room.Acquire(t.Context(), limit.Stranger{}, 48<<20)
		require.NoError(t, err)
		time.AfterFunc(7*time.Second, full.Release)
		c.stalled = time.Second
		deliver(session.Deliver{})
		require.Equal(t, 8*time.Second, c.stalled)
		c.excuse()
		require.Zero(t, c.stalled)
		c.env.ingest.flights.settled(<-c.env.ingest.toVerify, true)
		full, err = c.env.ingest.flights.room.Acquire(t.Context(), limit.Stranger{}, 48<<20)
		require.NoError(t, err)
		time.AfterFunc(time.Second, c.hangup)
		deliver(session.Deliver{})
		require.ErrorIs(t, c.ended, context.Canceled)
		full.Release()
		c.env.ingest.leftOver(t)
	})
}

// What was known when it was read is no proof of anything if it is not known any more: what it
// says was not read.
func TestDeliverKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := madeConn(t, Config{})
		ev := &nostr.Event{Kind: 1, PubKey: testKey(1).String(), ID: strings.Repeat("ab", 32)}
		var asked []graspsync.EventID
		c.env.ingest.refetch.ask = func(_ graspsync.RelayURL, ids []graspsync.EventID) { asked = append(asked, ids...) }
		c.deliver(session.Deliver{Event: eventtest.Of(ev), Known: true, Size: 100})
		require.Equal(t, []graspsync.EventID{eventtest.Of(ev).ID}, asked, "it is not known any more")
		require.EqualValues(t, 1, c.env.report.duplicates.Load())
		require.Zero(t, c.env.report.forged.Load())
		require.Empty(t, c.env.ingest.toVerify)
		c.deliver(session.Deliver{Event: eventtest.Of(ev), Size: 100})
		require.EqualValues(t, 1, c.env.report.forged.Load())
		c.env.ingest.leftOver(t)
	})
}

// What the session wants done is done in its order, until the connection is at its end.
func TestPerform(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := madeConn(t, Config{})
		until := time.Now().Add(time.Minute)
		c.perform([]session.Action{
			session.RateLimited{Until: until, Reason: "slow down"},
			session.LiveClosed{Live: 5, Reason: "too many", Why: wire.RefusalRestricted},
			session.Strike{Reason: "one"}, session.Notice{Text: "hello"},
			session.LiveClosed{Live: 6, Reason: "other", Why: wire.RefusalOther},
			session.Strike{Reason: "two", Last: true},
			session.RateLimited{Until: until},
		})
		require.ErrorIs(t, c.ended, errHostile)
		require.ErrorContains(t, c.ended, "two")
		require.EqualValues(t, 2, c.stats.strikes.Load())
		require.Equal(t, "too many", c.stats.lastErr, "what can be helped is no error")
		told := c.env.inbox.take()
		require.Len(t, told, 3)
		require.Equal(t, rateLimited{conn: c, until: until, reason: "slow down", log: true}, told[0])
		for i, want := range []plan.LiveClosed{{Live: 5, Why: wire.RefusalRestricted}, {Live: 6, Why: wire.RefusalOther}} {
			want.Relay, want.Epoch = c.url, 7
			require.Equal(t, planInput{want}, told[1+i])
		}
	})
}

// A question that panics costs the connection that asked it.
func TestQuestionThatPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := madeConn(t, Config{})
		c.ask(func(context.Context) command { panic("x") })
		synctest.Wait()
		told := c.mailbox.take()
		require.Len(t, told, 1)
		require.Empty(t, told[0](c.session, time.Now()))
		require.EqualError(t, c.ended, "internal error: x")
		require.Equal(t, map[string]uint64{"connection": 1}, c.env.report.panics)
	})
}

// sender is a connection whose relay sends the same message over and over.
type sender struct {
	quiet
	msg  wire.Message
	n    int
	most int
}

var errEnd = errors.New("nothing more")

// Receive implements [Conn].
func (s *sender) Receive(context.Context) (wire.Message, error) {
	if s.n == s.most {
		return wire.Message{}, errEnd
	}
	s.n++
	return s.msg, nil
}

// So much is read ahead, and no more: 64 KiB, or sixteen messages.
func TestReadingAhead(t *testing.T) {
	for size, want := range map[int]int{1: 5, 16<<10 - 1: 5, 16 << 10: 4, 32<<10 - 1: 3, 32 << 10: 2, 1 << 20: 1} {
		synctest.Test(t, func(t *testing.T) {
			c := madeConn(t, Config{})
			s := &sender{msg: wire.Message{Type: wire.TypeNotice, Size: size}, most: 1_000}
			c.conn = s
			frames, failed := make(chan wire.Message, frameQueue), make(chan error, 1)
			go c.receive(frames, failed)
			synctest.Wait()
			require.Equal(t, want, s.n, "of %d bytes", size)
			for i := range 10 { // each that is dealt with makes room for one
				c.take(<-frames)
				c.ended = nil
				synctest.Wait()
				require.Equal(t, want+i+1, s.n)
			}
			require.False(t, c.ahead.taken.Load() == c.ahead.read.Load())
			require.EqualValues(t, 10, c.stats.messages.Load())
			require.EqualValues(t, 10*size, c.stats.bytes.Load())
			c.hangup()
			require.ErrorIs(t, <-failed, context.Canceled)
			synctest.Wait()
		})
	}
	// An event that is none is nothing to read ahead; an error comes behind what was read.
	synctest.Test(t, func(t *testing.T) {
		c := madeConn(t, Config{})
		s := &sender{msg: wire.Message{Type: wire.TypeEvent, Size: 1 << 20}, most: 100}
		c.conn = s
		frames, failed := make(chan wire.Message, frameQueue), make(chan error, 1)
		c.receive(frames, failed)
		require.Equal(t, 100, s.n)
		require.Empty(t, frames)
		require.Zero(t, c.ahead.bytes.Load())
		require.ErrorIs(t, <-failed, errEnd)
		require.False(t, c.signs.lostAt.IsZero())
		s.msg, s.n, s.most = wire.Message{Type: wire.TypeNotice, Size: 1}, 0, 3
		c.receive(frames, failed)
		c.converse(frames, failed)
		require.ErrorIs(t, c.ended, errEnd)
		require.EqualValues(t, 3, c.stats.messages.Load())
		require.Equal(t, c.ahead.read.Load(), c.ahead.taken.Load())
	})
}

// informed is a connection that learns after a while what its relay says of itself.
type informed struct {
	Conn
	known chan struct{}
}

// InfoKnown implements [Conn].
func (i *informed) InfoKnown() <-chan struct{} { return i.known }

// What a relay says of itself is waited for, two seconds at most.
func TestWaitingForInfo(t *testing.T) {
	for after, want := range map[time.Duration]time.Duration{
		0: 0, time.Second: time.Second, 2*time.Second - 1: 2*time.Second - 1, time.Hour: 2 * time.Second,
	} {
		for _, hangup := range []time.Duration{0, 500 * time.Millisecond} {
			synctest.Test(t, func(t *testing.T) {
				c := madeConn(t, Config{})
				i := &informed{known: make(chan struct{})}
				c.conn = i
				known := time.AfterFunc(after, func() { close(i.known) })
				defer known.Stop()
				if hangup > 0 {
					time.AfterFunc(hangup, c.hangup)
					want = min(want, hangup)
				}
				began := time.Now()
				c.awaitInfo()
				require.Equal(t, want, time.Since(began))
			})
		}
	}
}

// hanging is a Transport whose attempts end with their context.
type hanging struct{ nowhere }

// Dial implements [Transport].
func (hanging) Dial(ctx context.Context, _ graspsync.RelayURL) (Conn, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

// An attempt takes as long as it may, and is told the loop, whatever it came to.
func TestAttemptIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := madeConn(t, Config{fixed: constants{ConnectTimeout: 3 * time.Second}})
		c.env.transport = hanging{}
		began := time.Now()
		c.run()
		require.Equal(t, 3*time.Second, time.Since(began))
		told := c.env.inbox.take()
		require.Len(t, told, 1)
		require.ErrorIs(t, told[0].(dialFailed).err, context.DeadlineExceeded)
		require.Same(t, c, told[0].(dialFailed).conn)
		require.Error(t, c.ctx.Err(), "nothing of it is left")
	})
}

// The end of a connection is told when what came by it is settled, or ten seconds later;
// nobody waits where we end.
func TestEndWaitsForWhatIsOnItsWay(t *testing.T) {
	for name, w := range map[string]struct {
		settles []time.Duration // of each batch; zero: never
		ends    time.Duration   // of the pipeline
		want    time.Duration
	}{
		"nothing":        {nil, 0, 0},
		"soon":           {[]time.Duration{time.Second, 3 * time.Second}, 0, 3 * time.Second},
		"just in time":   {[]time.Duration{time.Second, 10*time.Second - 1}, 0, 10*time.Second - 1},
		"never":          {[]time.Duration{0, time.Second, 0}, 0, 10 * time.Second},
		"we end":         {[]time.Duration{0, 0}, 2 * time.Second, 2 * time.Second},
		"we end, behind": {[]time.Duration{time.Second}, 2 * time.Second, time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := madeConn(t, Config{})
				for i, d := range w.settles {
					f := &fetching{token: newToken()}
					f.token.hold()
					c.batches[plan.BatchID(i+1)] = f //nolint:gosec // small
					if d > 0 {
						time.AfterFunc(d, func() { f.token.settle(true) })
					}
				}
				if w.ends > 0 {
					time.AfterFunc(w.ends, func() { close(c.env.ingest.ended) })
				}
				c.end(errEnd)
				c.end(errNoConn)
				began := time.Now()
				c.report()
				require.Equal(t, w.want, time.Since(began))
				told := c.env.inbox.take()
				require.Len(t, told, 1)
				require.ErrorIs(t, told[0].(lost).err, errEnd, "the first reason counts")
				time.Sleep(time.Minute)
			})
		})
	}
}

// signing is a Signer made of a function.
type signing func(ctx context.Context, ev *nostr.Event) error

// SignAuth implements [Signer].
func (s signing) SignAuth(ctx context.Context, ev *nostr.Event) error { return s(ctx, ev) }

// What a Signer did is checked: it is the event that it was given, with an author, an id
// and a signature, or an error.
func TestSignAuth(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		key := nostr.GeneratePrivateKey()
		signed := func(change func(*nostr.Event)) signing {
			return func(_ context.Context, ev *nostr.Event) error {
				change(ev)
				return ev.Sign(key)
			}
		}
		u := testURL(t, "wss://a.example")
		sign := func(s Signer) (*nostr.Event, *counters, error) {
			k := &counters{}
			ev, err := signAuth(t.Context(), k, s, u, "riddle")
			return ev, k, err
		}
		ev, k, err := sign(signed(func(*nostr.Event) {}))
		require.NoError(t, err)
		require.Equal(t, nostr.Tags{{"relay", u.String()}, {"challenge", "riddle"}}, ev.Tags)
		require.Equal(t, 22242, ev.Kind)
		require.Equal(t, nostr.Now(), ev.CreatedAt)
		require.Empty(t, k.panics)
		for name, s := range map[string]signing{
			"another kind":      signed(func(ev *nostr.Event) { ev.Kind = 1 }),
			"another challenge": signed(func(ev *nostr.Event) { ev.Tags[1][1] = "x" }),
			"another time":      signed(func(ev *nostr.Event) { ev.CreatedAt++ }),
			"nothing":           func(context.Context, *nostr.Event) error { return nil },
			"only its author":   func(_ context.Context, ev *nostr.Event) error { ev.PubKey = testKey(1).String(); return nil },
			"no signature": func(_ context.Context, ev *nostr.Event) error {
				ev.PubKey = testKey(1).String()
				ev.ID = ev.GetID()
				return nil
			},
			"changed afterwards": func(_ context.Context, ev *nostr.Event) error {
				err := ev.Sign(key)
				ev.Content = "x"
				return err
			},
			"another signature": func(_ context.Context, ev *nostr.Event) error {
				other := *ev
				other.Content = "x"
				if err := other.Sign(key); err != nil {
					return err
				}
				err := ev.Sign(key)
				ev.Sig = other.Sig
				return err
			},
		} {
			ev, k, err := sign(s)
			require.ErrorIs(t, err, errSigned, name)
			require.Nil(t, ev, name)
			require.Empty(t, k.panics)
		}
		_, k, err = sign(signing(func(context.Context, *nostr.Event) error { panic("x") }))
		require.ErrorContains(t, err, "signer panicked")
		require.Equal(t, map[string]uint64{"signer": 1}, k.panics)
		_, _, err = sign(signing(func(context.Context, *nostr.Event) error { return errFault }))
		require.ErrorIs(t, err, errFault)
		began := time.Now()
		_, _, err = sign(signing(func(ctx context.Context, _ *nostr.Event) error { <-ctx.Done(); return ctx.Err() }))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Equal(t, 15*time.Second, time.Since(began))
	})
}

// Each copy of an event with a wrong signature is charged and counted, and proof of
// hostility once.
func TestBadSignatureIsToldOnce(t *testing.T) {
	c := madeConn(t, Config{fixed: constants{Refill: 1, Unproductive: 4 * forgeries}})
	for n := range 3 {
		c.badSignature(copyKey{testID(1), fmt.Sprint(n)})
		require.EqualValues(t, n+1, c.env.report.forged.Load())
		require.Len(t, c.mailbox.take(), max(0, 1-n))
	}
	c.badSignature(copyKey{testID(2), "x"})
	require.Len(t, c.mailbox.take(), 1, "another event")
}

// What is told of a batch that was given up is not waited for.
func TestAbandonedBatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := madeLoop(t, &twinStore{}, Config{})
		u := testURL(t, "wss://a.example")
		s := tune(Config{})
		c := newConn(t.Context(), l.env.conn, u, 3, l.m.remember.stats(u))
		c.session = session.New(s.session)
		l.conns[u] = c
		obey := func() {
			for _, cmd := range c.mailbox.take() {
				cmd(c.session, time.Now())
			}
		}
		b := plan.Batch{ID: 5, Deadline: time.Now().Add(time.Hour)}
		for _, epoch := range []uint64{2, 3} {
			l.perform(t.Context(), plan.Start{Relay: u, Epoch: epoch, Batch: b})
			obey()
			require.Len(t, c.batches, int(epoch-2), "of another connection it is not") //nolint:gosec // small
		}
		for _, epoch := range []uint64{2, 3} {
			l.perform(t.Context(), plan.Cancel{Relay: u, Epoch: epoch, Batch: 5})
			obey()
			require.Len(t, c.batches, int(3-epoch)) //nolint:gosec // small
		}
	})
}

// A look-up of what a relay lacks that fails counts what it has found, and is told.
func TestLookUpThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &twinStore{}
		log := &words{}
		l := madeLoop(t, store, Config{Logger: log.loggerOf(slog.LevelDebug)})
		u := testURL(t, "wss://a.example")
		ann := testAnnouncement(1, 1, "x", 1, "ours")
		ann.Tags = append(ann.Tags, nostr.Tag{"relays", u.String()})
		issue, other := testEvent(2, 1621, 1, 1, tagRepo(testRepo(1, "x"))), testEvent(3, 1621, 1, 1, tagRepo(testRepo(2, "y")))
		for _, ev := range []*nostr.Event{ann, issue, other} {
			require.True(t, store.save(ev))
			l.m.feed.stored(eventtest.Of(ev))
		}
		l.plan.Step(time.Now(), l.wants.changes(l.m.feed.take().change))
		c := newConn(t.Context(), l.env.conn, u, 3, l.m.remember.stats(u))
		lacks := func(ids ...graspsync.EventID) int {
			c.compared(session.Report{Reconciled: 1, Lacking: ids})
			synctest.Wait()
			for _, msg := range l.m.inbox.take() {
				l.handle(t.Context(), msg)
			}
			n, _, at := c.stats.coverage.of(testRepo(1, "x"))
			require.Equal(t, time.Now(), at)
			require.Zero(t, c.stats.coverage.looking)
			return n
		}
		c.compared(session.Report{Lacking: []graspsync.EventID{testID(2)}})
		synctest.Wait()
		require.Empty(t, l.m.inbox.take(), "nothing was compared")
		require.Equal(t, 1, lacks(testID(2), testID(3)), "of the other's repository it needs nothing")
		require.Equal(t, 1, lacks(testID(2), testID(3)), "each once")
		require.Zero(t, log.count("what a relay lacks"))
		store.fail = errFault
		require.Equal(t, 2, lacks(testID(1)))
		require.Equal(t, 1, log.count("looking up what a relay lacks failed"))
		c.hangup()
		require.Equal(t, 2, lacks(testID(9)))
		require.Equal(t, 1, log.count("looking up what a relay lacks failed"), "it has ended: that is no trouble")
	})
}
