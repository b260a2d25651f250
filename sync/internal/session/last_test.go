package session

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
	"github.com/graspsync/graspsync/sync/internal/standing"
	"github.com/graspsync/graspsync/sync/wire"
)

func follows(n int) []nostr.Filter { return []nostr.Filter{filters.Live(tagging(fmt.Sprint(n)))} }

// taken answers the last request if it is live.
func taken(s *Session, take func([]Action)) {
	for s.requests.opening != nil && s.requests.opening.kind == reqLive {
		take(s.Receive(start, wire.Message{Type: wire.TypeEOSE, Sub: s.requests.opening.id}))
	}
}

// A subscription of FollowLast takes no place of history and only unneeded live places.
func TestLastComesLast(t *testing.T) {
	s, open, take := narrow(t) // five places, three of them live
	gone := func(actions []Action) (out []plan.LiveID) {
		take(actions)
		for _, a := range only[LiveClosed](actions) {
			require.True(t, a.GaveWay)
			out = append(out, a.Live)
		}
		return out
	}
	for i := range 3 {
		require.Empty(t, gone(s.FollowLast(start, plan.LiveID(i+1), standing.Of(follows(i)...))))
		taken(s, take)
	}
	require.Len(t, open, 3)
	require.Equal(t, []plan.LiveID{4}, gone(s.FollowLast(start, 4, standing.Of(follows(4)...))), "there is no fourth place")
	require.Len(t, open, 3)
	// Live subscriptions take places of history first, and then those of FollowLast.
	for i := range 2 {
		require.Empty(t, gone(s.Follow(start, plan.LiveID(5+i), standing.Of(follows(5+i)...))))
		taken(s, take)
	}
	require.Len(t, open, 5)
	require.Equal(t, []plan.LiveID{3}, gone(s.Follow(start, 7, standing.Of(follows(7)...))), "what was opened last goes first")
	taken(s, take)
	require.Equal(t, []plan.LiveID{2}, gone(s.Fetch(start, batchOf(1, plan.History, tagging("a")))), "history has a place")
	require.Len(t, open, 5)
	var kinds []byte
	for sub := range open {
		kinds = append(kinds, sub[0])
	}
	require.ElementsMatch(t, []byte("llllr"), kinds)
}

// A subscription of FollowLast that had to be split counted as one request, so more requests were
// open than the relay takes.
func TestLastThatIsSplit(t *testing.T) {
	s, open, take := narrow(t)
	s.terms.MaxFilters = 2
	var fs []nostr.Filter
	for i := range 6 {
		fs = append(fs, follows(i)...)
	}
	take(s.FollowLast(start, 1, standing.Of(fs...))) // three parts
	for i := range 4 {
		taken(s, take)
		take(s.Follow(start, plan.LiveID(2+i), standing.Of(follows(10+i)...)))
	}
	taken(s, take)
	require.Len(t, open, 4)
	require.NotContains(t, s.requests.lives.parts, plan.LiveID(1), "all parts go together")
	actions := s.FollowLast(start, 9, standing.Of(fs...))
	take(actions)
	require.Equal(t, plan.LiveID(9), one[LiveClosed](t, actions).Live)
	require.NotContains(t, s.requests.lives.parts, plan.LiveID(9))
}

// If a relay takes fewer requests than declared, subscriptions of FollowLast are closed and history
// continues.
func TestHistoryRefusedForTooMany(t *testing.T) {
	s, open, take := narrow(t)
	for i := range 3 {
		take(s.FollowLast(start, plan.LiveID(i+1), standing.Of(follows(i)...)))
		taken(s, take)
	}
	take(s.Fetch(start, batchOf(1, plan.History, tagging("a"))))
	var page string
	for sub := range open {
		if sub[0] == 'r' {
			page = sub
		}
	}
	delete(open, page)
	actions := s.Receive(start, closed(page, "error: too many subscriptions"))
	take(actions)
	assert.Equal(t, plan.LiveID(3), one[LiveClosed](t, actions).Live)
	taken(s, take)
	require.Len(t, open, 3)
	require.Len(t, s.requests.lives.parts, 2)
	require.Equal(t, 1, s.requests.historic, "it is asked for again at once")
}

// The number of open requests never exceeds the relay's limit, as long as other subscriptions leave
// one place. All of them are open at the end.
func TestLastNeverTakesTooMuch(t *testing.T) {
	gaveWay := 0
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 4))
		c := defaults()
		most := 3 + rnd.IntN(6)
		c.Limits.NoNegentropy, c.Limits.MaxSubscriptions = true, most
		c.Historic = relaylimits.Requests{MaxSubscriptions: most}.Historic()
		c.Limits.MaxFilters = 1 + rnd.IntN(3)
		s := New(c)
		now := start
		open, lives, last := make(map[string]bool), make(map[plan.LiveID]int), make(map[plan.LiveID]bool)
		var waiting []string // REQs without an answer
		take := func(actions []Action) {
			for _, a := range actions {
				switch a := a.(type) {
				case Send:
					if a.Request.Type == wire.TypeReq {
						open[a.Request.Sub] = true
						waiting = append(waiting, a.Request.Sub)
					} else {
						delete(open, a.Request.Sub)
					}
					require.LessOrEqual(t, len(open), most, "seed %d", seed)
				case LiveClosed:
					require.True(t, last[a.Live], "seed %d: %s", seed, a.Reason)
					delete(last, a.Live)
					gaveWay++
				}
			}
		}
		stand := func() (n int) {
			for _, parts := range lives {
				n += parts
			}
			return n
		}
		answer := func() {
			now = now.Add(time.Second)
			if len(waiting) == 0 {
				take(s.Tick(now))
				return
			}
			sub := waiting[0]
			waiting = waiting[1:]
			if open[sub] {
				if sub[0] != 'l' {
					delete(open, sub)
				}
				take(s.Receive(now, wire.Message{Type: wire.TypeEOSE, Sub: sub}))
			}
		}
		var id plan.LiveID
		for n := range plan.BatchID(200) {
			fs := make([]nostr.Filter, 1+rnd.IntN(4))
			for i := range fs {
				fs[i] = follows(rnd.IntN(100))[0]
			}
			parts := (len(fs) + c.Limits.MaxFilters - 1) / c.Limits.MaxFilters
			switch rnd.IntN(6) {
			case 0:
				if stand()+parts < most-1 {
					id++
					lives[id] = parts
					take(s.Follow(now, id, standing.Of(fs...)))
				}
			case 1:
				id++
				last[id] = true
				take(s.FollowLast(now, id, standing.Of(fs...)))
			case 2:
				for l := range lives {
					delete(lives, l)
					take(s.Unfollow(now, l))
					for i := 0; i < 100 && len(s.requests.closing) > 0; i++ { // its place is not free before
						answer()
					}
					break
				}
			case 3:
				for l := range last {
					delete(last, l)
					take(s.Unfollow(now, l))
					break
				}
			case 4:
				take(s.Fetch(now, batchOf(n+1, plan.History, tagging("a"), tagging("b"), tagging("c"))))
			default:
				answer()
			}
		}
		for range 3000 {
			answer()
		}
		require.Len(t, s.requests.lives.parts, len(lives)+len(last))
		require.Empty(t, s.history.batches, "seed %d: history ends", seed)
		require.Empty(t, s.requests.waiting)
		require.Empty(t, s.requests.closing)
		require.Len(t, open, s.requests.subs.reqs())
	}
	require.Greater(t, gaveWay, 1000)
}
