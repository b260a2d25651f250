package plan

import (
	"net/netip"
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

// relay is what is known of one relay.
type relay struct {
	url       graspsync.RelayURL
	name      string // its canonical spelling
	bootstrap bool
	listedBy  int             // repositories that list it, whatever their level
	accounts  map[account]int // whose they are, and how many of each
	servedBy  int             // owners of whom something is served
	since     time.Time       // when there was something of the first of them
	claim     uint64          // its part of what its owners weigh
	lot       uint64          // drawn, for what else is equal
	usefulAt  time.Time       // when it last brought what nobody else had
	address   netip.Prefix    // at which it was found last, with what is counted together with it
	answered  bool            // it has answered as a relay, in this run or before

	// Life cycle.
	connecting, connected bool
	epoch                 uint64 // of the last dial; what comes from an earlier one is ignored
	line                  *line  // in which it waits to be dialed, nil if in none
	place, cost           uint64 // its place there, and what of a turn it takes
	order, came           uint64 // puts those of one place in order
	lineIndex, tableIndex int
	waitsSince            time.Time
	young                 bool // dialed a moment ago
	good                  bool // it is known to work: dialed before others
	refusals              int  // attempts in a row that we refused
	failed                bool // the last attempt did
	connectedAt           time.Time
	retryAt               time.Time
	aliveAt               time.Time // when it was last known alive, zero before the first connection
	absentSince           time.Time // when it was lost, or first not there; zero: it is not, or we hung up
	coolUntil             time.Time // rate limited: no new requests before
	dailyAt               time.Time
	passAt                time.Time // when the last full pass began
	limits                Limits
	unproven              bool                // an attempt or connection, and it never answered
	examples              []graspsync.RepoRef // a few that list it

	// What survives a restart.
	restored  *restored // until the first connection
	mark      time.Time // everything confirmed was complete and durable then
	keptDirty bool      // something else than the mark has changed
	unsettled bool      // of what it sent some was not dealt with at the last Settled

	// What experience taught.
	liveMost   int  // standing subscriptions that it takes; 0: as many as limits say
	noKinds    bool // it refused the filter of kinds without tags
	reconciles bool // it was reconciled with
	resting    []resting

	// The facts about items. todo is the subset of items with that status.
	items    map[Item]status
	todo     map[Item]struct{} // those not parked
	ofKind   [itemKinds]int
	ofStatus [statuses]int
	resume   map[Item]*cursors // where the paging of a todo item had got to
	queue    []group           // todo items as they will be asked for

	batches  map[BatchID]*batch
	behind   int // of them in the background
	parked   []parking
	failures int  // batches that failed in a row
	unsaved  int  // the same, for what they brought could not be saved here
	late     bool // something waits for a while since it could not be
	gaps     int  // batches of this pass that were completed with gaps

	catchSince   nostr.Timestamp // what is newer may have been missed; 0: nothing
	missed       bool            // more was missed than the catch-up under way looks for
	missedAll    bool            // and not just of what is opened next
	catchQueue   []group         // parts of the catch-up that have yet to start
	catchRunning int
	authorsAt    int       // rotation over the authors whose deletions are asked for
	authorsAsked int       // of them, in this pass
	authorsRetry time.Time // asking for them failed: not before

	named      *named    // nil: nothing
	unserved   int       // ids that it announced and did not serve, asked of others since
	unservedAt time.Time // that time
	sweep      sweep
	auditDue   bool

	live liveState
	desc *descendants // nil: there are none

	dirty, gone bool
	wakeAt      time.Time // its timer
	wakeIndex   int       // its place in the heap of timers, from 1; 0: none is set
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
	case r.connecting:
		return Connecting
	case !r.connected:
		return Disconnected
	case len(r.parked) > 0 || r.gaps > 0 || !r.authorsRetry.IsZero() || r.missed:
		return LiveWithGaps
	case r.busy() || len(r.catchQueue) > 0 || r.named != nil:
		return Syncing
	}
	return Live
}

// busy reports whether the difference is being fetched, or something by name.
func (r *relay) busy() bool { return len(r.todo) > 0 || len(r.batches) > r.behind }

// add makes an item a target.
func (r *relay) add(it Item, kind itemKind) {
	if _, ok := r.items[it]; ok {
		return
	}
	r.ofKind[kind]++
	r.ofStatus[todo]++
	r.items[it] = todo
	r.todo[it] = struct{}{}
	if r.connected { // else everything will be missing
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
	} else if r.connected {
		r.live.idle++
	}
}

// untarget forgets an item and reports whether it was one.
func (r *relay) untarget(it Item, kind itemKind) bool {
	st, ok := r.items[it]
	if !ok {
		return false
	}
	r.keptDirty = r.keptDirty || st == confirmed
	r.ofKind[kind]--
	r.ofStatus[st]--
	delete(r.items, it)
	r.noTodo(it)
	delete(r.resume, it)
	if st == inFlight {
		for _, b := range r.batches {
			b.items = slices.DeleteFunc(b.items, func(o Item) bool { return o == it })
		}
	}
	return true
}

// set moves an item that is still a target from one status to another.
func (r *relay) set(it Item, to status) {
	from, ok := r.items[it]
	if !ok || from == to {
		return
	}
	r.keptDirty = r.keptDirty || from == confirmed || to == confirmed
	r.ofStatus[from]--
	r.ofStatus[to]++
	r.noTodo(it)
	switch to {
	case todo:
		r.todo[it] = struct{}{}
	case confirmed:
		delete(r.resume, it)
	}
	r.items[it] = to
}

// noTodo takes an item out of todo. A map keeps the room that it once took, and at
// the start everything is todo; so an empty one is replaced.
func (r *relay) noTodo(it Item) {
	if _, ok := r.todo[it]; !ok {
		return
	}
	delete(r.todo, it)
	if len(r.todo) == 0 {
		r.todo = make(map[Item]struct{})
	}
}

// park makes items todo, but not before until.
func (r *relay) park(items []Item, until time.Time) {
	for _, it := range items {
		r.set(it, todo)
		r.noTodo(it)
	}
	r.parked = append(r.parked, parking{until: until, items: items})
}

// unpark lets go what was parked until now.
func (r *relay) unpark(now time.Time) {
	kept := r.parked[:0]
	for _, p := range r.parked {
		switch {
		case now.Before(p.until):
			kept = append(kept, p)
		case p.catchUp:
			r.catchQueue = append(r.catchQueue, p.group())
		default:
			for _, it := range p.items {
				if r.items[it] == todo {
					r.todo[it] = struct{}{}
				}
			}
		}
	}
	r.parked = kept
}

// unparkAll lets go everything that is parked.
func (r *relay) unparkAll() {
	for i := range r.parked {
		r.parked[i].until = time.Time{}
	}
	r.unpark(time.Time{})
}

// catching reports whether a catch-up is not finished.
func (r *relay) catching() bool {
	if r.catchRunning > 0 || len(r.catchQueue) > 0 {
		return true
	}
	for _, p := range r.parked {
		if p.catchUp {
			return true
		}
	}
	return false
}

// forget makes every item todo from the start: nothing is confirmed, nothing in
// flight, no paging is resumed.
func (r *relay) forget() {
	clear(r.batches)
	r.behind = 0
	clear(r.resume)
	r.queue, r.parked = nil, nil
	r.gaps, r.failures = 0, 0
	r.catchSince, r.catchQueue, r.catchRunning = 0, nil, 0
	r.missed, r.missedAll = false, false
	for it := range r.items {
		r.set(it, todo)
		r.todo[it] = struct{}{}
	}
}
