package session

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/sync/internal/negentropy"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/wire"
)

// The next query reconciles while the ids of earlier ones are fetched slowly, as long as the ids of
// all fit into the room. Fifty thousand deletions blocked all other queries of a hub.
func TestFoundIDsKeepNoPlaceWithoutNeed(t *testing.T) {
	for room, begun := range map[int]int{0: 5, 2_000: 5, 1_000: 3, 900: 3} { // of five queries with 450 ids each
		c := defaults()
		c.Reconciling, c.IDChunk, c.Historic = 1, 450, 20
		s := New(c)
		queue := s.Fetch(start, batchOf(1, plan.History, tagging("a"), tagging("b"), tagging("c"), tagging("d"), tagging("e")))
		loaded, granted := 0, 0
		for now := start; now.Before(start.Add(20 * time.Second)); now = now.Add(time.Second) {
			for queue = append(queue, s.Tick(now)...); len(queue) > 0; {
				a := queue[0]
				queue = queue[1:]
				switch a := a.(type) {
				case LoadSet:
					loaded++
					s.Room(room)
					queue = append(queue, s.SetLoaded(now, a.Query, setOf(), nil)...)
				case Missing:
					queue = append(queue, s.Checked(now, a.Query, a.IDs, nil, nil)...)
				case Send: // requests by id get no answer
					if r := a.Request; r.Type == wire.TypeNegOpen || r.Type == wire.TypeNegSend {
						reply, err := negentropy.Answer(setOf(spaced(450, time.Second)...), r.Payload, 60_000)
						require.NoError(t, err)
						queue = append(queue, s.Receive(now, wire.Message{Type: wire.TypeNegMsg, Sub: r.Sub, Payload: reply})...)
					}
				}
				granted = max(granted, s.Granted())
			}
		}
		require.Equal(t, begun, loaded, room)
		if room > 0 {
			require.LessOrEqual(t, granted, 2*room)
		}
		s.Abandon(start, 1)
		require.Zero(t, s.Granted())
	}
}
