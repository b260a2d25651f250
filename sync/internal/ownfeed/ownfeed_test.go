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
