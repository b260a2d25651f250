package sync_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/nbd-wtf/go-nostr"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/nip34"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// Relays of an announcement beyond the limits are ignored and counted.
func TestTrapD7_ListedBeyondTheBoundIsCounted(t *testing.T) {
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		owner := relaytest.NewCheapKey("owner")
		ev := owner.Hosted(at(time.Hour), "repo", us)
		for i := range nip34.MaxListed + 4 {
			ev.Tags = append(ev.Tags,
				nostr.Tag{"relays", fmt.Sprintf("wss://r%d.example", i)},
				nostr.Tag{"clone", fmt.Sprintf("https://c%d.example/r.git", i)})
		}
		for i := range nip34.MaxMaintainers + 3 {
			ev.Tags = append(ev.Tags, nostr.Tag{"maintainers", fmt.Sprintf("%064x", i+1)})
		}
		owner.Sign(ev)
		r := &rig{t: t, store: memstore.New()}
		r.save(ev)
		r = start(t, net, r.store, relaysync.Config{})
		defer r.stop()
		after(time.Minute)
		require.Len(t, r.manager.Status().Relays, 15, "and ourselves")
		dropped := r.manager.Status().Events.Dropped
		require.Equal(t, uint64(nip34.MaxListed+5-16), dropped["relays_listed"])
		require.Equal(t, uint64(5), dropped["clones_listed"])
		require.Equal(t, uint64(3), dropped["maintainers_listed"])
	})
}
