package session

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/negentropy"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/wire"
)

// spaced returns n events with a distance of every seconds.
func spaced(n int, every time.Duration) (events []*nostr.Event) {
	for i := range n {
		events = append(events, event(i, -time.Hour-time.Duration(i)*every, "x"))
	}
	return events
}

// hold stores every n-th event of the relay at our side.
func (w *world) hold(n int) {
	for i, ev := range w.events {
		w.held[ev.ID] = i%n == 0
	}
}

// P26: a set too large for one reconciliation is divided by created_at.
func TestPromiseP26_Windows(t *testing.T) {
	for _, held := range []int{1, 2, 1 << 30} {
		for _, most := range []int{100, 400, 1_900} {
			t.Run(fmt.Sprintf("every %d held, at most %d", held, most), func(t *testing.T) {
				w := honest(t, negTooLarge, 500, spaced(1_999, time.Hour), nil)
				w.negMax = most
				w.hold(held)
				d, b := w.fetchAll(plan.History, tagging("x"))
				assert.Equal(t, plan.Complete, d.Result)
				assert.Zero(t, w.missing(b))
				assert.LessOrEqual(t, d.Report.Pages, 3, "where a window has a round number of events")
				assert.LessOrEqual(t, w.sent[wire.TypeNegOpen], 2*maxWindows)
				t.Logf("%d windows asked for, least %d", w.sent[wire.TypeNegOpen], 2_000/most+1)
			})
		}
	}
}

// Only windows of one second that a relay refuses are fetched by pages.
func TestWindowOfOneSecond(t *testing.T) {
	events := append(crowd(15, 1, 1, 1)[:15], spaced(60, time.Second)[1:]...)
	for i, ev := range events {
		ev.ID, ev.Tags = eventID(i).String(), nostr.Tags{{"e", "x"}}
	}
	f := tagging("x")
	since, until := nostr.Timestamp(start.Add(-2*time.Hour).Unix()), nostr.Timestamp(start.Unix())
	f.Since, f.Until = &since, &until
	w := honest(t, negTooLarge, 500, events, func(c *Config) { c.PageSize = 500 })
	w.negMax = 10
	d, b := w.fetchAll(plan.History, f)
	assert.Equal(t, plan.Complete, d.Result)
	assert.Zero(t, w.missing(b))
	assert.Equal(t, Pages|Negent, d.Report.Method)
	assert.LessOrEqual(t, d.Report.Pages, 2)
}

// P26: if a relay refuses every window as too large, pages are used after a limited number of
// attempts.
func TestPromiseP26_WindowsAreBounded(t *testing.T) {
	w := honest(t, negTooLarge, 500, spaced(1_000, time.Hour), nil)
	w.negMax = -1 // even an empty set
	w.hold(3)
	d, b := w.fetchAll(plan.History, tagging("x"))
	assert.Equal(t, plan.Complete, d.Result)
	assert.Zero(t, w.missing(b))
	assert.LessOrEqual(t, w.sent[wire.TypeNegOpen], 2*maxWindows)
	assert.Less(t, w.sent[wire.TypeReq], 250)
}

// Failed windows have a cursor.
func TestWindowFails(t *testing.T) {
	w := honest(t, negTooLarge, 500, spaced(400, time.Hour), nil)
	w.negMax = 150
	w.refuse = func(r wire.Request) bool {
		oldest := graspsync.EventID{}
		for _, s := range r.Filters[0].IDs {
			id, err := graspsync.ParseEventID(s)
			require.NoError(t, err)
			if number(id) > number(oldest) {
				oldest = id
			}
		}
		if number(oldest) < 200 {
			return false
		}
		w.say(closed(r.Sub, "error: shutting down"))
		return true
	}
	w.hold(5)
	d, b := w.fetchAll(plan.History, tagging("x"))
	require.Equal(t, plan.Failed, d.Result)
	at := int64(d.Cursors[0])
	require.Positive(t, at)
	fetched := 0
	for _, ev := range w.events {
		if int64(ev.CreatedAt) > at {
			fetched++
			require.True(t, b.got[ev.ID] || b.held[ev.ID], "above the cursor")
		}
	}
	require.Greater(t, fetched, 50)
}

