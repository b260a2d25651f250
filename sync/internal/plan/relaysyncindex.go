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

type relayState struct {
	url       graspsync.RelayURL
	name      string // canonical URL
	host      string
	bootstrap bool
	limits    relaylimits.Requests
	coolUntil time.Time

	listed     listedState
	dial       dialState
	turn       dialTurn
	timer      timerState
	history    historyState
	catchUp    catchUpState
	pending    pendingBatches
	pass       passState
	byID       byIDState
	audit      auditState
	deletions  deletionsState
	live       liveState
	checkpoint checkpointState

	dirty, gone bool
}

func byName(a, b *relayState) int { return strings.Compare(a.name, b.name) }

type passState struct {
	at    time.Time
	dueAt time.Time
}

func (r *relayState) phase() Phase {
	switch {
	case r.dial.connecting:
		return Connecting
	case !r.dial.connected:
		return Disconnected
	case len(r.pending.parked) > 0 || r.pending.gaps > 0 || r.catchUp.missed != 0 && r.live.waitUntil.IsZero():
		return LiveWithGaps
	case r.busy() || len(r.catchUp.queue) > 0 || len(r.byID.known) > 0:
		return Syncing
	}
	return Live
}

func (r *relayState) busy() bool {
	return len(r.history.tiers[mainTier].todo) > 0 || r.pending.runs(func(b *batch) bool { return !b.background() })
}

func (r *relayState) add(it Item) {
	if r.history.add(it) && r.dial.connected { // on connecting, all items become missing
		put(&r.live.missing, it)
	}
}

// remove removes an item from the targets. A batch continues without it, and its subscription stays
// open.
func (r *relayState) remove(it Item) {
	was := r.history.remove(it)
	switch was {
	case 0:
		return
	case inFlight:
		r.pending.without(it)
	}
	if has(r.live.missing, it) {
		drop(&r.live.missing, it)
	} else if r.dial.connected {
		r.live.idle++
	}
}

func (r *relayState) retryBatches() {
	r.pending.unsaved, r.pending.late = 0, false
	r.pending.unparkAll(r)
	r.live.poll.at = [tiers]time.Time{}
}

func (r *relayState) nextWake(now time.Time) (next time.Time) {
	consider := func(t time.Time) {
		if t.After(now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	consider(r.coolUntil)
	consider(r.pass.dueAt)
	r.pending.wakes(consider)
	r.live.wakes(consider)
	return next
}

func (r *relayState) liveRoom() int {
	if r.live.most > 0 {
		return min(r.live.most, r.limits.LiveSubscriptions())
	}
	return r.limits.LiveSubscriptions()
}

type relaySyncIndex struct {
	byURL map[graspsync.RelayURL]*relayState
}
