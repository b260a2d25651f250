package plan

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/sync/internal/relaylimits"
)

// Phase is where a relay is in its life cycle. The values are those of the metric
// ngit_sync_relay_connected.
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

// relay is what is known of one relay: for each part of the plan the state that this part keeps.
type relayState struct {
	url       graspsync.RelayURL
	name      string // its canonical spelling
	host      string
	bootstrap bool
	limits    relaylimits.Requests
	coolUntil time.Time // rate limited: no new requests before

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
	threads    *threadState // nil: there are none
	checkpoint checkpointState

	dirty, gone bool
}

// byName orders relays.
func byName(a, b *relayState) int { return strings.Compare(a.name, b.name) }

// passState is where a relay is in the passes over its whole history.
type passState struct {
	at    time.Time // when the last one began
	dueAt time.Time // when the next one is due
}

// phase returns where the relay is in its life cycle.
func (r *relayState) phase() Phase {
	switch {
	case r.dial.connecting:
		return Connecting
	case !r.dial.connected:
		return Disconnected
	case len(r.history.parked)+len(r.catchUp.parked) > 0 || r.pending.gaps > 0 || !r.deletions.retryAt.IsZero() || r.catchUp.missed:
		return LiveWithGaps
	case r.busy() || len(r.catchUp.queue) > 0 || r.byID.ids != nil:
		return Syncing
	}
	return Live
}

// busy reports whether the difference is being fetched, or something by name.
func (r *relayState) busy() bool {
	return r.history.todo.Len() > 0 || len(r.pending.open) > r.pending.background
}

// add makes an item a target.
func (r *relayState) add(it Item, kind itemKind) {
	if r.history.add(it, kind) && r.dial.connected { // else everything will be missing
		r.live.missing.Add(it)
	}
}

// remove makes an item no target any more. A batch that is fetching it goes on
// without it: by its end the item may be wanted anew, or its number stand for
// something else. What is followed stays as it is for now, see [live.dropIdle].
func (r *relayState) remove(it Item, kind itemKind) {
	was := r.history.remove(it, kind)
	switch was {
	case 0:
		return
	case inFlight:
		r.pending.without(it)
	}
	if r.live.missing.Has(it) {
		r.live.missing.Remove(it)
	} else if r.dial.connected {
		r.live.idle++
		r.live.unwanted++
	}
}

// unpark lets go what was parked until now.
func (r *relayState) unpark(now time.Time) {
	r.catchUp.unpark(now)
	r.history.unpark(now)
}

// unparkAll lets go everything that is parked.
func (r *relayState) unparkAll() {
	r.catchUp.unparkAll()
	r.history.unparkAll()
}

// forget makes every item todo from the start: nothing is confirmed, nothing in
// flight, no paging is resumed.
func (r *relayState) forget() {
	r.pending.forget()
	r.catchUp = catchUpState{}
	r.history.forget()
}

// retryNow ends the waits of all that failed.
func (r *relayState) retryNow() {
	r.pending.unsaved, r.pending.late = 0, false
	r.unparkAll()
	r.deletions.retryAt, r.rotation.retryAt = time.Time{}, time.Time{}
	if r.threads != nil {
		r.threads.retryAt = time.Time{}
	}
	if r.byID.ids != nil {
		r.byID.ids.retryAt = time.Time{}
	}
	if r.live.poll != nil {
		r.live.poll.at = time.Time{}
	}
}

// nextWake returns when the next thing becomes due on a connection; zero: nothing does.
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

// liveRoom is how many standing subscriptions the relay takes.
func (r *relayState) liveRoom() int {
	most := r.limits.LiveSubscriptions()
	if r.live.most > 0 {
		most = min(most, r.live.most)
	}
	return most
}

// spareRoom is how many more there may be for a moment: history lends one of its places
// where it has two.
func (r *relayState) spareRoom() int {
	if r.live.most > 0 {
		return 0
	}
	return r.limits.Lent()
}

// descRoom is how many standing subscriptions are left to descendants.
func (r *relayState) descRoom() int {
	if r.live.unfollowed > 0 {
		return 0
	}
	return max(0, r.liveRoom()-len(r.live.subs))
}

// othersFollowed reports whether layers 1 to 3 have all that they take: what is not followed has
// its turn in rotation until then, and as long as the relay refuses a part of them.
func (r *relayState) othersFollowed(now time.Time) bool {
	l := &r.live
	return !l.stale && l.missing.Len()+len(l.lost)+len(r.live.resting) == 0 && !now.Before(l.retryAt)
}

// liveFull reports whether a rebuild would find no more room than there is.
func (r *relayState) liveFull() bool {
	const share = 16 // of it less than this part is left
	most := r.limits.LiveBytes()
	return len(r.live.subs) >= r.liveRoom() || most > 0 && r.live.size() > most-max(filters.RequestOverhead+leastCut*fullFilter/filters.MaxValues, most/share)
}

// known are the relays that are known.
type relaySyncIndex struct {
	byURL     map[graspsync.RelayURL]*relayState
	ordered   []*relayState // by name
	unordered bool          // relays have come or gone since
}

// inOrder returns the relays, ordered by name.
func (k *relaySyncIndex) inOrder() []*relayState {
	if k.unordered {
		k.ordered = slices.SortedFunc(maps.Values(k.byURL), byName)
		k.unordered = false
	}
	return k.ordered
}
