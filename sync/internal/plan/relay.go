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
	changed  bool // what is confirmed has changed since the last Kept
}

// catchUpState is what may have been missed of items that were fetched before.
type catchUpState struct {
	since     nostr.Timestamp // what is newer may have been missed; 0: nothing
	missed    bool            // more was missed than the catch-up under way looks for
	missedAll bool            // and not just of what is opened next
	queue     []group         // parts of the catch-up that have yet to start
	parked    []parkedGroup   // parts of it that failed
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
	until time.Time
	items []Item
}

// parkedGroup holds a part of a catch-up back that failed.
type parkedGroup struct {
	group
	until time.Time
}

// byName orders relays.
func byName(a, b *relay) int { return strings.Compare(a.name, b.name) }

func (r *relay) phase() Phase {
	switch {
	case r.dial.connecting:
		return Connecting
	case !r.dial.connected:
		return Disconnected
	case len(r.history.parked)+len(r.catchUp.parked) > 0 || r.batches.gaps > 0 || !r.deletions.retryAt.IsZero() || r.catchUp.missed:
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
	if r.history.add(it, kind) && r.dial.connected { // else everything will be missing
		r.live.missing[it] = struct{}{}
	}
}

// remove makes an item no target any more. A batch that is fetching it goes on
// without it: by its end the item may be wanted anew, or its number stand for
// something else. What is followed stays as it is for now, see [live.dropIdle].
func (r *relay) remove(it Item, kind itemKind) {
	was := r.history.remove(it, kind)
	switch was {
	case 0:
		return
	case inFlight:
		r.batches.without(it)
	}
	if _, missing := r.live.missing[it]; missing {
		delete(r.live.missing, it)
	} else if r.dial.connected {
		r.live.idle++
	}
}

// unpark lets go what was parked until now.
func (r *relay) unpark(now time.Time) {
	r.catchUp.unpark(now)
	r.history.unpark(now)
}

// unparkAll lets go everything that is parked.
func (r *relay) unparkAll() {
	r.catchUp.unparkAll()
	r.history.unparkAll()
}

// forget makes every item todo from the start: nothing is confirmed, nothing in
// flight, no paging is resumed.
func (r *relay) forget() {
	r.batches.forget()
	r.catchUp = catchUpState{}
	r.history.forget()
}

// retryNow has asked for at once what waits for a while because it failed.
func (r *relay) retryNow() {
	r.batches.unsaved, r.batches.late = 0, false
	r.unparkAll()
	r.deletions.retryAt, r.rotation.retryAt = time.Time{}, time.Time{}
	if r.descendants != nil {
		r.descendants.retryAt = time.Time{}
	}
	if r.byID.ids != nil {
		r.byID.ids.retryAt = time.Time{}
	}
	if r.live.poll != nil {
		r.live.poll.at = time.Time{}
	}
}

// nextWake returns when the next thing becomes due on a connection; zero: nothing does.
func (r *relay) nextWake(now time.Time) (next time.Time) {
	consider := func(t time.Time) {
		if t.After(now) && (next.IsZero() || t.Before(next)) {
			next = t
		}
	}
	consider(r.coolUntil)
	consider(r.pass.dueAt)
	r.batches.wakes(consider)
	r.history.wakes(consider)
	r.catchUp.wakes(consider)
	consider(r.deletions.retryAt)
	r.byID.wakes(consider)
	consider(r.rotation.retryAt)
	r.live.wakes(consider)
	r.descendants.wakes(consider)
	return next
}

// add makes an item a target, and reports whether it was none.
func (h *historyState) add(it Item, kind itemKind) bool {
	if _, ok := h.items[it]; ok {
		return false
	}
	h.ofKind[kind]++
	h.ofStatus[todo]++
	h.items[it] = todo
	h.todo[it] = struct{}{}
	return true
}

// remove forgets an item and returns the status that it had, 0 if it was no target.
func (h *historyState) remove(it Item, kind itemKind) status {
	st, ok := h.items[it]
	if !ok {
		return 0
	}
	h.changed = h.changed || st == confirmed
	h.ofKind[kind]--
	h.ofStatus[st]--
	delete(h.items, it)
	h.noTodo(it)
	delete(h.resume, it)
	return st
}

// set moves an item that is still a target from one status to another.
func (h *historyState) set(it Item, to status) {
	from, ok := h.items[it]
	if !ok || from == to {
		return
	}
	h.changed = h.changed || from == confirmed || to == confirmed
	h.ofStatus[from]--
	h.ofStatus[to]++
	h.noTodo(it)
	switch to {
	case todo:
		h.todo[it] = struct{}{}
	case confirmed:
		delete(h.resume, it)
	}
	h.items[it] = to
}

// noTodo takes an item out of todo. A map keeps the room that it once took, and at
// the start everything is todo; so an empty one is replaced.
func (h *historyState) noTodo(it Item) {
	if _, ok := h.todo[it]; !ok {
		return
	}
	delete(h.todo, it)
	if len(h.todo) == 0 {
		h.todo = make(map[Item]struct{})
	}
}

// park makes items todo, but not before until.
func (h *historyState) park(items []Item, until time.Time) {
	for _, it := range items {
		h.set(it, todo)
		h.noTodo(it)
	}
	h.parked = append(h.parked, parking{until: until, items: items})
}

// unpark lets go what was parked until now.
func (h *historyState) unpark(now time.Time) {
	kept := h.parked[:0]
	for _, k := range h.parked {
		if now.Before(k.until) {
			kept = append(kept, k)
			continue
		}
		for _, it := range k.items {
			if h.items[it] == todo {
				h.todo[it] = struct{}{}
			}
		}
	}
	h.parked = kept
}

// unparkAll lets go everything that is parked.
func (h *historyState) unparkAll() {
	for i := range h.parked {
		h.parked[i].until = time.Time{}
	}
	h.unpark(time.Time{})
}

// forget makes every item todo from the start.
func (h *historyState) forget() {
	clear(h.resume)
	h.queue, h.parked = nil, nil
	for it := range h.items {
		h.set(it, todo)
		h.todo[it] = struct{}{}
	}
}

// partlyFetched returns what is confirmed and what was fetched in part.
func (h *historyState) partlyFetched() (items []Item) {
	for it, st := range h.items {
		if st == confirmed || st == inFlight || h.resume[it] != nil {
			items = append(items, it)
		}
	}
	return items
}

// wakes names what becomes due on a connection.
func (h *historyState) wakes(consider func(time.Time)) {
	for _, k := range h.parked {
		consider(k.until)
	}
}

// catching reports whether a catch-up is not finished.
func (c *catchUpState) catching() bool { return c.running > 0 || len(c.queue)+len(c.parked) > 0 }

// park holds a part of the catch-up back until then.
func (c *catchUpState) park(g group, until time.Time) {
	c.parked = append(c.parked, parkedGroup{g, until})
}

// unpark queues the parts that were parked until now.
func (c *catchUpState) unpark(now time.Time) {
	kept := c.parked[:0]
	for _, k := range c.parked {
		if now.Before(k.until) {
			kept = append(kept, k)
		} else {
			c.queue = append(c.queue, k.group)
		}
	}
	c.parked = kept
}

// unparkAll queues all parts that are parked.
func (c *catchUpState) unparkAll() {
	for i := range c.parked {
		c.parked[i].until = time.Time{}
	}
	c.unpark(time.Time{})
}

// wakes names what becomes due on a connection.
func (c *catchUpState) wakes(consider func(time.Time)) {
	for _, k := range c.parked {
		consider(k.until)
	}
}

// without takes an item out of the batches that are fetching it.
func (b *batchesState) without(it Item) {
	for _, open := range b.open {
		open.items = slices.DeleteFunc(open.items, func(o Item) bool { return o == it })
	}
}

// forget ends all batches, and forgets how those before them ended.
func (b *batchesState) forget() {
	clear(b.open)
	b.background, b.gaps, b.failures = 0, 0, 0
}

// wakes names what becomes due on a connection.
func (b *batchesState) wakes(consider func(time.Time)) {
	for _, open := range b.open {
		consider(open.deadline)
	}
}

// jumped sets back what depends on a clock that was set back.
func (b *batchesState) jumped(back time.Duration) {
	for _, open := range b.open {
		setBack(back, &open.begun)
	}
}

// jumped sets back since when it looks where a clock was set back, and reports whether it does.
func (c *catchUpState) jumped(back time.Duration) bool {
	if c.since == 0 || back == 0 {
		return false
	}
	c.since -= nostr.Timestamp(back / time.Second)
	c.missedAll = true
	return true
}
