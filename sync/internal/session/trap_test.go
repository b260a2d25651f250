package session

import (
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/wire"
)

// paging returns a session that fetches events tagging x by pages, and its request.
func paging(t *testing.T) (*Session, wire.Request) {
	t.Helper()
	c := defaults()
	c.Limits.NoNegentropy = true
	s := New(c)
	return s, sent(t, s.Fetch(start, batchOf(1, plan.History, tagging("x"))))
}

// reconciling returns a session that has sent a NEG-OPEN.
func reconciling(t *testing.T, ours ...*nostr.Event) (*Session, wire.Request) {
	t.Helper()
	s := New(defaults())
	q := one[LoadSet](t, s.Fetch(start, batchOf(1, plan.History, tagging("x")))).Query
	r := sent(t, s.SetLoaded(start, q, setOf(ours...), nil))
	require.Equal(t, wire.TypeNegOpen, r.Type)
	return s, r
}

// H4: a NOTICE with the word "negentropy" disabled NIP-77, whatever its subject, and so did one
// time-out within a reconciliation.
func TestTrapH4_NoticeAboutNothing(t *testing.T) {
	s := New(defaults())
	assert.Empty(t, only[Learned](s.Receive(start, notice("negentropy disabled"))))
	assert.Len(t, only[LoadSet](s.Fetch(start, batchOf(1, plan.History, tagging("x")))), 1)
}

func TestTrapH4_SilenceAfterAnAnswer(t *testing.T) {
	s, r := reconciling(t, event(1, 0, "x"))
	// a range with another fingerprint causes another round
	msg := append([]byte{0x61, 0, 0, 1}, make([]byte, 16)...)
	reply := sent(t, s.Receive(start, wire.Message{Type: wire.TypeNegMsg, Sub: r.Sub, Payload: msg}))
	require.Equal(t, wire.TypeNegSend, reply.Type)
	actions := s.Tick(start.Add(30 * time.Second))
	assert.Empty(t, only[Learned](actions))
	assert.Equal(t, wire.TypeReq, only[Send](actions)[1].Request.Type)
	assert.Len(t, only[LoadSet](s.Fetch(start.Add(31*time.Second), batchOf(2, plan.History, tagging("x")))), 1)
}

// H5: until was exclusive, and events of the boundary second were lost.
func TestTrapH5_UntilIsInclusive(t *testing.T) {
	s, r := paging(t)
	s.Receive(start, eventMsg(r.Sub, event(1, -5*time.Second, "x")))
	next := only[Send](s.Receive(start, eose(r.Sub)))[1].Request
	assert.Equal(t, start.Add(-5*time.Second).Unix(), int64(*next.Filters[0].Until))
	actions := s.Receive(start, eventMsg(next.Sub, event(2, -5*time.Second, "x")))
	assert.Len(t, only[Deliver](actions), 1)
}

// H11: a hostile list of ids caused allocations of its claimed size, and a peer that never agreed
// kept a reconciliation running.
func TestTrapH11_HugeCount(t *testing.T) {
	s, r := reconciling(t)
	huge := []byte{0x61, 0, 0, 2, 0xff, 0xff, 0xff, 0xff, 0x7f}
	allocs := testing.AllocsPerRun(1, func() {
		s.Receive(start, wire.Message{Type: wire.TypeNegMsg, Sub: r.Sub, Payload: huge})
	})
	assert.Less(t, allocs, 100.0)
}

func TestTrapH11_NeverConverges(t *testing.T) {
	s, r := reconciling(t, event(1, 0, "x"), event(2, 0, "x"))
	msg := append([]byte{0x61, 0, 0, 1}, make([]byte, 16)...)
	for rounds := 0; ; rounds++ {
		require.LessOrEqual(t, rounds, 64)
		sends := only[Send](s.Receive(start, wire.Message{Type: wire.TypeNegMsg, Sub: r.Sub, Payload: msg}))
		if len(sends) > 1 {
			assert.Equal(t, wire.TypeReq, sends[1].Request.Type)
			return
		}
	}
}

// Ticks repeated without end while an unanswered request and a pause blocked other requests.
func TestNoBusyLoopInCooldown(t *testing.T) {
	s, _ := paging(t)
	s.Fetch(start, batchOf(2, plan.History, tagging("y")))
	s.Receive(start, notice("hello"))
	s.Fetch(start, batchOf(3, plan.History, tagging("z")))
	s.cool(start, "")
	wakes := 0
	for now := start; now.Before(start.Add(70 * time.Second)); wakes++ {
		wake, ok := s.NextWake()
		require.True(t, ok)
		require.True(t, wake.After(now))
		now = wake
		s.Tick(now)
	}
	assert.Less(t, wakes, 10)
}

// A live subscription ended by a rate limit was opened again silently, so its missed events were
// never fetched.
func TestLiveEndedByRateLimitIsReported(t *testing.T) {
	s := New(defaults())
	r := sent(t, s.Follow(start, 7, []nostr.Filter{tagging("x")}))
	s.Receive(start, eose(r.Sub))
	actions := s.Receive(start, closed(r.Sub, "rate-limited: slow down"))
	assert.Equal(t, plan.LiveID(7), one[LiveClosed](t, actions).Live)
	assert.Len(t, only[RateLimited](actions), 1)
}
