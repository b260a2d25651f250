package sync_test

import (
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/racetest"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/wire"
)

// hundred publishes a hundred issues of the repository of hosted on a relay.
func hundred(a *relaytest.Relay) (issues []*nostr.Event) {
	owner := relaytest.NewCheapKey("owner")
	for i := range 100 {
		issues = append(issues, owner.Issue(at(time.Duration(i)*time.Minute+3*time.Hour), owner.Ref("repo"), fmt.Sprint("issue ", i)))
	}
	a.Publish(issues...)
	return issues
}

func (r *rig) hasAll(events []*nostr.Event) bool {
	for _, ev := range events {
		if !r.has(ev) {
			return false
		}
	}
	return true
}

// The server behind one connection hangs: it answers pings and no requests, and a new connection
// would work. The connection was kept forever and counted as healthy.
func TestConnectionThatHangs(t *testing.T) {
	racetest.Amounts(t)
	for name, hangs := range map[string]func(req wire.Request, since time.Duration) bool{
		"at the first NEG-OPEN": func(req wire.Request, _ time.Duration) bool { return req.Type == wire.TypeNegOpen },
		"at the first REQ":      func(req wire.Request, _ time.Duration) bool { return req.Type == wire.TypeReq },
		"after an hour":         func(_ wire.Request, since time.Duration) bool { return since > time.Hour },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				net := relaytest.NewNetwork()
				begin, hung := time.Now(), new(atomic.Bool)
				a := net.Add("wss://a.example", relaytest.Behavior{Handle: func(c *relaytest.ConnScript, req wire.Request) bool {
					if c.Conn() == 1 && hangs(req, time.Since(begin)) {
						hung.Store(true)
					}
					return c.Conn() == 1 && hung.Load()
				}})
				issues := hundred(a)
				r, _ := hosted(t, net, relaysync.Config{}, "a.example")
				defer r.stop()
				switch name {
				case "at the first REQ":
					after(20 * time.Minute)
					require.True(t, r.hasAll(issues))
				case "at the first NEG-OPEN": // the relay may have no history
					after(5 * time.Hour)
					require.True(t, r.hasAll(issues))
				}
				after(30 * time.Hour) // includes a pass
				require.True(t, r.hasAll(issues))
				s := r.relay("wss://a.example")
				require.Equal(t, uint64(2), s.Connects)
				require.Equal(t, "live", s.Phase)
				require.Zero(t, s.Failures)
			})
		})
	}
}

// A relay that never answers some form of historic request, none at all, or only a few per hour
// still delivers live events. These were lost for hours each day, because its connections counted
// as hanging and the relay as dead.
func TestWhatIsNotAnsweredIsNoHangingConnection(t *testing.T) {
	racetest.Amounts(t)
	tagged := func(tag string) func(req wire.Request) bool {
		return func(req wire.Request) bool {
			return slices.ContainsFunc(req.Filters, func(f nostr.Filter) bool { return len(f.Tags[tag]) > 0 })
		}
	}
	for name, silent := range map[string]func(req wire.Request) bool{
		"#a": tagged("a"), "#q": tagged("q"), "#E": tagged("E"), "history": func(wire.Request) bool { return true },
		"ten an hour": nil,
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				net := relaytest.NewNetwork()
				var asked []time.Time
				a := net.Add("wss://a.example", relaytest.Behavior{Handle: func(_ *relaytest.ConnScript, req wire.Request) bool {
					live := slices.ContainsFunc(req.Filters, func(f nostr.Filter) bool { return f.LimitZero })
					switch {
					case live || req.Type != wire.TypeReq && req.Type != wire.TypeNegOpen:
						return false
					case silent != nil:
						return req.Type == wire.TypeNegOpen || silent(req)
					}
					asked = slices.DeleteFunc(append(asked, time.Now()), func(at time.Time) bool { return time.Since(at) >= time.Hour })
					return len(asked) > 10
				}})
				r, owner := hosted(t, net, relaysync.Config{}, "a.example")
				defer r.stop()
				for i := range 8 { // three passes
					after(10 * time.Hour)
					issue := owner.Issue(nostr.Now(), owner.Ref("repo"), fmt.Sprint(i))
					a.Publish(issue)
					after(time.Minute)
					require.True(t, r.has(issue), i)
				}
				s := r.relay("wss://a.example")
				require.Less(t, s.Failures, 2)
				if name[0] == '#' {
					require.Equal(t, uint64(1), s.Connects)
				}
			})
		})
	}
}
