package grasp_test

import (
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/fiatjaf/khatru"
	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/adapter/grasp"
	"github.com/graspsync/graspsync/purgatory"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// An expired event whose git data was unavailable stayed out for a week despite a refetch by the
// operator, because its repository was unknown.
func TestRefetchOfWhatWasGivenUp(t *testing.T) {
	there, here := newCommanded(t), newCommanded(t)
	work, commit := there.work()
	owner := relaytest.NewKey("owner")
	url, err := graspsync.ParseRelayURL("ws://" + there.addr)
	require.NoError(t, err)
	here.stop()
	configure := here.configure
	here.configure = func(relay *khatru.Relay, cfg *grasp.Config) {
		configure(relay, cfg)
		cfg.Egress.Allow = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}
		cfg.Sync.Bootstrap = []graspsync.RelayURL{url}
		cfg.Sync.BatchWindow = 100 * time.Millisecond
		cfg.Purgatory.Times.Hold = 8 * time.Second
		cfg.Purgatory.Times.Backoff = time.Second
	}
	announcement := owner.Hosted(nostr.Now()-100, "repo", "ws://"+here.addr, "ws://"+there.addr)
	require.Empty(t, there.publish(announcement,
		owner.State(nostr.Now()-90, "repo", map[string]string{"refs/heads/main": commit}, "main")))
	there.git(work, "push", "-q", owner.CloneURL("ws://"+there.addr, "repo"), "main")
	there.eventually("served", func() bool { return len(there.served()) == 2 })
	require.NoError(t, os.Rename(there.dir, there.dir+".away"))
	here.start()
	here.eventually("given up", func() bool { return here.server.Purgatory().Status().Ended[purgatory.Expired] > 1 })
	require.Empty(t, here.served())
	require.NotRegexp(t, "came from .* at ", here.explained(announcement).String(), "the time is that of giving up")
	require.NoError(t, os.RemoveAll(there.dir))
	require.NoError(t, os.Rename(there.dir+".away", there.dir))
	here.must("refetch", owner.Npub()+"/repo")
	here.eventually("here", func() bool { return len(here.served()) == 2 && here.clonable(owner) })
}
