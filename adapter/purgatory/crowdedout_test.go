package purgatoryadapter_test

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync/internal/racetest"
	"github.com/graspsync/graspsync/sync/relaytest"
)

// An event refused because too many maintainers were listed was not judged again when they were
// gone, unless another event of that identifier arrived.
func TestWhoWasCrowdedOutWaitsOnceThereIsRoom(t *testing.T) {
	racetest.Amounts(t)
	for _, answered := range []bool{true, false} { // else only long expired events go
		t.Run(fmt.Sprint("answered ", answered), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t)
				defer r.stop()
				a := r.net.Add("wss://a.example", relaytest.Behavior{})
				for i, k := range crowd(256) {
					a.Publish(here(relaytest.NewCheapKey(fmt.Sprint("free", i)), time.Hour, k))
					if answered {
						a.Publish(elsewhere(k, time.Hour))
					}
				}
				after(23*time.Hour + 10*time.Minute)
				second := relaytest.NewCheapKey("second")
				first, other := elsewhere(helper, time.Hour, owner), elsewhere(second, time.Hour, owner)
				a.Publish(here(owner, time.Hour, helper, second), first, other)
				after(10 * time.Minute)
				require.NotEqual(t, r.waitsFor(first), r.waitsFor(other), "there is room for one")
				after(3 * time.Hour) // too late to revive the crowd
				require.True(t, r.waitsFor(first))
				require.True(t, r.waitsFor(other))
			})
		})
	}
}
