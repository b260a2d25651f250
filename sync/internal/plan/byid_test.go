package plan

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
)

// A relay that announced a thousand invented ids per batch made two other relays get requests for
// all of them. These used up the room for real ids.
func TestPromiseP37_MadeUpIDs(t *testing.T) {
	p, evil, a := newPlan(defaults()), relayURL(t, "evil"), relayURL(t, "a")
	p.Step(start, full(repoRef("x"), []graspsync.RelayURL{a, evil}))
	settle(p, start, a, connect(t, p, start, a))
	settle(p, start, evil, connect(t, p, start, evil))
	now, n, asked, dropped := start, 0, 0, 0
	for range 24 * 60 {
		now = now.Add(time.Minute)
		ids := make([]graspsync.EventID, 1_000)
		for i := range ids {
			ids[i] = rootID(n)
			n++
		}
		effects := p.Step(now, Unserved{Relay: evil, IDs: ids})
		for _, e := range only[Dropped](effects) {
			dropped += e.Count
		}
		for queue := only[Start](effects); len(queue) > 0; queue = queue[1:] {
			for _, q := range queue[0].Batch.Queries {
				asked += len(q.Filter.IDs)
			}
			queue = append(queue, only[Start](p.Step(now, Done{Relay: a, Epoch: queue[0].Epoch, Batch: queue[0].Batch.ID}))...)
		}
	}
	require.Equal(t, 24*maxUnserved, asked)
	require.Equal(t, n-asked, dropped)
	// A hundred such relays leave half of the room.
	for i := range 100 {
		u := relayURL(t, fmt.Sprint("evil", i))
		p.Step(now, full(repoRef(fmt.Sprint("y", i)), []graspsync.RelayURL{a, u}))
		ids := make([]graspsync.EventID, 1_000)
		for k := range ids {
			ids[k] = rootID(n)
			n++
		}
		p.Step(now, Unserved{Relay: u, IDs: ids})
	}
	require.LessOrEqual(t, len(p.relays[a].byID.known), p.cfg.MaxNamed/2)
}
