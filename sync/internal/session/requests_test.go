package session

import (
	"fmt"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/plan"
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
		if !ok || s.opening == nil {
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
		take(s.Follow(start, plan.LiveID(i+1), []nostr.Filter{filters.Live(tagging(fmt.Sprint(i)))}))
		opened(s, take)
	}
	assert.Len(t, open, 5, "one live subscription found room, two wait for pages to end")
	// A freed place goes to live subscriptions, not to more history.
	liveSubs := func() (n int) {
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
	assert.Equal(t, 3, liveSubs())
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
	reqs, _, tooLarge := filters.Pack(fs, c.Limits.MaxMessage, c.Limits.MaxFilters)
	require.Len(t, reqs, 1, "it is planned as one")
	require.Empty(t, tooLarge)
	require.Greater(t, filters.Size(fs[0]), c.Limits.MaxMessage/2)
	assert.Equal(t, fs, one[Send](t, s.Follow(start, 1, fs)).Request.Filters)

	// A subscription that exceeds one message is still split.
	c.Limits.MaxMessage = 6000
	s = New(c)
	var n int
	for range 10 {
		for _, a := range only[Send](s.Tick(start.Add(time.Minute))) {
			n += len(a.Request.Filters)
		}
		if n == 0 {
			for _, a := range only[Send](s.Follow(start, 1, fs[:1])) {
				n += len(a.Request.Filters)
			}
		}
	}
	assert.Equal(t, 2, n)
}
