package sync_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/racetest"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// A relay may have imported events with wrong signatures without a check. Three such events
// disconnected an otherwise honest relay within a minute of each connection, so it never became
// synced.
func TestStoredBadSignaturesAreToldOnce(t *testing.T) {
	racetest.Amounts(t)
	for name, neg := range map[string]relaytest.NegMode{"NIP-77": relaytest.NegOn, "pages": relaytest.NegErr} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				net := relaytest.NewNetwork()
				a := net.Add("wss://a.example", relaytest.Behavior{Negentropy: neg})
				r, owner := hosted(t, net, relaysync.Config{}, "a.example")
				defer r.stop()
				var bad []*nostr.Event
				for i := range 300 {
					ev := owner.Issue(at(time.Duration(i+1)*time.Hour), owner.Ref("repo"), fmt.Sprint(i))
					if i%100 == 7 {
						ev.Sig = strings.Repeat("ab", 64)
						bad = append(bad, ev)
					}
					a.Publish(ev)
				}
				require.Len(t, bad, 3)
				after(72 * time.Hour)
				s, events := r.relay("wss://a.example"), r.manager.Status().Events
				require.LessOrEqual(t, s.Connects, uint64(2), "it is cut once")
				require.Greater(t, s.UptimeShare, 0.97)
				require.Equal(t, s.Wanted, s.Confirmed)
				require.Equal(t, uint64(3), events.Forged, "each was checked once")
				t.Logf("connected %.3f of the time, %d connects, confirmed %d of %d", s.UptimeShare, s.Connects, s.Confirmed, s.Wanted)

				// A valid copy is still accepted from another relay.
				good := owner.Issue(bad[0].CreatedAt, owner.Ref("repo"), bad[0].Content)
				require.Equal(t, bad[0].ID, good.ID)
				b := net.Add("wss://b.example", relaytest.Behavior{})
				b.Publish(good)
				r.save(owner.Hosted(at(time.Minute), "repo", us, "a.example", "b.example"))
				after(time.Minute)
				require.True(t, r.has(good))
			})
		})
	}
}
