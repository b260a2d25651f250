package sync_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/state"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
	"github.com/graspsync/graspsync/sync/wire"
)

// A server with a corrected domain rejected events for another week, because it remembered
// rejections for the wrong domain. Rejections of another identity or another policy version are now
// discarded at the start, and all relays are compared again. With the same identity and version they
// are kept.
func TestRejectionsBelongToTheIdentity(t *testing.T) {
	for name, c := range map[string]struct {
		then    string
		version string
		forgets bool
		takes   bool
	}{
		"the same":              {then: "elsewhere.example,also.example"},
		"in another order":      {then: "also.example,elsewhere.example"},
		"set right":             {then: us, forgets: true, takes: true},
		"one more name":         {then: "elsewhere.example,also.example," + us, forgets: true, takes: true},
		"another policy":        {then: "elsewhere.example,also.example", version: "2", forgets: true},
		"right after a restart": {then: us, version: "", forgets: true, takes: true},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				net, store, kept := relaytest.NewNetwork(), memstore.New(), state.NewMemory()
				a := net.Add("wss://a.example", relaytest.Behavior{})
				owner := relaytest.NewCheapKey("owner")
				ann := owner.Hosted(at(24*time.Hour), "repo", us, "a.example")
				a.Publish(ann)
				cfg := relaysync.Config{State: kept, Bootstrap: []graspsync.RelayURL{relayURL(t, "wss://a.example")}}
				r := startAs(t, "elsewhere.example,also.example", net, net, store, cfg)
				after(10 * time.Minute)
				require.Equal(t, relaysync.IsRejected, r.explained(ann).Is)
				r.stop()
				logs := newCapture()
				cfg.State, cfg.PolicyVersion, cfg.Logger = kept, c.version, logs.logger()
				asked := len(a.Requests(wire.TypeReq)) + len(a.Requests(wire.TypeNegOpen))
				r = startAs(t, c.then, net, net, store, cfg)
				after(5 * time.Minute)
				require.Equal(t, c.takes, r.has(ann))
				require.NotEqual(t, asked, len(a.Requests(wire.TypeReq))+len(a.Requests(wire.TypeNegOpen)))
				require.Equal(t, c.forgets, len(logs.find("rejected events forgotten, because the server's name or policy changed")) == 1)
				r.stop()

				// From now on the state has a fingerprint, also after kill -9.
				logs = newCapture()
				cfg.State, cfg.Logger = copied(t, kept), logs.logger()
				r = startAs(t, c.then, net, net, store, cfg)
				after(time.Minute)
				require.Empty(t, logs.find("rejected events forgotten, because the server's name or policy changed"))
				r.stop()
			})
		})
	}
}
