package sync

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/wire"
)

// ownDouble is our own relay, as a transport that fails at one of the calls.
type ownDouble struct {
	nowhere
	fail   string // the call: dial, send, receive or close
	failAt int    // which of them
	how    string // panic, no conn, late, or an error
	most   int    // events in a page
	hold   time.Duration

	mu sync.Mutex
	// guarded by mu
	events []*nostr.Event
	calls  map[string]int
	dials  []time.Time
	open   int
	conns  []*ownDoubleConn
}

type ownDoubleConn struct {
	of     *ownDouble
	until  time.Time // zero: for ever
	queue  chan wire.Message
	closed chan struct{}
	once   sync.Once
}

var errWire = errors.New("the wire was cut")

// called counts a call, and says whether it fails.
func (d *ownDouble) called(what string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.calls[what]++
	return d.fail == what && (d.failAt == d.calls[what] || d.failAt == 0)
}

// failed is how a call of a connection fails.
func (d *ownDouble) failed() error {
	if d.how == "panic" {
		panic("no network")
	}
	return errWire
}

// Dial implements [Transport].
func (d *ownDouble) Dial(ctx context.Context, _ graspsync.RelayURL) (Conn, error) {
	d.mu.Lock()
	d.dials = append(d.dials, time.Now())
	d.mu.Unlock()
	if d.called("dial") {
		switch d.how {
		case "panic":
			panic("no network")
		case "no conn":
			return nil, nil
		case "late":
			<-ctx.Done()
			return nil, ctx.Err()
		}
		return nil, errWire
	}
	c := &ownDoubleConn{of: d, queue: make(chan wire.Message, 1_000), closed: make(chan struct{})}
	if d.hold > 0 {
		c.until = time.Now().Add(d.hold)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.open++
	d.conns = append(d.conns, c)
	return c, nil
}

// Send implements [Conn].
func (c *ownDoubleConn) Send(_ context.Context, r wire.Request) error {
	if c.of.called("send") {
		return c.of.failed()
	}
	if r.Type != wire.TypeReq {
		return nil
	}
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	f := r.Filters[0]
	match, n := filters.Compile(r.Filters), 0
	for _, ev := range c.of.events { // the newest first
		if n == c.of.most || f.LimitZero || f.Limit > 0 && n == f.Limit {
			break
		}
		if match.Match(ev) {
			c.queue <- wire.Message{Type: wire.TypeEvent, Sub: r.Sub, Event: eventtest.Of(ev)}
			n++
		}
	}
	c.queue <- wire.Message{Type: wire.TypeEOSE, Sub: r.Sub}
	return nil
}

// Receive implements [Conn].
func (c *ownDoubleConn) Receive(ctx context.Context) (wire.Message, error) {
	if c.of.called("receive") {
		return wire.Message{}, c.of.failed()
	}
	var over <-chan time.Time
	if !c.until.IsZero() {
		over = time.After(time.Until(c.until))
	}
	select {
	case m := <-c.queue:
		return m, nil
	case <-over:
		return wire.Message{}, errWire
	case <-c.closed:
		return wire.Message{}, ErrClosed
	case <-ctx.Done():
		return wire.Message{}, ctx.Err()
	}
}

// Info implements [Conn].
func (c *ownDoubleConn) Info() wire.Info { return wire.Info{} }

// InfoKnown implements [Conn]; nobody waits for it.
func (c *ownDoubleConn) InfoKnown() <-chan struct{} { return nil }

// Traffic implements [Conn].
func (c *ownDoubleConn) Traffic() Traffic { return Traffic{} }

// Close implements [Conn].
func (c *ownDoubleConn) Close() error {
	c.once.Do(func() {
		close(c.closed)
		c.of.mu.Lock()
		defer c.of.mu.Unlock()
		c.of.open--
	})
	if c.of.called("close") {
		return c.of.failed()
	}
	return nil
}

// ownBench is a manager of which nothing runs but what follows our own relay.
type ownBench struct {
	*SyncManager
	d    *ownDouble
	stop func()
}

func newOwnBench(t *testing.T, d *ownDouble, readable bool) *ownBench {
	t.Helper()
	d.calls = make(map[string]int)
	identity, err := nip34.ParseIdentity("grasp.example")
	require.NoError(t, err)
	own, err := graspsync.ParseRelayURL("wss://internal.example")
	require.NoError(t, err)
	m, err := New(&oddStore{}, d, identity, Config{OwnRelay: own, fixed: constants{PageLimit: 5}})
	require.NoError(t, err)
	m.report.observer = &observer{queue: make(chan Observation, 1_000), counters: m.report.counters}
	if readable {
		m.readable.set()
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		m.own.run(ctx)
	}()
	return &ownBench{m, d, func() {
		cancel()
		synctest.Wait()
		<-ended
		require.Zero(t, d.open, "each connection is closed")
	}}
}

// told is what the observer was told of one kind.
func told[T Observation](m *SyncManager) (out []T) {
	for {
		select {
		case o := <-m.report.queue:
			if o, ok := o.(T); ok {
				out = append(out, o)
			}
		default:
			return out
		}
	}
}

func ownEvent(kind int, at nostr.Timestamp, n int) *nostr.Event {
	ev := &nostr.Event{Kind: kind, CreatedAt: at, PubKey: testKey(n).String(), Tags: nostr.Tags{}, Content: fmt.Sprint(n)}
	ev.ID = ev.GetID()
	return ev
}

// Whichever call of our own relay fails, and how, is told, and all of it is read by the next
// connection.
func TestOwnFeedWhateverFails(t *testing.T) {
	for _, fault := range []struct{ call, how, err string }{
		{"dial", "error", "connecting: the wire was cut"},
		{"dial", "panic", "connecting: transport panicked: no network"},
		{"dial", "no conn", "connecting: the Transport gave no connection"},
		{"dial", "late", "connecting: context deadline exceeded"},
		{"send", "error", "sending: the wire was cut"},
		{"send", "panic", "sending: transport panicked: no network"},
		{"receive", "error", "the wire was cut"},
		{"receive", "panic", "transport panicked: no network"},
	} {
		for n := range 12 {
			t.Run(fmt.Sprint(fault.call, fault.how, n+1), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					d := &ownDouble{fail: fault.call, failAt: n + 1, how: fault.how, most: 5}
					for i := range 8 {
						d.events = append(d.events, ownEvent(graspsync.KindIssue, nostr.Now()-nostr.Timestamp(i), i))
					}
					wrong := *d.events[3]
					wrong.Content = "changed"
					d.events[3] = &wrong
					m := newOwnBench(t, d, true)
					defer m.stop()
					time.Sleep(14 * time.Minute)
					synctest.Wait()
					d.mu.Lock()
					failed := d.calls[fault.call] > n
					dials := len(d.dials)
					d.mu.Unlock()
					lost := told[OwnFeedLost](m.SyncManager)
					s := m.own.status()
					require.Equal(t, "wss://internal.example", s.URL.String())
					require.True(t, s.Connected && s.Complete)
					require.Empty(t, s.LastError, "since it was read")
					require.Equal(t, uint64(len(lost)), s.Losses)
					require.Equal(t, 1+len(lost), dials)
					require.Equal(t, uint64(1), s.Readings)
					require.GreaterOrEqual(t, s.Events, uint64(7))
					require.Positive(t, m.report.dropped["own_feed_ids"])
					require.Zero(t, m.report.sources[graspsync.Direct].Load(), "nobody submitted it now")
					if !failed {
						require.Empty(t, lost)
						return
					}
					require.Len(t, lost, 1)
					require.EqualError(t, lost[0].Err, fault.err)
					require.Equal(t, time.Second, lost[0].Backoff)
					require.Equal(t, map[bool]uint64{true: 1}[fault.how == "panic"], m.report.panics["transport"])
				})
			})
		}
	}
}

