package sync_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// The announcement and states of a maintainer of a hosted repository are stored, whether or not the
// maintainer's own announcement lists this service, in any order. The maintainer's repository is
// not hosted.
func TestHostsKeepsMaintainers(t *testing.T) {
	alice, bob, mallory := relaytest.NewCheapKey("alice"), relaytest.NewCheapKey("bob"), relaytest.NewCheapKey("mallory")
	for name, host := range map[string]string{"lists us": us, "does not": "elsewhere.example"} {
		t.Run(name, func(t *testing.T) {
			for _, bobFirst := range []bool{false, true} {
				bubble(t, func(t *testing.T) {
					identity, err := nip34.ParseIdentity(us)
					require.NoError(t, err)
					policy := relaysync.NewGRASPPolicy(identity)
					policy.Hosts = func(a *nip34.Announcement) bool { return a.Ref.Owner == alice.PubKey() }
					net := relaytest.NewNetwork()
					relay := net.Add("wss://a.example", relaytest.Behavior{})
					r := start(t, net, memstore.New(), relaysync.Config{
						Policy: policy, Bootstrap: []graspsync.RelayURL{relayURL(t, "wss://a.example")},
					})
					defer r.stop()
					with := func(key *relaytest.Key, other *relaytest.Key, hosts ...string) *nostr.Event {
						e := key.Hosted(at(time.Hour), "repo", hosts...)
						e.Tags = append(e.Tags, nostr.Tag{"maintainers", other.Hex()})
						key.Sign(e)
						return e
					}
					of := []*nostr.Event{with(alice, bob, us, "a.example"), with(bob, alice, host)}
					state := bob.State(at(time.Minute), "repo", map[string]string{"refs/heads/main": strings.Repeat("a", 40)}, "main")
					foreign := mallory.Hosted(at(time.Hour), "repo", us)
					if bobFirst {
						slices.Reverse(of)
					}
					for _, e := range append([]*nostr.Event{foreign, state}, of...) {
						relay.Publish(e)
						after(time.Minute)
					}
					for _, e := range append(of, state) {
						require.True(t, r.has(e), "kind %d", e.Kind)
					}
					require.False(t, r.has(foreign))
					v, err := r.manager.Judge(t.Context(), eventtest.Of(foreign))
					require.NoError(t, err)
					require.Equal(t, "blocked: this service does not host this repository", v.Reason)
					refs, err := r.manager.RepoRefs(t.Context())
					require.NoError(t, err)
					require.Equal(t, []graspsync.RepoRef{alice.Ref("repo")}, refs)
				})
			}
		})
	}
}
