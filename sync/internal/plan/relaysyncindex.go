package plan

import (
	"strings"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
)

// Phase is the life cycle of a relay. The values are those of the metric ngit_sync_relay_connected.
type Phase uint8

// The phases.
const (
	Disconnected Phase = iota
	Connecting
	Syncing
	Live
	LiveWithGaps
)

func (p Phase) String() string {
	return [...]string{"disconnected", "connecting", "syncing", "live", "live with gaps"}[p]
}

type relaySyncIndex map[graspsync.RelayURL]*relayState

type relayState struct {
	url       graspsync.RelayURL
	name      string // canonical URL
	host      string
	bootstrap bool
	limits    relaylimits.Requests
	coolUntil time.Time

	listed     listedState
	dial       dialState
	history    historyState
	catchUp    catchUpState
	pending    pendingSyncIndex
	byID       byIDState
	deletions  deletionsState
	live       liveState
	checkpoint checkpointState

	passAt, passDueAt time.Time
	wakeAt            time.Time // of the next advance; zero: only after an input
	dirty, gone       bool

	reconciles bool // a batch was reconciled
	auditDue   bool
}

func byName(a, b *relayState) int { return strings.Compare(a.name, b.name) }

func (r *relayState) phase() Phase {
	switch {
	case r.dial.connecting:
		return Connecting
	case !r.dial.connected:
		return Disconnected
	case r.pending.waiting() > 0 || r.pending.gaps > 0 || r.catchUp.missed != 0 && r.live.waitUntil.IsZero():
		return LiveWithGaps
	case r.busy() || len(r.catchUp.queue) > 0 || len(r.byID.known) > 0:
		return Syncing
	}
	return Live
}

// busy reports whether history of layers 1 to 3 is missing, or a batch runs.
func (r *relayState) busy() bool {
	return len(r.history.tiers[mainTier].todo) > 0 || r.pending.runs(func(b *batch) bool { return !b.background() })
}

// threadsMayRun reports whether a batch of layer 4 may start: one at a time, after the history of
// layers 1 to 3.
func (r *relayState) threadsMayRun() bool {
	for _, b := range r.pending.open {
		if b.thread {
			return false
		}
	}
	return len(r.history.tiers[mainTier].todo) == 0
}

func (r *relayState) retryBatches() {
	r.pending.failures = 0
	r.pending.unpark()
	r.live.poll.at = [tiers]time.Time{}
}

func (r *relayState) nextWake(now time.Time) (next time.Time) {
	consider := func(t time.Time) {
		if t.After(now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	consider(r.coolUntil)
	consider(r.passDueAt)
	for _, b := range r.pending.open {
		consider(b.Deadline.Add(graceAfterDeadline))
	}
	for _, b := range r.pending.parked {
		consider(b.retryAt)
	}
	r.live.wakes(consider)
	return next
}