// What comes live was submitted now, and is counted so; what is lost by then is read again.
func TestOwnFeedLive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &ownDouble{most: 5}
		m := newOwnBench(t, d, true)
		defer m.stop()
		time.Sleep(time.Minute)
		synctest.Wait()
		c := d.conns[0]
		c.queue <- wire.Message{Type: wire.TypeEvent, Sub: "own1"} // with no event in it
		c.queue <- wire.Message{Type: wire.TypeEvent, Sub: "own1", Event: eventtest.Of(ownEvent(graspsync.KindIssue, nostr.Now(), 1))}
		wrong := *ownEvent(graspsync.KindIssue, nostr.Now(), 2)
		wrong.Content = "changed"
		c.queue <- wire.Message{Type: wire.TypeEvent, Sub: "own1", Event: eventtest.Of(&wrong)}
		synctest.Wait()
		s := m.own.status()
		require.Equal(t, uint64(1), s.Events)
		require.Equal(t, uint64(1), m.report.sources[graspsync.Direct].Load())
		require.Equal(t, map[string]uint64{"own_feed_ids": 1}, m.report.dropped)
		require.Equal(t, []OwnFeedRead{{}}, told[OwnFeedRead](m.SyncManager))
		require.Equal(t, uint64(1), s.Readings)
		time.Sleep(15 * time.Minute)
		synctest.Wait()
		require.Equal(t, uint64(2), m.own.status().Readings)
		require.Zero(t, m.own.status().Losses)
	})
}

