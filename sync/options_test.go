package sync_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// The first relays are followed. This server counts as the last one here. Further relays are
// counted.
func TestMaxRelaysPerRepo(t *testing.T) {
	for most, c := range map[int]struct{ known, dropped int }{0: {16, 9}, 3: {3, 22}, 20: {20, 5}, 64: {24, 0}} {
		t.Run(fmt.Sprint(most), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				owner := relaytest.NewCheapKey("owner")
				var hosts []string
				for i := range 24 {
					hosts = append(hosts, fmt.Sprintf("r%d.example", i))
				}
				ev := owner.Hosted(at(time.Hour), "repo", append(hosts, us)...)
				r := &rig{t: t, store: memstore.New()}
				r.save(ev)
				r = start(t, relaytest.NewNetwork(), r.store, relaysync.Config{MaxRelaysPerRepo: most})
				defer r.stop()
				after(time.Minute)
				status := r.manager.Status()
				require.Len(t, status.Relays, c.known)
				require.Equal(t, "wss://r0.example", r.relay("wss://r0.example").URL.String())
				require.Equal(t, uint64(c.dropped), status.Events.Dropped["relays_listed"])
			})
		})
	}
}
