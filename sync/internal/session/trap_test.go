package session

import (
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/internal/standing"
	"github.com/graspsync/graspsync/sync/wire"
)

// paging returns a session that fetches by pages what tags x, and its request.
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

// H1: what was received was counted after policy, so a page full of events that are
// rejected looked short and ended the walk.
func TestTrapH1_CountedAtTheWire(t *testing.T) {
	s, r := paging(t)
	for n := range 10 {
		ev := event(n, -time.Duration(n)*time.Second, "x")
		ev.Tags[0][0] = "E" // nobody wants them
		assert.Empty(t, only[Deliver](s.Receive(start, eventMsg(r.Sub, ev))))
	}
	actions := s.Receive(start, eose(r.Sub))
	assert.Empty(t, only[Done](actions))
	next := only[Send](actions)[1].Request
	assert.Equal(t, start.Add(-9*time.Second).Unix(), int64(*next.Filters[0].Until))
	assert.Equal(t, 10, one[Done](t, s.Receive(start, eose(next.Sub))).Report.Events)
}

// H4: a NOTICE that contains "negentropy" switched NIP-77 off, whatever it was about;
// so did one time-out in the middle.
func TestTrapH4_NoticeAboutNothing(t *testing.T) {
	s := New(defaults())
	assert.Empty(t, only[Learned](s.Receive(start, notice("negentropy disabled"))))
	assert.Len(t, only[LoadSet](s.Fetch(start, batchOf(1, plan.History, tagging("x")))), 1)
}

func TestTrapH4_SilenceAfterAnAnswer(t *testing.T) {
	s, r := reconciling(t, event(1, 0, "x"))
	// a range that differs by fingerprint: there will be another round
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

// H6: a failed reconciliation returned success with nothing.
func TestTrapH6_FailureIsNoSuccess(t *testing.T) {
	for _, m := range []wire.Message{
		{Type: wire.TypeNegErr, Text: "error: internal"},
		{Type: wire.TypeNegErr, Text: "blocked: too many query results", Max: 10},
		{Type: wire.TypeNegMsg, Payload: []byte{0xff}},
		{Type: wire.TypeNegMsg},
		{Type: wire.TypeClosed, Text: "error: what is this"},
	} {
		s, r := reconciling(t)
		m.Sub = r.Sub
		actions := s.Receive(start, m)
		assert.Empty(t, only[Done](actions))
		sends := only[Send](actions)
		require.NotEmpty(t, sends)
		want := wire.TypeReq // pages
		if m.Max > 0 {
			want = wire.TypeNegOpen // of a part
		}
		assert.Equal(t, want, sends[len(sends)-1].Request.Type)
	}
	s, r := paging(t)
	assert.Equal(t, plan.Failed, one[Done](t, s.Receive(start, closed(r.Sub, "error: no"))).Result)
}

// H7: the batch was registered after its first events had arrived.
func TestTrapH7_RegisteredFirst(t *testing.T) {
	s, r := paging(t)
	d := one[Deliver](t, s.Receive(start, eventMsg(r.Sub, event(1, 0, "x"))))
	assert.Equal(t, plan.BatchID(1), d.Batch)
}

// H11: a hostile list of ids allocated what it said it had; a peer that never agrees
// kept a reconciliation going.
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

// T6: CLOSED ignored, EOSE that never comes: the batch never ended.
func TestTrapT6_EveryBatchEnds(t *testing.T) {
	s, _ := paging(t)
	wake, ok := s.NextWake()
	require.True(t, ok)
	assert.Equal(t, start.Add(2*time.Minute), wake)
	assert.Equal(t, plan.Failed, one[Done](t, s.Tick(wake)).Result)
	s, r := paging(t)
	assert.Len(t, only[Done](s.Receive(start, closed(r.Sub, ""))), 1)
}

// T12: "wait 6 s and look again" decided that a sync is complete. Only EOSE does.
func TestTrapT12_OnlyEOSEIsSuccess(t *testing.T) {
	s, r := paging(t)
	s.Receive(start, eventMsg(r.Sub, event(1, -time.Second, "x")))
	for i := range 29 {
		require.Empty(t, only[Done](s.Tick(start.Add(time.Duration(i)*time.Second))))
	}
	actions := s.Receive(start.Add(29*time.Second), eose(r.Sub))
	last := only[Send](actions)[1].Request
	assert.Equal(t, plan.Complete, one[Done](t, s.Receive(start.Add(29*time.Second), eose(last.Sub))).Result)
}

// Ticks came without end while a request that was not answered and a cool-down held
// up others.
func TestNoBusyLoopInCooldown(t *testing.T) {
	s, _ := paging(t)
	s.Fetch(start, batchOf(2, plan.History, tagging("y")))
	s.Receive(start, notice("hello"))
	s.Fetch(start, batchOf(3, plan.History, tagging("z")))
	s.requests.cool(start, "")
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

// A live subscription ended by a rate limit was opened again without a word, so that
// nobody caught up with what it had missed.
func TestLiveEndedByRateLimitIsReported(t *testing.T) {
	s := New(defaults())
	r := sent(t, s.Follow(start, 7, standing.Of(tagging("x"))))
	s.Receive(start, eose(r.Sub))
	actions := s.Receive(start, closed(r.Sub, "rate-limited: slow down"))
	assert.Equal(t, plan.LiveID(7), one[LiveClosed](t, actions).Live)
	assert.Len(t, only[RateLimited](actions), 1)
}

// A page that came again after a rate limit was counted together with its first
// part: the relay's page size was learned wrong, and full seconds went unnoticed.
func TestRepeatedPageCountsOnce(t *testing.T) {
	s, r := paging(t)
	for again := range 2 {
		for n := range 7 {
			s.Receive(start, eventMsg(r.Sub, event(n, -time.Duration(n)*time.Second, "x")))
		}
		if again == 0 {
			s.Receive(start, closed(r.Sub, "rate-limited: slow down"))
			r = sent(t, s.Tick(start.Add(65*time.Second)))
		}
	}
	s.Receive(start.Add(65*time.Second), eose(r.Sub))
	assert.Equal(t, 7, s.history.pageSize)
}

func TestMethodNames(t *testing.T) {
	assert.Equal(t, []string{"-", "REQ", "NIP-77", "NIP-77+REQ"},
		[]string{Method(0).String(), Pages.String(), Negent.String(), (Pages | Negent).String()})
}
