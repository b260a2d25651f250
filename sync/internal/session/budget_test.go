package session

import (
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/wire"
)

// budgeted is a session with a relay that takes pages of 100 events, and the requests that
// it has opened.
func budgeted(t *testing.T) (s *Session, reqs *[]wire.Request, take func([]Action)) {
	t.Helper()
	c := defaults()
	c.Limits.NoNegentropy, c.Limits.MaxSubscriptions, c.Historic, c.PageLimit, c.MaxPage = true, 20, 8, 100, 1_000
	reqs = new([]wire.Request)
	return New(c), reqs, func(actions []Action) {
		for _, a := range only[Send](actions) {
			if a.Request.Type == wire.TypeReq {
				*reqs = append(*reqs, a.Request)
			}
		}
	}
}

func foreignPages(n int) (fs []nostr.Filter) {
	for i := range n {
		fs = append(fs, nostr.Filter{Kinds: []int{i + 1}})
	}
	return fs
}

// No more is asked for at once than may turn out to be of no use: what is on its way is
// read at once, so that what comes live does not wait behind it.
func TestNoMoreIsAskedForThanTheBudget(t *testing.T) {
	s, reqs, take := budgeted(t)
	every := 100 * time.Millisecond
	s.Afford(start, Budget{Now: 250, Full: 1_000, Every: every}, Budget{Now: 1_000, Full: 1_000, Every: every})
	take(s.Fetch(start, batchOf(1, plan.History, foreignPages(4)...)))
	opened(s, take)
	require.Len(t, *reqs, 2, "two pages of 100, the third must wait")
	require.Equal(t, 300, s.Needs(false), "those two are on their way")
	require.Zero(t, s.Needs(true))
	take(s.Fetch(start, batchOf(2, plan.History, tagging("ours"))))
	opened(s, take)
	require.Len(t, *reqs, 3, "what refers to ours has a budget of its own")

	// 50 more are there in five seconds, and that is when it is due.
	at, ok := s.NextWake()
	require.True(t, ok)
	require.Equal(t, start.Add(5*time.Second), at)
	s.Afford(at, Budget{Now: 299, Full: 1_000, Every: every}, Budget{Now: 1_000, Full: 1_000, Every: every})
	take(s.Tick(at))
	require.Len(t, *reqs, 3)
	s.Afford(at, Budget{Now: 300, Full: 1_000, Every: every}, Budget{Now: 1_000, Full: 1_000, Every: every})
	take(s.Tick(at))
	require.Len(t, *reqs, 4)
}

// A request that is larger than all there can be waits for all of it, not for ever.
func TestRequestLargerThanAFullBudget(t *testing.T) {
	s, reqs, take := budgeted(t)
	s.Afford(start, Budget{Now: -20, Full: 50, Every: time.Second}, Budget{})
	take(s.Fetch(start, batchOf(1, plan.History, foreignPages(1)...)))
	require.Empty(t, *reqs)
	at, ok := s.NextWake()
	require.True(t, ok)
	require.Equal(t, start.Add(70*time.Second), at)
	require.Equal(t, 50, s.Needs(false))
	s.Afford(at, Budget{Now: 50, Full: 50, Every: time.Second}, Budget{})
	take(s.Tick(at))
	require.Len(t, *reqs, 1)
}

// What waits for its budget is not overtaken by what is smaller, again and again.
func TestNothingOvertakesWhatWaitsForItsBudget(t *testing.T) {
	s, reqs, take := budgeted(t)
	s.Afford(start, Budget{Now: 50, Full: 1_000, Every: time.Second}, Budget{})
	take(s.Fetch(start, batchOf(1, plan.History, foreignPages(1)...)))
	q := &query{b: &batch{}, filter: nostr.Filter{Kinds: []int{1}}}
	want := map[graspsync.EventID]struct{}{eventID(1): {}}
	s.requests.enqueue(&request{kind: reqIDs, q: q, want: want, asked: 1, filters: filters.ByID([]graspsync.EventID{eventID(1)}, 1)})
	take(s.Tick(start))
	require.Empty(t, *reqs)
	s.Afford(start, Budget{Now: 101, Full: 1_000, Every: time.Second}, Budget{})
	take(s.Tick(start))
	opened(s, take)
	require.Len(t, *reqs, 2)
	assert.Equal(t, 100, (*reqs)[0].Filters[0].Limit, "the page first")
}

// Only what is within what was asked for is looked at on credit.
func TestDeliverSaysWhatWasAskedFor(t *testing.T) {
	s, reqs, take := budgeted(t)
	take(s.Fetch(start, batchOf(1, plan.History, nostr.Filter{Kinds: []int{1}})))
	require.Len(t, *reqs, 1)
	var asked []bool
	for i := range 102 {
		m := eventMsg((*reqs)[0].Sub, event(i, 0, ""))
		for _, d := range only[Deliver](s.Receive(start, m)) {
			asked = append(asked, d.Asked)
			assert.False(t, d.Ours)
		}
	}
	require.Len(t, asked, 102)
	assert.True(t, asked[99])
	assert.False(t, asked[100])
}
