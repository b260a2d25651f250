package ownfeed

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/internal/goldentest"
	"github.com/graspsync/graspsync/sync/wire"
)

var start = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

func defaults() Config {
	return Config{
		Overlap: 15 * time.Minute, Recheck: 15 * time.Minute, Idle: 30 * time.Second, Total: 5 * time.Minute,
		PageLimit: 500, MaxPage: 5_000,
	}
}

func event(n int, kind int, at time.Time) *nostr.Event {
	return &nostr.Event{ID: fmt.Sprintf("%064x", n+1), Kind: kind, CreatedAt: nostr.Timestamp(at.Unix())}
}

func msg(sub string, ev *nostr.Event) wire.Message {
	return wire.Message{Type: wire.TypeEvent, Sub: sub, Event: eventtest.Of(ev)}
}

func eose(sub string) wire.Message { return wire.Message{Type: wire.TypeEOSE, Sub: sub} }

func req(t *testing.T, r Result) wire.Request {
	t.Helper()
	require.NoError(t, r.Err)
	i := slices.IndexFunc(r.Send, func(q wire.Request) bool { return q.Type == wire.TypeReq })
	require.GreaterOrEqual(t, i, 0)
	require.Len(t, r.Send[i].Filters, 1)
	return r.Send[i]
}

// A normal connection: the live subscription first, then all stored events.
func TestLiveFirstThenEverything(t *testing.T) {
	f := New(defaults())
	_, ok := f.NextWake()
	require.False(t, ok)
	live := req(t, f.Connected(start))
	require.True(t, live.Filters[0].LimitZero)
	require.Equal(t, Kinds(), live.Filters[0].Kinds)
	require.Equal(t, []int{30617, 1617, 1618, 1621, 5, 62}, Kinds())

	// Some relays answer limit 0 with stored events. These are not new.
	r := f.Receive(start, msg(live.Sub, event(1, 1621, start.Add(-time.Hour))))
	require.False(t, r.Event.IsZero())
	require.False(t, r.Live)
	page := req(t, f.Receive(start, eose(live.Sub)))
	require.Nil(t, page.Filters[0].Since)
	require.Equal(t, 500, page.Filters[0].Limit)
	r = f.Receive(start, msg(live.Sub, event(2, 1621, start)))
	require.True(t, r.Live)
	require.False(t, f.Receive(start, msg(page.Sub, event(3, 1621, start))).Event.IsZero())
	require.True(t, f.Receive(start, msg(page.Sub, event(4, 30618, start))).Event.IsZero(), "not asked for")
	require.True(t, f.Receive(start, msg("other", event(5, 1621, start))).Event.IsZero())
	require.Equal(t, Result{}, f.Receive(start, eose("other")))
	require.False(t, f.Complete())
	r = f.Receive(start, wire.Message{Type: wire.TypeEOSE, Sub: page.Sub, Hint: wire.HintFinish})
	require.True(t, r.Read)
	require.Equal(t, 1, r.Events)
	require.True(t, f.Complete())

	wake, ok := f.NextWake()
	require.True(t, ok)
	require.Equal(t, start.Add(15*time.Minute), wake)
	require.Equal(t, Result{}, f.Tick(wake.Add(-1)))
	recent := req(t, f.Tick(wake))
	require.Equal(t, start.Add(-15*time.Minute).Unix(), int64(*recent.Filters[0].Since))
}

// T11: after a lost connection events are read again from before the loss.
func TestTrapT11_ReadAgainFromBeforeTheLoss(t *testing.T) {
	f := New(defaults())
	f.Lost(time.Time{}) // the first attempt failed
	live := req(t, f.Connected(start))
	page := req(t, f.Receive(start, eose(live.Sub)))
	require.Nil(t, page.Filters[0].Since)
	f.Receive(start, wire.Message{Type: wire.TypeEOSE, Sub: page.Sub, Hint: wire.HintFinish})
	lost := start.Add(3 * time.Minute)
	f.Lost(lost)
	f.Lost(time.Time{}) // attempts in between
	later := lost.Add(10 * time.Hour)
	live = req(t, f.Connected(later))
	page = req(t, f.Receive(later, eose(live.Sub)))
	require.Equal(t, lost.Add(-15*time.Minute).Unix(), int64(*page.Filters[0].Since))
}

