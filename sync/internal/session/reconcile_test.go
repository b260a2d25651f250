package session

import (
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

// P26: a set that is too large for one reconciliation is fetched by pages.
func TestPromiseP26_TooLarge(t *testing.T) {
	for _, most := range []int{-1, 100, 400} {
		w := honest(t, negTooLarge, 500, spaced(1_000, time.Hour), nil)
		w.negMax = most
		w.hold(3)
		d, b := w.fetchAll(plan.History, tagging("x"))
		assert.Equal(t, plan.Complete, d.Result)
		assert.Zero(t, w.missing(b))
		assert.Equal(t, 1, w.sent[wire.TypeNegOpen])
		assert.Less(t, w.sent[wire.TypeReq], 10)
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
	assert.Less(t, w.sent[wire.TypeReq], 100)

	w = honest(t, offersNeg, 500, spaced(301, time.Second), nil)
	w.hidden[w.events[7].ID] = true
	d, b := w.fetchAll(plan.History, tagging("x"))
	assert.Equal(t, []graspsync.EventID{eventID(7)}, d.Report.Unserved)
	assert.Equal(t, 1, w.missing(b))
	assert.Equal(t, 3, w.sent[wire.TypeReq], "two chunks, and one more try")
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

// P26: a session has 120 s. Its ids are fetched, and the rest by pages.
func TestPromiseP26_SessionsHaveADeadline(t *testing.T) {
	events := spaced(6_000, time.Second)
	s, r := reconciling(t)
	s.cfg.NegIDs = 200_000
	s.queries[1].neg = negentropy.NewSession(setOf(), negentropy.Limits{FrameSize: 4096})
	_, err := s.queries[1].neg.Open()
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
	require.Equal(t, wire.TypeReq, rest[0].Request.Type)
	require.Empty(t, rest[0].Request.Filters[0].IDs)
}