// An id that was announced and not served keeps the cursor above its window.
func TestWindowWithUnserved(t *testing.T) {
	for _, fails := range []bool{false, true} {
		w := honest(t, negTooLarge, 500, spaced(400, time.Hour), nil)
		w.negMax = 150
		w.hidden[w.events[30].ID] = true
		w.refuse = func(r wire.Request) bool {
			last := eventID(395).String()
			if fails && slices.Contains(r.Filters[0].IDs, last) {
				w.say(closed(r.Sub, "error: shutting down"))
				return true
			}
			return false
		}
		d, _ := w.fetchAll(plan.History, tagging("x"))
		assert.Equal(t, 1, d.Report.Missing)
		assert.Equal(t, []graspsync.EventID{eventID(30)}, d.Report.Unserved)
		if !fails {
			assert.Equal(t, plan.Gaps, d.Result)
			continue
		}
		assert.Equal(t, plan.Failed, d.Result)
		if at := int64(d.Cursors[0]); at != 0 {
			assert.GreaterOrEqual(t, at, int64(w.events[30].CreatedAt))
		}
	}
}

// P27: ids announced and not served, even at the second request, are reported. The number of
// requests for them is limited.
func TestPromiseP27_UnservedIsReported(t *testing.T) {
	w := honest(t, offersNeg, 500, spaced(6_000, time.Second), nil)
	w.madeUp = true
	for _, ev := range w.events[:5_500] {
		w.hidden[ev.ID] = true
	}
	d, _ := w.fetchAll(plan.History, tagging("x"))
	assert.Equal(t, plan.Gaps, d.Result)
	assert.GreaterOrEqual(t, d.Report.Missing, 5_500)
	assert.Len(t, d.Report.Unserved, 1_000)
	assert.Less(t, w.sent[wire.TypeReq], 50)

	w = honest(t, offersNeg, 500, spaced(301, time.Second), nil)
	w.hidden[w.events[7].ID] = true
	d, b := w.fetchAll(plan.History, tagging("x"))
	assert.Equal(t, []graspsync.EventID{eventID(7)}, d.Report.Unserved)
	assert.Equal(t, 1, w.missing(b))
	assert.Equal(t, 3, w.sent[wire.TypeReq], "two chunks, and one more try")
}

// Ids are requested in chunks of the size that the relay answers.
func TestIDChunkIsLearned(t *testing.T) {
	for _, limit := range []int{3, 20, 100, 249} {
		w := honest(t, offersNeg, limit, spaced(3_001, time.Second), nil)
		d, b := w.fetchAll(plan.History, tagging("x"))
		t.Logf("cap %d: %d requests, %d missing", limit, w.sent[wire.TypeReq], d.Report.Missing)
		require.Equal(t, w.missing(b), d.Report.Missing)
		require.Less(t, w.sent[wire.TypeReq], 2*3_000/min(limit, 5)+100)
		if limit >= 20 {
			require.Zero(t, d.Report.Missing)
		}
	}
}

