package session

import (
	"fmt"
	"math/rand/v2"
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
				assert.LessOrEqual(t, d.Report.Pages, 5, "where too many windows are needed")
				assert.LessOrEqual(t, w.sent[wire.TypeNegOpen], 2*maxWindows)
				t.Logf("%d windows asked for, least %d", w.sent[wire.TypeNegOpen], 2_000/most+1)
			})
		}
	}
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
