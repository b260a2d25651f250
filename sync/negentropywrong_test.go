package sync_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/racetest"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/wire"
)

// Relays whose NIP-77 is wrong and whose REQs are right: one always reports equal sets, the other's
// index begins two days ago. NIP-77 was trusted permanently: each daily audit found proof, but
// events outside its windows counted as confirmed and never came.
func TestWrongNIP77IsFoundOut(t *testing.T) {
	racetest.Amounts(t)
	for name, handle := range map[string]func(c *relaytest.ConnScript, req wire.Request) bool{
		"same": func(c *relaytest.ConnScript, req wire.Request) bool {
			if req.Type != wire.TypeNegOpen {
				return false
			}
			c.Send(wire.Message{Type: wire.TypeNegMsg, Sub: req.Sub, Payload: []byte{0x61}, Size: 20})
			return true
		},
		"the last two days": func(c *relaytest.ConnScript, req wire.Request) bool {
			first := at(48 * time.Hour)
			if req.Type != wire.TypeNegOpen || req.Filters[0].Since != nil && *req.Filters[0].Since >= first {
				return false
			}
			req.Filters[0].Since = &first
			c.Answer(req)
			return true
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				time.Sleep(2 * 365 * 24 * time.Hour)
				net := relaytest.NewNetwork()
				a := net.Add("wss://a.example", relaytest.Behavior{Handle: handle})
				var events []*nostr.Event
				owner := relaytest.NewCheapKey("owner")
				for i := range 300 {
					events = append(events, owner.Issue(at(time.Duration(i)*29*time.Hour+3*time.Hour), owner.Ref("repo"), fmt.Sprint("issue ", i)))
				}
				a.Publish(events...)
				r, _ := hosted(t, net, relaysync.Config{}, "a.example")
				after(time.Minute)
				for half := 0; r.relay("wss://a.example").Learned["no_negentropy"] == 0; half++ {
					require.Less(t, half, 400, "a day's audit has some of it in one of five")
					after(12 * time.Hour)
				}
				after(time.Minute) // until the audit that found it has ended
				require.Equal(t, len(events), r.count(events))
				require.True(t, r.manager.Status().Synced)
				r.stop()
			})
		})
	}
}
