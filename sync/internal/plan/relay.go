package plan

import (
	"slices"
	"strings"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
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

// status is what one relay's item is: todo is the difference
// want - in flight - confirmed, the other two are its terms. An item that a relay
// has no status for is not wanted of it.
type status uint8

const (
	todo status = iota + 1
	inFlight
	confirmed
	statuses // how many there are
)

// relay is what is known of one relay: for each part of the plan what that part keeps of it.
type relay struct {
	url       graspsync.RelayURL
	name      string // its canonical spelling
	bootstrap bool
	limits    Limits
	coolUntil time.Time // rate limited: no new requests before

	claim       claimState
	dial        dialState
	turn        turnState
	timer       timerState
	history     historyState
	catchUp     catchUpState
	batches     batchesState
	pass        passState
	byID        byIDState
	rotation    rotationState
	audit       auditState
	deletions   deletionsState
	live        liveState
	descendants *descendantsState // nil: there are none
	checkpoint  checkpointState

	dirty, gone bool
}

// historyState is the difference for one relay: which items are wanted, and how far each of
// them was fetched.
type historyState struct {
	items    map[Item]status
	todo     map[Item]struct{} // the items with that status, but for those that are parked
	ofKind   [itemKinds]int
	ofStatus [statuses]int
	resume   map[Item]*cursors // where the paging of a todo item had got to
	queue    []group           // todo items as they will be asked for
	parked   []parking
}

// catchUpState is what may have been missed of items that were fetched before.
type catchUpState struct {
	since     nostr.Timestamp // what is newer may have been missed; 0: nothing
	missed    bool            // more was missed than the catch-up under way looks for
	missedAll bool            // and not just of what is opened next
	queue     []group         // parts of the catch-up that have yet to start
	running   int
}

// batchesState is what a relay is being asked for.
type batchesState struct {
	open       map[BatchID]*batch
	background int  // of them, those without which a relay counts as fetched from
	failures   int  // batches that failed in a row
	unsaved    int  // the same, for what they brought could not be saved here
	late       bool // something waits for a while since it could not be
	gaps       int  // batches of this pass that were completed with gaps
}

// passState is where a relay is in the passes over its whole history.
type passState struct {
	at    time.Time // when the last one began
	dueAt time.Time // when the next one is due
}

// auditState is whether a relay is to be audited.
type auditState struct {
	reconciles bool // it was reconciled with
	due        bool
}

// deletionsState is where a relay is in the rotation over the authors whose deletions are
// asked for.
type deletionsState struct {
	at      int
	asked   int       // of the authors, in this pass
	retryAt time.Time // asking for them failed: not before
}

// parking holds items back whose batch failed, so that a relay that fails is not
// asked the same again at once.
type parking struct {
	until   time.Time
	items   []Item
	catchUp bool // they are confirmed; what is parked is a part of a catch-up

	// Of a catch-up, see [group].
	resume *cursors
	since  nostr.Timestamp
}

// group is what a part of a catch-up goes on as.
func (k *parking) group() group { return group{items: k.items, resume: k.resume, since: k.since} }

// byName orders relays.
func byName(a, b *relay) int { return strings.Compare(a.name, b.name) }

func (r *relay) phase() Phase {
	switch {
	case r.dial.connecting:
		return Connecting
	case !r.dial.connected:
		return Disconnected
	case len(r.history.parked) > 0 || r.batches.gaps > 0 || !r.deletions.retryAt.IsZero() || r.catchUp.missed:
		return LiveWithGaps
	case r.busy() || len(r.catchUp.queue) > 0 || r.byID.ids != nil:
		return Syncing
	}
	return Live
}

// busy reports whether the difference is being fetched, or something by name.
func (r *relay) busy() bool {
	return len(r.history.todo) > 0 || len(r.batches.open) > r.batches.background
}

// add makes an item a target.
func (r *relay) add(it Item, kind itemKind) {
	if _, ok := r.history.items[it]; ok {
		return
	}
	r.history.ofKind[kind]++
	r.history.ofStatus[todo]++
	r.history.items[it] = todo
	r.history.todo[it] = struct{}{}
	if r.dial.connected { // else everything will be missing
		r.live.missing[it] = struct{}{}
	}
}

// remove makes an item no target any more. A batch that is fetching it goes on
// without it: by its end the item may be wanted anew, or its number stand for
// something else. What is followed stays as it is for now, see [Plan.dropIdle].
func (r *relay) remove(it Item, kind itemKind) {
	if !r.untarget(it, kind) {
		return
	}
	if _, missing := r.live.missing[it]; missing {
		delete(r.live.missing, it)
	} else if r.dial.connected {
		r.live.idle++
	}
}

// untarget forgets an item and reports whether it was one.
func (r *relay) untarget(it Item, kind itemKind) bool {
	st, ok := r.history.items[it]
	if !ok {
		return false
	}
	r.checkpoint.dirty = r.checkpoint.dirty || st == confirmed
	r.history.ofKind[kind]--
	r.history.ofStatus[st]--
	delete(r.history.items, it)
	r.noTodo(it)
	delete(r.history.resume, it)
	if st == inFlight {
		for _, b := range r.batches.open {
			b.items = slices.DeleteFunc(b.items, func(o Item) bool { return o == it })
		}
	}
	return true
}

// set moves an item that is still a target from one status to another.
func (r *relay) set(it Item, to status) {
	from, ok := r.history.items[it]
	if !ok || from == to {
		return
	}
	r.checkpoint.dirty = r.checkpoint.dirty || from == confirmed || to == confirmed
	r.history.ofStatus[from]--
	r.history.ofStatus[to]++
	r.noTodo(it)
	switch to {
	case todo:
		r.history.todo[it] = struct{}{}
	case confirmed:
		delete(r.history.resume, it)
	}
	r.history.items[it] = to
}

// noTodo takes an item out of todo. A map keeps the room that it once took, and at
// the start everything is todo; so an empty one is replaced.
func (r *relay) noTodo(it Item) {
	if _, ok := r.history.todo[it]; !ok {
		return
	}
	delete(r.history.todo, it)
	if len(r.history.todo) == 0 {
		r.history.todo = make(map[Item]struct{})
	}
}

// park makes items todo, but not before until.
func (r *relay) park(items []Item, until time.Time) {
	for _, it := range items {
		r.set(it, todo)
		r.noTodo(it)
	}
	r.history.parked = append(r.history.parked, parking{until: until, items: items})
}

// unpark lets go what was parked until now.
func (r *relay) unpark(now time.Time) {
	kept := r.history.parked[:0]
	for _, p := range r.history.parked {
		switch {
		case now.Before(p.until):
			kept = append(kept, p)
		case p.catchUp:
			r.catchUp.queue = append(r.catchUp.queue, p.group())
		default:
			for _, it := range p.items {
				if r.history.items[it] == todo {
					r.history.todo[it] = struct{}{}
				}
			}
		}
	}
	r.history.parked = kept
}

// unparkAll lets go everything that is parked.
func (r *relay) unparkAll() {
	for i := range r.history.parked {
		r.history.parked[i].until = time.Time{}
	}
	r.unpark(time.Time{})
}

// catching reports whether a catch-up is not finished.
func (r *relay) catching() bool {
	if r.catchUp.running > 0 || len(r.catchUp.queue) > 0 {
		return true
	}
	for _, p := range r.history.parked {
		if p.catchUp {
			return true
		}
	}
	return false
}

// forget makes every item todo from the start: nothing is confirmed, nothing in
// flight, no paging is resumed.
func (r *relay) forget() {
	clear(r.batches.open)
	r.batches.background = 0
	clear(r.history.resume)
	r.history.queue, r.history.parked = nil, nil
	r.batches.gaps, r.batches.failures = 0, 0
	r.catchUp.since, r.catchUp.queue, r.catchUp.running = 0, nil, 0
	r.catchUp.missed, r.catchUp.missedAll = false, false
	for it := range r.history.items {
		r.set(it, todo)
		r.history.todo[it] = struct{}{}
	}
}