// Sets with many scattered differences need more rounds than one session has. The found ids are
// fetched, and another session continues.
func TestManyDifferencesConverge(t *testing.T) {
	const n, missing, extra = 100_000, 5_000, 5_000
	rng := rand.New(rand.NewPCG(1, 2))
	item := func() negentropy.Item {
		it := negentropy.Item{CreatedAt: uint64(start.Unix()) - 1 - uint64(rng.IntN(1e7))}
		for i := range it.ID {
			it.ID[i] = byte(rng.Uint32())
		}
		return it
	}
	var ours, theirs []negentropy.Item
	for i := range n {
		it := item()
		if i >= missing {
			ours = append(ours, it)
		}
		theirs = append(theirs, it)
	}
	for range extra {
		ours = append(ours, item())
	}
	c := defaults()
	c.IDChunk, c.NegIDs, c.MaxPage = 250, 200_000, 50_000
	s := New(c)
	peer, set := negentropy.NewSet(theirs), negentropy.NewSet(theirs)
	queue := s.Fetch(start, batchOf(1, plan.History, tagging("x")))
	known := make(map[graspsync.EventID]bool)
	for _, it := range ours {
		known[it.ID] = true
	}
	opened, rounds, fetched := 0, 0, 0
	for len(queue) > 0 {
		a := queue[0]
		queue = queue[1:]
		switch a := a.(type) {
		case LoadSet:
			queue = append(queue, s.SetLoaded(start, a.Query, negentropy.NewSet(ours), nil)...)
		case Missing:
			var need []graspsync.EventID
			for _, id := range a.IDs {
				if !known[id] {
					known[id] = true
					need = append(need, id)
				}
			}
			queue = append(queue, s.Checked(start, a.Query, need, nil, nil)...)
		case Send:
			r := a.Request
			switch r.Type {
			case wire.TypeNegOpen, wire.TypeNegSend:
				rounds++
				if r.Type == wire.TypeNegOpen {
					opened++
					set = peer
					if f := r.Filters[0]; f.Since != nil {
						set = peer.Between(uint64(*f.Since), 1<<60)
					}
				}
				reply, err := negentropy.Answer(set, r.Payload, 60_000)
				require.NoError(t, err)
				queue = append(queue, s.Receive(start, wire.Message{Type: wire.TypeNegMsg, Sub: r.Sub, Payload: reply})...)
			case wire.TypeReq:
				require.NotEmpty(t, r.Filters[0].IDs, "no pages")
				for _, id := range r.Filters[0].IDs {
					fetched++
					ev := event(0, -time.Hour, "x")
					ev.ID = id
					queue = append(queue, s.Receive(start, eventMsg(r.Sub, ev))...)
				}
				queue = append(queue, s.Receive(start, eose(r.Sub))...)
			}
		case Done:
			require.Equal(t, plan.Complete, a.Result)
		}
	}
	t.Logf("%d sessions, %d rounds", opened, rounds)
	require.Equal(t, missing, fetched)
	require.Greater(t, opened, 1)
	require.LessOrEqual(t, opened, 4)
}

// Unserved ids of an incomplete reconciliation are also counted.
func TestSalvageWithUnserved(t *testing.T) {
	w := honest(t, offersNeg, 500, spaced(3_000, time.Second), func(c *Config) { c.NegRounds = 3 })
	w.hidden[w.events[2_990].ID] = true
	w.negFrame = 4096
	d, b := w.fetchAll(plan.History, tagging("x"))
	assert.Equal(t, plan.Gaps, d.Result)
	assert.Equal(t, 1, w.missing(b))
	assert.Greater(t, w.sent[wire.TypeNegOpen], 1)
}

// A reconciliation ends after twice the maximum number of ids. All ids before the rest are then
// fetched, not only the maximum.
func TestSalvageKeepsAllThatWasFound(t *testing.T) {
	for most := 20; most <= 140; most += 20 {
		w := honest(t, offersNeg, 500, spaced(600, time.Second), func(c *Config) { c.NegIDs = most })
		w.negFrame = 4096 // about 120 ids
		d, b := w.fetchAll(plan.History, tagging("x"))
		assert.Equal(t, plan.Complete, d.Result, most)
		assert.Zero(t, w.missing(b), most)
		assert.Greater(t, w.sent[wire.TypeNegOpen]+d.Report.Pages, 1, "it is not one reconciliation: %d", most)
	}
}

// A batch ends at its deadline with all its parts.
func TestExpiryInAWindow(t *testing.T) {
	w := honest(t, negTooLarge, 500, spaced(400, time.Hour), nil)
	w.negMax = 150
	w.refuse = func(wire.Request) bool { return true } // silence
	w.s.cfg.IdleTimeout, w.s.cfg.TotalTimeout = time.Hour, time.Hour
	d, _ := w.fetchAll(plan.History, tagging("x"))
	assert.Equal(t, plan.Failed, d.Result)
	assert.Equal(t, "took too long", d.Report.Err)
}

