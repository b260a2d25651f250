package plan

import (
	"maps"
	"slices"
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

// String returns the name of the phase.
func (p Phase) String() string {
	return [...]string{"disconnected", "connecting", "syncing", "live", "live with gaps"}[p]
}

// relayState is the state of one relay: its connection, its confirmed items, and the state of each
// part of the plan.
type relayState struct {
	url       graspsync.RelayURL
	name      string // canonical URL
	host      string
	bootstrap bool
	limits    relaylimits.Requests
	coolUntil time.Time // rate limited: no requests before this time

	listed     listedState
	dial       dialState
	turn       dialTurn
	timer      timerState
	history    historyState
	catchUp    catchUpState
	pending    pendingBatches
	pass       passState
	byID       byIDState
	rotation   rotationState
	audit      auditState
	deletions  deletionsState
	live       liveState
	threads    threadState
	checkpoint checkpointState

	dirty, gone bool
}

func byName(a, b *relayState) int { return strings.Compare(a.name, b.name) }

// passState contains the times of the passes over history.
type passState struct {
	at    time.Time // start of the last pass
	dueAt time.Time // start of the next pass
}

func (r *relayState) phase() Phase {
	switch {
	case r.dial.connecting:
		return Connecting
	case !r.dial.connected:
		return Disconnected
	case len(r.history.parked)+len(r.catchUp.parked) > 0 || r.pending.gaps > 0 || !r.deletions.retryAt.IsZero() || r.catchUp.missed && r.live.waitUntil.IsZero():
		return LiveWithGaps
	case r.busy() || len(r.catchUp.queue) > 0 || r.byID.ids != nil:
		return Syncing
	}
	return Live
}

// busy reports whether history is being fetched.
func (r *relayState) busy() bool {
	return len(r.history.todo) > 0 || len(r.pending.open) > r.pending.background
}

func (r *relayState) add(it Item, kind itemKind) {
	if r.history.add(it, kind) && r.dial.connected { // on connecting, all items become missing
		put(&r.live.missing, it)
	}
}

// remove removes an item from the targets. A batch continues without it, because the item may be
// wanted again or reassigned by the end of the batch. Its subscription stays open until
// [liveState.tooIdle].
func (r *relayState) remove(it Item, kind itemKind) {
	was := r.history.remove(it, kind)
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

func (r *relayState) unpark(now time.Time) {
	r.catchUp.unpark(now)
	r.history.unpark(now)
}

func (r *relayState) unparkAll() {
	r.catchUp.unparkAll()
	r.history.unparkAll()
}

// forget resets all items: nothing is confirmed, in flight or partly fetched.
func (r *relayState) forget() {
	r.pending.forget()
	r.catchUp = catchUpState{}
	r.history.forget()
}

// retryNow ends all waits after failures.
func (r *relayState) retryNow() {
	r.pending.unsaved, r.pending.late = 0, false
	r.unparkAll()
	r.deletions.retryAt, r.rotation.retryAt, r.threads.retryAt = time.Time{}, time.Time{}, time.Time{}
	if r.byID.ids != nil {
		r.byID.ids.retryAt = time.Time{}
	}
	if r.live.poll != nil {
		r.live.poll.at = time.Time{}
	}
}

// nextWake returns the next due time of a connected relay, or zero.
func (r *relayState) nextWake(now time.Time) (next time.Time) {
	consider := func(t time.Time) {
		if t.After(now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	consider(r.coolUntil)
	consider(r.pass.dueAt)
	r.pending.wakes(consider)
	r.history.wakes(consider)
	r.catchUp.wakes(consider)
	consider(r.deletions.retryAt)
	r.byID.wakes(consider)
	consider(r.rotation.retryAt)
	r.live.wakes(consider)
	r.threads.wakes(consider)
	return next
}

func (r *relayState) liveRoom() int {
	most := r.limits.LiveSubscriptions()
	if r.live.most > 0 {
		most = min(most, r.live.most)
	}
	return most
}

// spareRoom returns the number of additional subscriptions that may be open briefly. History lends
// a slot if it has two.
func (r *relayState) spareRoom() int {
	if r.live.most > 0 {
		return 0
	}
	return r.limits.Lent()
}

func (r *relayState) descRoom() int {
	if r.live.unfollowed > 0 {
		return 0
	}
	return max(0, r.liveRoom()-len(r.live.subs))
}

// othersFollowed reports whether layers 1 to 3 are followed completely. Until then layer 4 is only
// requested in rotation.
func (r *relayState) othersFollowed(now time.Time) bool {
	l := &r.live
	return !l.stale && len(l.missing)+len(l.lost)+len(r.live.resting) == 0 && !now.Before(l.retryAt)
}

// liveFull reports whether a consolidation would find no more room.
func (r *relayState) liveFull() bool {
	const share = 16 // full if less than 1/16 of the bytes is left
	most := r.limits.LiveBytes()
	return len(r.live.subs) >= r.liveRoom() || most > 0 && r.live.size() > most-most/share
}

type relaySyncIndex struct {
	byURL     map[graspsync.RelayURL]*relayState
	ordered   []*relayState // by name
	unordered bool          // relays were added or removed since
}

func (k *relaySyncIndex) inOrder() []*relayState {
	if k.unordered {
		k.ordered = slices.SortedFunc(maps.Values(k.byURL), byName)
		k.unordered = false
	}
	return k.ordered
}
