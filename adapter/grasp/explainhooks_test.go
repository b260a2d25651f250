package grasp_test

import (
	"fmt"
	"testing"

	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/adapter/control"
	"github.com/graspsync/graspsync/adapter/grasp"
	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// explained returns the explanation of an event.
func (r *rig) explained(ev *nostr.Event) control.Explanation {
	r.t.Helper()
	x, err := r.server.Explain(r.t.Context(), ev.ID)
	require.NoError(r.t, err)
	return x
}

// The explanation of an event from a relay that a hook refused did not include the message of the
// hook.
func TestExplainHookThatRefusesRelays(t *testing.T) {
	racetest.Foreign(t, "khatru broadcasts with one while a subscriber leaves")
	bad := relaytest.NewKey("bad")
	other, us := unstarted(t), unstarted(t)
	us.start() // to have an address
	us.stop()
	other.start()
	defer other.stop()
	var banned ban
	banned.add(bad)
	us.configure = func(relay *khatru.Relay, cfg *grasp.Config) {
		follow(other)(relay, cfg)
		relay.RejectEvent = append(relay.RejectEvent, banned.hook)
	}
	us.start()
	defer us.stop()
	theirs := other.publishRepo(bad, us)
	us.eventually("it was refused", func() bool { return us.explained(theirs[0]).Is == "rejected" })
	x := us.explained(theirs[0])
	require.Contains(t, x.Answer[0], "refused by a hook of the relay")
	require.Contains(t, x.Answer[0], "banned")
	require.Contains(t, x.String(), fmt.Sprintf("It came from ws://%s", other.addr))
}
