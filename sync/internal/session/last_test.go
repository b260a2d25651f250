package session

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
	"github.com/graspsync/graspsync/sync/wire"
)

func follows(n int) []nostr.Filter { return []nostr.Filter{filters.Live(tagging(fmt.Sprint(n)))} }

// The number of open requests never exceeds the relay's limit, as long as other subscriptions leave
// one place. All of them are open at the end.
func TestLastNeverTakesTooMuch(t *testing.T) {
	yielded := 0
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 4))
		c := defaults()
		most := 3 + rnd.IntN(6)
		c.Limits.NoNegentropy, c.Limits.MaxSubscriptions = true, most
		c.Historic = relaylimits.Requests{MaxSubscriptions: most}.Historic()
		c.Limits.MaxFilters = 1 + rnd.IntN(3)
		s := New(c)
		now := start
		open, liveSubs, last := make(map[string]bool), make(map[plan.LiveID]int), make(map[plan.LiveID]bool)
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
					yielded++
				}
			}
		}
		stand := func() (n int) {
			for _, parts := range liveSubs {
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
					liveSubs[id] = parts
					take(s.Follow(now, id, fs))
				}
			case 1:
				id++
				last[id] = true
				take(s.FollowLast(now, id, fs))
			case 2:
				for l := range liveSubs {
					delete(liveSubs, l)
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
		require.Len(t, s.requests.liveSubs.parts, len(liveSubs)+len(last))
		require.Empty(t, s.history.batches, "seed %d: history ends", seed)
		require.Empty(t, s.requests.waiting)
		require.Empty(t, s.requests.closing)
		require.Len(t, open, s.requests.subs.reqs())
	}
	require.Greater(t, yielded, 1000)
}
