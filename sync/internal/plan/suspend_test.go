package plan

import (
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/graspsync/graspsync"
)

// asleep returns t as the system returns it after a suspension, in which the monotonic clock stood
// still for d.
func asleep(t time.Time, d time.Duration) time.Time {
	(*struct {
		_   uint64
		ext int64
	})(unsafe.Pointer(&t)).ext -= int64(d) //nolint:gosec // there is no other way to have such a time
	return t
}

// A suspension of eight hours counted as a moment, so events that a relay received in that time
// with an older date were found by the daily pass only.
func TestSuspendedMachine(t *testing.T) {
	for slept, resets := range map[time.Duration]int{8 * time.Hour: 1, 0: 0} {
		p, u := newPlan(defaults()), relayURL(t, "a")
		began := time.Now()
		dials := only[Dial](p.Step(began, full(ownedBy(0, "repo"), []graspsync.RelayURL{u})))
		require.Len(t, dials, 1)
		p.Step(began, Connected{Relay: u, Epoch: dials[0].Epoch, Limits: usual})
		lost := began.Add(time.Minute)
		p.Step(lost, Lost{Relay: u, Epoch: dials[0].Epoch, AliveAt: lost, RetryAt: lost.Add(time.Second)})
		later := asleep(lost.Add(time.Second+slept), slept)
		require.Equal(t, time.Second, later.Sub(lost))
		dials = only[Dial](p.Step(later, Tick{}))
		require.Len(t, dials, 1)
		effects := p.Step(later, Connected{Relay: u, Epoch: dials[0].Epoch, Limits: usual})
		assert.Len(t, only[Reset](effects), resets, slept)
	}
}
