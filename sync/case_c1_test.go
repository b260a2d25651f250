package sync_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/wire"
)

// closesLive returns a relay that accepts each live subscription and closes it later with a reason.
func closesLive(after time.Duration, words string) relaytest.Behavior {
	var b relaytest.Behavior
	b.Handle = func(c *relaytest.ConnScript, req wire.Request) bool {
		if req.Type == wire.TypeReq && len(req.Filters) > 0 && req.Filters[0].LimitZero {
			time.AfterFunc(after, func() {
				for _, s := range c.Relay().Subscriptions() {
					if s.ID == req.Sub && s.Conn == c.Conn() {
						c.Answer(wire.Request{Type: wire.TypeClose, Sub: req.Sub})
						c.Send(wire.Message{Type: wire.TypeClosed, Sub: req.Sub, Text: words})
					}
				}
			})
		}
		return false
	}
	return b
}

// A relay ends every live subscription after a while and accepts a new one each time. Acceptance
// counts as success, so the wait before the next subscription does not grow.
func TestCaseC1_LiveSubscriptionsThatAreEndedAgainAndAgain(t *testing.T) {
	for name, c := range map[string]struct {
		stands time.Duration
		words  string
		lasts  time.Duration
	}{
		"half an hour": {30 * time.Minute, "error: subscription ended", 48 * time.Hour},
		"no reason":    {30 * time.Minute, "", 24 * time.Hour},
		"restricted":   {30 * time.Minute, "restricted: this session is over", 24 * time.Hour},
		"bad request":  {30 * time.Minute, "invalid: idle for too long", 24 * time.Hour},
		"ten minutes":  {10 * time.Minute, "error: shutting down idle subscription", 24 * time.Hour},
		"five seconds": {5 * time.Second, "error: subscription ended", time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				net := relaytest.NewNetwork()
				a := net.Add("wss://a.example", closesLive(c.stands, c.words))
				r, owner := hosted(t, net, relaysync.Config{}, "a.example")
				defer r.stop()
				after(time.Minute)
				patch := owner.Issue(at(0), owner.Ref("repo"), "followed")
				a.Publish(patch)
				var late []string
				for i := range int(c.lasts / (10 * time.Minute)) {
					ev := owner.Issue(at(0), owner.Ref("repo"), fmt.Sprint("issue ", i))
					if i%2 == 1 { // layer 4
						ev = owner.Comment(at(0), patch, fmt.Sprint("comment ", i))
					}
					a.Publish(ev)
					after(2 * time.Minute)
					if !r.has(ev) {
						late = append(late, fmt.Sprint(i))
					}
					after(8 * time.Minute)
				}
				require.Empty(t, late, "events that were not here after two minutes")
				if c.stands > time.Minute {
					subs := 0
					for _, req := range a.Requests(wire.TypeReq) {
						if req.Filters[0].LimitZero {
							subs++
						}
					}
					require.Less(t, subs, 20*int(c.lasts/c.stands))
				}
			})
		})
	}
}
