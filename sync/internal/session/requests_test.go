package session

import (
	"fmt"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
	"github.com/graspsync/graspsync/sync/internal/standing"
	"github.com/graspsync/graspsync/sync/wire"
)

// narrow returns a session with a relay that takes five subscriptions, the open requests, and a
// function that records the requests of actions and checks the limit.
func narrow(t *testing.T) (s *Session, open map[string]wire.Request, take func([]Action)) {
	t.Helper()
	c := defaults()
	c.Limits.NoNegentropy, c.Limits.MaxSubscriptions, c.Historic = true, 5, 4
	s, open = New(c), make(map[string]wire.Request)
	take = func(actions []Action) {
		for _, a := range only[Send](actions) {
			switch a.Request.Type {
			case wire.TypeReq:
				open[a.Request.Sub] = a.Request
			case wire.TypeClose:
				delete(open, a.Request.Sub)
			}
			require.LessOrEqual(t, len(open), 5)
		}
	}
	return s, open, take
}

// opened lets time pass until no sent request blocks others.
func opened(s *Session, take func([]Action)) {
	for range 20 {
		at, ok := s.NextWake()
		if !ok || s.requests.opening == nil {
			return
		}
		take(s.Tick(at))
	}
}

// Live subscriptions and history share the relay's places. Together they exceeded the limit because
// live subscriptions took places reserved for history.
func TestLiveAndHistoryShareRoom(t *testing.T) {
	s, open, take := narrow(t)
	take(s.Fetch(start, batchOf(1, plan.History, tagging("a"), tagging("b"), tagging("c"), tagging("d"), tagging("e"))))
	opened(s, take)
	assert.Len(t, open, 4)
	for i := range 3 {
		take(s.Follow(start, plan.LiveID(i+1), standing.Of(filters.Live(tagging(fmt.Sprint(i))))))
		opened(s, take)
	}
	assert.Len(t, open, 5, "one live subscription found room, two wait for pages to end")
	// A freed place goes to live subscriptions, not to more history.
	lives := func() (n int) {
		for sub := range open {
			if sub[0] == 'l' {
				n++
			}
		}
		return n
	}
	for range 2 {
		for sub := range open {
			if sub[0] == 'r' {
				delete(open, sub)
				take(s.Receive(start, closed(sub, "error: no")))
				break
			}
		}
		opened(s, take)
		assert.Len(t, open, 5)
	}
	assert.Equal(t, 3, lives())
}

// A subscription planned to fill a message stays one request. Filters of more than half a message
// were halved like queries and no longer fit among the others. Then 18 subscriptions planned for a
// relay that takes 20, like nos.lol, became 20, and history was refused for the rest of the day.
func TestFullLiveSubscriptionStaysWhole(t *testing.T) {
	c := defaults()
	c.Limits.MaxMessage = 13_107
	s := New(c)
	long := func(n int) nostr.Filter {
		f := filters.Live(nostr.Filter{Tags: nostr.TagMap{}})
		for i := range n {
			f.Tags["e"] = append(f.Tags["e"], eventID(i).String())
		}
		return f
	}
	fs := []nostr.Filter{long(100), long(52), long(40)}
	reqs, tooLarge := filters.Pack(fs, c.Limits.MaxMessage, c.Limits.MaxFilters)
	require.Len(t, reqs, 1, "it is planned as one")
	require.Empty(t, tooLarge)
	require.Greater(t, filters.Size(fs[0]), c.Limits.MaxMessage/2)
	assert.Equal(t, fs, one[Send](t, s.Follow(start, 1, standing.Of(fs...))).Request.Filters)

	// A subscription that exceeds one message is still split.
	c.Limits.MaxMessage = 6000
	s = New(c)
	var n int
	for range 10 {
		for _, a := range only[Send](s.Tick(start.Add(time.Minute))) {
			n += len(a.Request.Filters)
		}
		if n == 0 {
			for _, a := range only[Send](s.Follow(start, 1, standing.Of(fs[:1]...))) {
				n += len(a.Request.Filters)
			}
		}
	}
	assert.Equal(t, 2, n)
}

// A relay that takes only the live subscriptions still gets one page request at a time and decides.
func TestHistoryIsNotStarved(t *testing.T) {
	s, open, take := narrow(t)
	for i := range 5 {
		take(s.Follow(start, plan.LiveID(i+1), standing.Of(filters.Live(tagging(fmt.Sprint(i))))))
		opened(s, take)
	}
	require.Len(t, open, 5)
	clear(open)
	take(s.Fetch(start, batchOf(1, plan.History, tagging("a"), tagging("b"))))
	opened(s, take)
	assert.Len(t, open, 1)
}

// A query marked for pages is not reconciled.
func TestNoNegentropyForAudits(t *testing.T) {
	s := New(defaults())
	b := batchOf(1, plan.Audit, tagging("x"))
	b.Queries[0].NoNegentropy = true
	assert.Equal(t, wire.TypeReq, sent(t, s.Fetch(start, b)).Type)
}

// Ids that do not arrive are reported, up to a limit.
func TestReportOfUnservedIsBounded(t *testing.T) {
	s, b := New(defaults()), &batch{}
	for i := range 3 {
		q := &query{b: b}
		for k := range 400 {
			q.ids.unserved = append(q.ids.unserved, eventID(1000*i+k))
		}
		s.history.countUnserved(q)
	}
	assert.Len(t, b.report.Unserved, 1_000)
	assert.Equal(t, 1_200, b.report.Missing)
}

