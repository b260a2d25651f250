package sync_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/racetest"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// Announcements that name one victim under many paths and ports cause only the connection attempts
// of one relay, and delay no other relay.
func TestPromiseP14_VictimOfAnnouncements(t *testing.T) {
	racetest.Amounts(t)
	bubble(t, func(t *testing.T) {
		net := relaytest.NewNetwork()
		honest := net.Add("wss://honest.example", relaytest.Behavior{})
		r := &rig{t: t, store: memstore.New()}
		owner := relaytest.NewCheapKey("owner")
		r.save(owner.Hosted(at(24*time.Hour), "repo", us, "honest.example"))
		for i := range 10 {
			hosts := []string{us}
			for j := range 15 {
				hosts = append(hosts, fmt.Sprintf("victim.example:%d/p%d", 2000+i, j))
			}
			r.save(relaytest.NewCheapKey(fmt.Sprint("stranger", i)).Hosted(at(24*time.Hour), "repo", hosts...))
		}
		r = start(t, net, r.store, relaysync.Config{})
		defer r.stop()
		issue := owner.Issue(at(time.Hour), owner.Ref("repo"), "x")
		honest.Publish(issue)
		after(30 * time.Second)
		require.True(t, r.has(issue))
		after(24*time.Hour - 30*time.Second)
		dials := len(net.Misdials())
		require.Greater(t, len(r.manager.Status().Relays), 140)
		assert.LessOrEqual(t, dials, 36)
		assert.Greater(t, dials, 20)
		after(48 * time.Hour)
		assert.LessOrEqual(t, len(net.Misdials())-dials, 3)
	})
}
