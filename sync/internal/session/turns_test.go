package session

import (
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/wire"
)

// While announcements are fetched alone, the cursor does not cover the states of the same time. A
// later batch must not treat them as fetched.
func TestAnnouncementsComeBeforeTheRest(t *testing.T) {
	c := defaults()
	c.Limits.NoNegentropy = true
	s := New(c)
	next := func(actions []Action) wire.Request {
		t.Helper()
		sends := only[Send](actions)
		require.Len(t, sends, 2, "CLOSE and REQ")
		return sends[1].Request
	}
	page := func(r wire.Request, kind, from int) wire.Request {
		t.Helper()
		for i := range c.PageLimit {
			n := from + i
			ev := event(n, -time.Duration(n)*time.Second, "")
			ev.Kind = kind
			s.Receive(start, eventMsg(r.Sub, ev))
		}
		return next(s.Receive(start, eose(r.Sub)))
	}
	secondsAgo := func(n int) plan.Cursor { return plan.Cursor(start.Unix() - int64(n)) }
	at := func() plan.Cursor { return s.Cursors()[1][0] }

	r := page(sent(t, s.Fetch(start, batchOf(1, plan.History, filters.Layer1()))), graspsync.KindState, 0)
	require.Equal(t, filters.Layer1().Kinds, r.Filters[0].Kinds)
	r = page(r, graspsync.KindState, 9)
	require.Equal(t, []int{graspsync.KindAnnouncement}, r.Filters[0].Kinds)
	require.Equal(t, secondsAgo(18), at())
	r = page(r, graspsync.KindAnnouncement, 18)
	require.Equal(t, []int{graspsync.KindAnnouncement}, r.Filters[0].Kinds)
	require.Equal(t, secondsAgo(18), at(), "older states are not here")
	r = next(s.Receive(start, eose(r.Sub)))
	require.Equal(t, []int{graspsync.KindState}, r.Filters[0].Kinds)
	require.Equal(t, nostr.Timestamp(secondsAgo(18)), *r.Filters[0].Until)
	r = page(r, graspsync.KindState, 18)
	require.Equal(t, secondsAgo(27), at())
	require.Equal(t, []int{graspsync.KindState}, r.Filters[0].Kinds)
}
