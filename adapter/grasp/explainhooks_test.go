package grasp_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/control"
	"github.com/graspsync/graspsync/adapter/grasp"
	khatruadapter "github.com/graspsync/graspsync/adapter/khatru"
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

// An event that a hook of the embedder had refused to a client was explained as "never arrived
// since the start".
func TestExplainHookThatRefusesClients(t *testing.T) {
	r := unstarted(t)
	var banned ban
	r.configure = func(relay *khatru.Relay, _ *grasp.Config) { relay.RejectEvent = append(relay.RejectEvent, banned.hook) }
	r.start()
	defer r.stop()
	good, bad := relaytest.NewKey("good"), relaytest.NewKey("bad")
	banned.add(bad)
	refused, taken := bad.Hosted(nostr.Now()-100, "repo", "ws://"+r.addr), good.Hosted(nostr.Now()-100, "repo", "ws://"+r.addr)
	require.Len(t, r.publish(refused, taken), 1)

	x := r.explained(refused)
	require.Equal(t, "refused", x.Is)
	require.Equal(t, bad.Hex(), x.Event.Event.Author.String())
	require.Contains(t, x.Answer[0], "blocked: banned")
	require.Contains(t, x.String(), "It came from a client, and was judged at ")
	require.Equal(t, "held", r.explained(taken).Is)
	never := bad.Hosted(nostr.Now()-99, "never", "ws://"+r.addr)
	require.Contains(t, r.explained(never).String(), "never arrived since the start")
}

// A refusal by a hook does not affect the explanation of a served event.
func TestExplainHookThatChangesItsMind(t *testing.T) {
	r := unstarted(t)
	refuses := true
	r.configure = func(relay *khatru.Relay, _ *grasp.Config) {
		relay.RejectEvent = append(relay.RejectEvent, func(ctx context.Context, _ *nostr.Event) (bool, string) {
			return refuses && !khatruadapter.IsSynced(ctx), "auth-required: who are you?"
		})
	}
	r.start()
	defer r.stop()
	ann := relaytest.NewKey("owner").Hosted(nostr.Now()-100, "repo", "ws://"+r.addr)
	_, err := r.relay.AddEvent(t.Context(), ann)
	require.ErrorContains(t, err, "auth-required")
	require.Equal(t, "refused", r.explained(ann).Is)
	refuses = false
	_, err = r.relay.AddEvent(t.Context(), ann)
	require.NoError(t, err)
	require.Equal(t, "held", r.explained(ann).Is)
	e, err := graspsync.ParseEvent(ann)
	require.NoError(t, err)
	require.NoError(t, r.server.Sync().Remove(t.Context(), e))
	require.NotEqual(t, "refused", r.explained(ann).Is)
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
