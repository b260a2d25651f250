package session

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/sync/internal/negentropy"
	"github.com/graspsync/graspsync/sync/internal/plan"
	"github.com/graspsync/graspsync/sync/wire"
)

// What a query has found comes as slowly as the relay is asked for it, if it is not for us: the next one reconciles meanwhile, as
// long as all of them have found no more together than one may. Fifty thousand deletions kept all else of a hub from being asked for.
func TestFoundIDsKeepNoPlaceWithoutNeed(t *testing.T) {
	for room, begun := range map[int]int{0: 5, 2_000: 5, 1_000: 3, 900: 3} { // of five, that find 450 each
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
				case Send: // nothing is said to what is asked for by id
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
