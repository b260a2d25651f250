package sync_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/wire"
)

// Relays that reconcile, answer REQs by tags, and give nothing for more than so many ids at
// once, or for any: what NIP-77 had found there was never fetched otherwise, and came years
// later, a window of the audit at a time.
func TestNothingForManyIDs(t *testing.T) {
	for _, most := range []int{100, 50, 6, 0} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				time.Sleep(400 * 24 * time.Hour)
				net := relaytest.NewNetwork()
				a := net.Add("wss://a.example", relaytest.Behavior{Handle: func(c *relaytest.ConnScript, req wire.Request) bool {
					for _, f := range req.Filters {
						if req.Type == wire.TypeReq && len(f.IDs) > most {
							c.Send(wire.Message{Type: wire.TypeEOSE, Sub: req.Sub, Size: 20})
							return true
						}
					}
					return false
				}})
				var events []*nostr.Event
				owner := relaytest.NewCheapKey("owner")
				for i := range 2_000 {
					events = append(events, owner.Issue(at(time.Duration(i+3)*time.Hour), owner.Ref("repo"), fmt.Sprint("issue ", i)))
				}
				a.Publish(events...)
				r, _ := hosted(t, net, relaysync.Config{}, "a.example")
				after(2 * time.Hour)
				require.Equal(t, len(events), r.count(events))
				s := r.relay("wss://a.example")
				require.Zero(t, s.Unserved, "it has all that it announces")
				require.Zero(t, s.GapBatches)
				require.Equal(t, most == 0, s.Learned["no_negentropy"] > 0, "of no use where nothing is served by id")
				r.stop()
			})
		})
	}
}

// count is how many of some events are here.
func (r *rig) count(events []*nostr.Event) (n int) {
	r.t.Helper()
	for _, ev := range events {
		if r.has(ev) {
			n++
		}
	}
	return n
}