// The plan gets the reason for which a subscription ended.
func TestLiveClosedSaysWhy(t *testing.T) {
	s := New(defaults())
	r := sent(t, s.Follow(start, 1, standing.Of(filters.Live(tagging("x")))))
	a := one[LiveClosed](t, s.Receive(start, closed(r.Sub, "ERROR: too many concurrent REQs")))
	assert.Equal(t, wire.RefusalTooManySubs, a.Why)
}

// If the relay has no room for a request, history uses one place less from then on, at least one.
// The open requests show the limit.
func TestNoRoomForOneMore(t *testing.T) {
	for live := range 8 {
		for historic := 1; historic <= 8; historic++ {
			for _, known := range []int{0, 3, 20} {
				c := defaults()
				c.Limits.NoNegentropy, c.Limits.MaxSubscriptions = true, 0
				s := New(c)
				for i := range live {
					r := sent(t, s.Follow(start, plan.LiveID(i+1), standing.Of(filters.Live(tagging("x")))))
					s.Receive(start, eose(r.Sub))
				}
				var last wire.Request
				for i := range historic {
					last = sent(t, s.Fetch(start, batchOf(plan.BatchID(i+1), plan.History, tagging("x"))))
					s.requests.answered(s.requests.subs[last.Sub])
				}
				s.terms.MaxSubscriptions = known
				actions := s.Receive(start, closed(last.Sub, "error: too many concurrent REQs"))
				open := live + historic - 1
				want := max(1, min(8, historic-1))
				if open > 0 && (known == 0 || open < known) {
					require.Equal(t, open, one[Learned](t, actions).Value)
					known = open
				} else {
					require.Empty(t, only[Learned](actions))
				}
				if known > 0 {
					want = max(1, min(want, relaylimits.Requests{MaxSubscriptions: known}.Historic()))
				}
				require.Equal(t, want, s.requests.mostHistoric, "%d live, %d historic", live, historic)
				require.Equal(t, known, s.terms.MaxSubscriptions)
				require.Equal(t, historic == 1, len(only[Done](actions)) == 1)
			}
		}
	}
}

// A subscription in closing may wait for a subscription under bisection, because the bisection
// needs no additional place.
func TestTrialOfWhatReplaces(t *testing.T) {
	c := defaults()
	c.Limits.MaxSubscriptions = 1
	s := New(c)
	old := sent(t, s.Follow(start, 1, standing.Of(filters.Live(tagging("old")))))
	s.Receive(start, eose(old.Sub))
	refused := sent(t, s.Follow(start, 2, standing.Of(filters.Live(tagging("new")))))
	assert.Empty(t, s.Unfollow(start, 1), "it is closed when what replaces it stands")
	probe := sent(t, s.Receive(start, closed(refused.Sub, "invalid: no")))
	assert.Equal(t, "p", probe.Sub[:1])
}

// A relay without room for the first subscription shows no limit for history.
func TestNoRoomForTheFirst(t *testing.T) {
	c := defaults()
	c.Limits.MaxSubscriptions = 0
	s := New(c)
	r := sent(t, s.Follow(start, 1, standing.Of(filters.Live(tagging("x")))))
	actions := s.Receive(start, closed(r.Sub, "error: too many concurrent REQs"))
	assert.Equal(t, wire.RefusalTooManySubs, one[LiveClosed](t, actions).Why)
	assert.Empty(t, only[Learned](actions))
	assert.Equal(t, c.Historic, s.requests.mostHistoric)
}

// The content of a known event is not read. The event counts for its page by the relay's time and
// is delivered as known.
func TestKnownEventCountsForItsPage(t *testing.T) {
	c := defaults()
	c.Limits.NoNegentropy = true
	s := New(c)
	ask := one[Send](t, s.Fetch(start, batchOf(1, plan.History, tagging("a")))).Request
	for i := range c.PageLimit {
		ev := eventtest.Of(event(i, -time.Duration(i)*time.Second, ""))
		got := one[Deliver](t, s.Receive(start, wire.Message{Type: wire.TypeEvent, Sub: ask.Sub, Event: ev, Known: true}))
		assert.True(t, got.Known)
		assert.Equal(t, ev, got.Event)
	}
	next := only[Send](s.Receive(start, wire.Message{Type: wire.TypeEOSE, Sub: ask.Sub}))
	require.NotEmpty(t, next)
	asked := next[len(next)-1].Request.Filters[0]
	require.NotNil(t, asked.Until)
	assert.Equal(t, nostr.Timestamp(start.Unix())-nostr.Timestamp(c.PageLimit-1), *asked.Until)
}

// A known event that was not requested is a strike, as far as its head shows.
func TestKnownEventThatWasNotAskedFor(t *testing.T) {
	c := defaults()
	c.Limits.NoNegentropy = true
	s := New(c)
	f := tagging("a")
	f.Kinds = []int{1621}
	ask := one[Send](t, s.Fetch(start, batchOf(1, plan.History, f))).Request
	of := func(kind int) wire.Message {
		ev := event(kind, -time.Hour, "")
		ev.Kind = kind
		return wire.Message{Type: wire.TypeEvent, Sub: ask.Sub, Known: true, Event: eventtest.Of(ev)}
	}
	assert.Len(t, only[Deliver](s.Receive(start, of(1621))), 1)
	got := s.Receive(start, of(1))
	assert.Empty(t, only[Deliver](got))
	assert.Len(t, only[Strike](got), 1)
}