// Seconds that hold more than a page are counted, and what could be read of them is.
func TestOwnFeedFullSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &ownDouble{most: 5}
		for i := range 24 {
			d.events = append(d.events, ownEvent(graspsync.KindIssue, nostr.Now()-nostr.Timestamp(i/12*100), i))
		}
		m := newOwnBench(t, d, true)
		defer m.stop()
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Equal(t, map[string]uint64{"own_feed_seconds": 2}, m.report.dropped)
		require.True(t, m.own.status().Complete)
	})
}

// Each failure makes the next one wait twice as long, up to a minute, until a connection has
// held as long as that.
func TestOwnFeedBackoff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &ownDouble{fail: "dial"}
		m := newOwnBench(t, d, true)
		time.Sleep(5 * time.Minute)
		m.stop()
		var waited, said []time.Duration
		for i, at := range d.dials[1:] {
			waited = append(waited, at.Sub(d.dials[i]))
		}
		for _, o := range told[OwnFeedLost](m.SyncManager) {
			said = append(said, o.Backoff)
		}
		want := []time.Duration{1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60, 60}
		for i := range want {
			want[i] *= time.Second
		}
		require.Equal(t, want[:len(waited)], waited)
		require.GreaterOrEqual(t, len(waited), 8)
		require.Equal(t, want[:len(said)], said)
	})
	for hold, again := range map[time.Duration]bool{time.Minute - 1: false, time.Minute: true, time.Hour: true} {
		synctest.Test(t, func(t *testing.T) {
			d := &ownDouble{hold: hold}
			m := newOwnBench(t, d, true)
			time.Sleep(3*hold + 10*time.Second)
			m.stop()
			var said []time.Duration
			for _, o := range told[OwnFeedLost](m.SyncManager) {
				said = append(said, o.Backoff)
			}
			want := []time.Duration{time.Second, 2 * time.Second, 4 * time.Second}
			if again {
				want = slices.Repeat([]time.Duration{time.Second}, 3)
			}
			require.Equal(t, want, said)
		})
	}
}

// Before the Store was read our own relay is left alone: what it brought would be lost.
func TestOwnFeedWaitsForTheFirstScan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &ownDouble{}
		m := newOwnBench(t, d, false)
		time.Sleep(time.Hour)
		synctest.Wait()
		require.Empty(t, d.dials)
		require.NotNil(t, m.own.status())
		m.stop()
		require.Empty(t, d.dials)
	})
}

// A connection of which the end panics as well is lost once, and followed by the next.
func TestOwnFeedClosePanics(t *testing.T) {
	for _, how := range []string{"panic", "error"} {
		t.Run(how, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newOwnBench(t, &ownDouble{fail: "close", how: how, most: 5, hold: 10 * time.Minute}, true)
				time.Sleep(14 * time.Minute)
				require.Len(t, told[OwnFeedLost](m.SyncManager), 1)
				require.True(t, m.own.status().Connected)
				m.stop()
				require.Equal(t, map[bool]uint64{true: 2}[how == "panic"], m.report.panics[whoseTransport])
			})
		})
	}
}