// A session that the relay lost twice, or that became silent, is not repeated. Its ids are fetched,
// and the rest by pages.
func TestTrapH6_WhatWasFoundIsKept(t *testing.T) {
	events := spaced(300, time.Second)
	s, r := reconciling(t)
	answer := func(payload []byte) wire.Message {
		reply, err := negentropy.Answer(setOf(events...), payload, 4096)
		require.NoError(t, err)
		return wire.Message{Type: wire.TypeNegMsg, Sub: r.Sub, Payload: reply}
	}
	lost := wire.Message{Type: wire.TypeNegErr, Sub: r.Sub, Text: "closed: timeout"}
	r.Payload = sent(t, s.Receive(start, answer(r.Payload))).Payload
	r2 := r
	for range 3 {
		require.Equal(t, wire.TypeNegSend, sent(t, s.Receive(start, lost)).Type)
	}
	again := sent(t, s.Receive(start, lost))
	require.Equal(t, wire.TypeNegOpen, again.Type)
	r2.Sub = again.Sub
	r = r2
	r.Payload = again.Payload
	s.Receive(start, answer(r.Payload))
	actions := s.Tick(start.Add(31 * time.Second))
	m := one[Missing](t, actions)
	require.Greater(t, len(m.IDs), 50)
	actions = s.Checked(start.Add(31*time.Second), m.Query, m.IDs, nil, nil)
	require.NotEmpty(t, only[Send](actions))
	require.NotEmpty(t, only[Send](actions)[0].Request.Filters[0].IDs)
}

// P26: a session has 120 s, and another one continues.
func TestPromiseP26_SessionsHaveADeadline(t *testing.T) {
	events := spaced(6_000, time.Second)
	s, r := reconciling(t)
	s.cfg.NegIDs = 200_000
	s.history.queries[1].neg = negentropy.NewSession(setOf(), negentropy.Limits{FrameSize: 4096})
	_, err := s.history.queries[1].neg.Open()
	require.NoError(t, err)
	now := start
	for now.Before(start.Add(2 * time.Minute)) {
		reply, err := negentropy.Answer(setOf(events...), r.Payload, 4096)
		require.NoError(t, err)
		next := only[Send](s.Receive(now, wire.Message{Type: wire.TypeNegMsg, Sub: r.Sub, Payload: reply}))
		require.Len(t, next, 1)
		require.Equal(t, wire.TypeNegSend, next[0].Request.Type)
		r.Payload = next[0].Request.Payload
		now = now.Add(20 * time.Second)
	}
	wake, ok := s.NextWake()
	require.True(t, ok)
	require.Equal(t, start.Add(2*time.Minute), wake)
	actions := s.Tick(wake)
	m := one[Missing](t, actions)
	require.Greater(t, len(m.IDs), 300)
	require.Empty(t, only[Learned](actions))
	rest := only[Send](s.Checked(wake, m.Query, nil, nil, nil))
	require.Len(t, rest, 1)
	require.Equal(t, wire.TypeNegOpen, rest[0].Request.Type)
	require.NotNil(t, rest[0].Request.Filters[0].Since, "behind what was settled")
}

// After eight requests by id in a row without an event, the other ids are not requested.
func TestBarrenRequests(t *testing.T) {
	q := &query{b: &batch{}, ids: wanted{todo: []graspsync.EventID{eventID(100)}}}
	chunk := func(n int) *request {
		x := &request{want: make(map[graspsync.EventID]struct{}), asked: 2}
		for i := range n {
			x.want[eventID(i)] = struct{}{}
		}
		return x
	}
	for range 7 {
		q.ids.took(chunk(2))
	}
	q.ids.took(chunk(1)) // one event arrived
	for range 7 {
		q.ids.took(chunk(2))
	}
	require.False(t, q.ids.retried)
	require.Len(t, q.ids.todo, 1)
	q.ids.took(chunk(2))
	require.True(t, q.ids.retried)
	require.Empty(t, q.ids.todo)
	require.Contains(t, q.ids.unserved, eventID(100))
}

// If found ids did not arrive, the query has no cursor until the rest has arrived.
func TestHoldOfARest(t *testing.T) {
	for result, hold := range map[plan.Result]int64{plan.Complete: 0, plan.Gaps: noEnd} {
		s := New(defaults())
		b := &batch{parts: make([][]*query, 1), cursors: make([]plan.Cursor, 1)}
		q := &query{id: 1, b: b, filter: tagging("x"), result: result, rest: &rest{window: window{0, 100}}}
		s.history.queries[1] = q
		s.history.idsDone(q)
		require.Equal(t, hold, q.hold)
		require.Nil(t, q.rest)
		require.EqualValues(t, 100, *q.part.filter.Until)
		require.NotNil(t, q.part.walk, "the rest comes by pages")
	}
}