func TestRefusedAndSilent(t *testing.T) {
	connected := func() (*Feed, string, string) {
		f := New(defaults())
		live := req(t, f.Connected(start)).Sub
		return f, live, req(t, f.Receive(start, eose(live))).Sub
	}
	for _, closed := range []int{0, 1} {
		f, live, page := connected()
		r := f.Receive(start, wire.Message{Type: wire.TypeClosed, Sub: []string{live, page}[closed], Text: "error: lag"})
		require.ErrorIs(t, r.Err, ErrEnded)
		require.ErrorContains(t, r.Err, "lag")
		require.NoError(t, f.Receive(start, wire.Message{Type: wire.TypeClosed, Sub: "old"}).Err)
	}
	f, _, page := connected()
	require.ErrorIs(t, f.Tick(start.Add(30*time.Second)).Err, ErrSilent)
	for i := range 20 { // slow messages
		require.NoError(t, f.Receive(start.Add(time.Duration(i)*20*time.Second), msg(page, event(i, 1621, start))).Err)
	}
	require.ErrorIs(t, f.Tick(start.Add(5*time.Minute)).Err, ErrSilent)
	f = New(defaults())
	f.Connected(start)
	require.ErrorIs(t, f.Tick(start.Add(30*time.Second)).Err, ErrSilent, "the subscription is not answered")

	f, _, page = connected()
	f.Receive(start, wire.Message{Type: wire.TypeNotice, Text: "could not connect to database"})
	require.ErrorIs(t, f.Receive(start, eose(page)).Err, ErrEnded, "a NOTICE without events is no answer")

	f, _, page = connected()
	var err error
	for i := 0; err == nil; i++ {
		require.LessOrEqual(t, i, 5_000)
		err = f.Receive(start, msg(page, event(i, 1621, start))).Err
	}
	require.ErrorIs(t, err, ErrEndless)
}

// world is a relay with a page cap that cuts connections, and the results.
type world struct {
	rng    *rand.Rand
	now    time.Time
	stored []*nostr.Event
	got    map[string]bool
	cap    int
	lines  []string // output of the feed
}

// answer returns the relay's answer to a page.
func (w *world) answer(q wire.Request) []wire.Message {
	var out []wire.Message
	m := filters.Compile(q.Filters)
	for _, ev := range slices.SortedStableFunc(slices.Values(w.stored), func(a, b *nostr.Event) int { return int(b.CreatedAt - a.CreatedAt) }) {
		if m.Match(ev) && len(out) < min(w.cap, q.Filters[0].Limit) {
			out = append(out, msg(q.Sub, ev))
		}
	}
	return append(out, eose(q.Sub))
}

func (w *world) publish() *nostr.Event {
	ev := event(len(w.stored), 1621, w.now.Add(-time.Duration(w.rng.IntN(600))*time.Second))
	w.stored = append(w.stored, ev)
	return ev
}

// With any number of lost connections, all stored events arrive, and the past is not read forever.
// The output of the feed equals the recorded one.
func TestEverythingComes(t *testing.T) {
	sums := goldentest.NewSums(t, "testdata/worlds.sums")
	for seed := range uint64(20) {
		w := &world{rng: rand.New(rand.NewPCG(seed, 11)), now: start, got: make(map[string]bool), cap: 20}
		for i := range 300 {
			w.stored = append(w.stored, event(i, 1621, start.Add(-time.Duration(i)*time.Hour)))
		}
		f := New(defaults())
		for range 40 {
			w.connection(t, f, w.rng.IntN(120))
			require.LessOrEqual(t, len(f.spans), maxSpans)
			w.now = w.now.Add(time.Duration(w.rng.IntN(7200)) * time.Second)
			for range w.rng.IntN(3) {
				w.publish()
			}
		}
		require.True(t, f.Complete(), "cut after every few pages, it got nowhere")
		w.connection(t, f, 10_000)
		for _, ev := range w.stored {
			require.True(t, w.got[ev.ID], "seed %d: event of %s", seed, ev.CreatedAt.Time())
		}
		sums.Equal(t, fmt.Sprint("world", seed), w.lines)
	}
}

// connection runs for a number of messages.
func (w *world) connection(t *testing.T, f *Feed, messages int) {
	t.Helper()
	say := (&told{feed: f}).tellAll
	r := f.Connected(w.now)
	w.lines = append(w.lines, say(r)...)
	live := req(t, r).Sub
	queue := []wire.Message{eose(live)}
	alive := time.Time{}
	for range messages {
		if len(queue) == 0 {
			break
		}
		m := queue[0]
		queue = queue[1:]
		w.now = w.now.Add(100 * time.Millisecond)
		alive = w.now
		r := f.Receive(w.now, m)
		w.lines = append(w.lines, say(r)...)
		require.NoError(t, r.Err)
		if !r.Event.IsZero() {
			w.got[r.Event.ID.String()] = true
		}
		for _, q := range r.Send {
			if q.Type == wire.TypeReq {
				queue = append(queue, w.answer(q)...)
			}
		}
		if w.rng.IntN(50) == 0 {
			queue = append(queue, msg(live, w.publish()))
		}
	}
	f.Lost(alive)
	w.lines = append(w.lines, say(Result{})...)
}
