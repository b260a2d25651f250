package plan

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
)

// Batches that failed because events could not be saved waited for up to an hour longer after
// saving worked again, as if the relay had failed. Events by id were given up after three such
// failures.
func TestWhatCouldNotBeSavedIsAskedForWhenItCan(t *testing.T) {
	for name, fail := range map[string]func(p *Plan, now time.Time, u graspsync.RelayURL, id BatchID){
		"said of the batch": func(p *Plan, now time.Time, u graspsync.RelayURL, id BatchID) {
			p.Step(now, Done{Relay: u, Epoch: p.relays.byURL[u].dial.epoch, Batch: id, Result: Failed, Unsaved: true})
		},
		"said of all": func(p *Plan, now time.Time, u graspsync.RelayURL, id BatchID) {
			p.Step(now, Saving{Nothing: true})
			p.Step(now, Done{Relay: u, Epoch: p.relays.byURL[u].dial.epoch, Batch: id, Result: Failed})
		},
		"given up on": func(p *Plan, now time.Time, _ graspsync.RelayURL, id BatchID) {
			p.Step(now, Saving{Nothing: true})
			for _, r := range p.relays.byURL {
				r.pending.open[id].deadline = now
			}
			for r := range p.dialer.connected {
				p.markDirty(r)
			}
			p.Step(now, Tick{})
		},
	} {
		t.Run(name, func(t *testing.T) {
			p, u, now := newPlan(defaults()), relayURL(t, "a"), start
			p.Step(now, full(repoRef("x"), []graspsync.RelayURL{u}))
			settle(p, now, u, connect(t, p, now, u))
			effects := p.Step(now, Named{Relay: u, IDs: []graspsync.EventID{rootID(1)}})
			for range 10 {
				var id BatchID
				for _, s := range only[Start](effects) {
					if s.Batch.Kind == NamedIDs {
						id = s.Batch.ID
					}
				}
				require.NotZero(t, id, "it is asked for however often that failed")
				fail(p, now, u, id)
				require.NotNil(t, p.relays.byURL[u].byID.ids)
				require.True(t, p.relays.byURL[u].byID.ids.retryAt.After(now))
				require.Zero(t, p.relays.byURL[u].pending.failures, "that is not the relay's")
				effects = p.Step(now, Saving{})
			}
		})
	}
}
