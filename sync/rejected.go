package sync

import (
	"container/list"
	"encoding/binary"
	"sync"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/sync/internal/shares"
)

const (
	maxRelayTab = 1<<16 - 1 // relays told apart in memory
	// linksPerEntry is how many dependencies an event has on average at most. A deletion
	// may have thousands; most events have one or two.
	linksPerEntry = 16

	noTime nostr.Timestamp = -1 // of an event of which only the id is known
)

// rejected remembers verified events that the Store does not have, or no longer
// has: what the policy rejected, what waits for something, what there was no room for,
// what was superseded or deleted. Ids that were only claimed never get here: a forged copy must not shadow
// the real event.
//
// What waits is kept whole while there is room, what was rejected for a moment;
// the id, the time and what the event depended on are kept for days. When that
// arrives, whole events are judged again, and the others are forgotten and asked for
// again. It is bounded; the oldest go first.
//
// Of an event that was accepted once and of which there may be other versions it is
// remembered that it was: should these be deleted, it counts again.
//
// What there was no room for is kept whole as long as that can be: it is judged again
// and again, until there is. Where only the id is left it counts as known for a while,
// longer each time, so that whoever brings more of it than is looked at in the time of a
// batch keeps nobody from what lies behind it.
type rejected struct {
	keepFor  time.Duration // an id; read-only
	wholeFor time.Duration // a rejected event; read-only

	mu sync.Mutex
	// guarded by mu
	most   int
	seq    uint64
	links  int       // dependencies of all entries, at most linksPerEntry times most
	places uint64    // given out
	order  list.List // of *remembered, oldest first
	owners shares.Shares[*remembered]
	byID   map[graspsync.EventID]*list.Element
	byDep  map[depKey]*depLink
	wait   holding // what waits
	fresh  holding // what was rejected a moment ago
	later  holding // what there was no room for, that was judged longest ago first
	relays relayTable
}

// remembered is kept small, there are many.
type remembered struct {
	id        graspsync.EventID
	author    uint64          // the end of the key
	createdAt nostr.Timestamp // noTime if it is not known
	seen      int64           // Unix seconds
	place     uint64          // counts up along the order
	deps      []depLink
	turn      shares.Member[*remembered]
	whole     *list.Element // of *waitingEvent in one of the holdings, nil if only this is left
	kind      int32
	relay     uint16 // in the table
	flags     fate
}

// fate says what is known of an event besides that it is not here.
type fate uint8

const (
	fateAccepted fate = 1 << iota // the policy accepted it once
	_                             // is taken, in what an earlier version has kept
	fateAsked                     // it was forgotten but for the above, and is wanted again
	fateJudged                    // it is being judged again: should we end before that does, it is wanted again

	// fateLater is the bits that count how often there was no room for it when it came,
	// as far as laterTries; 0: it is not for that that it is not here.
	fateLater  fate = laterTries << laterShift
	laterShift      = 5
	laterTries      = 1<<3 - 1
)

// tries is how often there was no room for an event that came.
func (f fate) tries() int { return int(f >> laterShift) }

const (
	// laterFirst is how long the id of an event counts as known for which there was no
	// room, doubling each time that it comes and there is none, up to laterMost: the daily
	// pass brings it at the latest.
	laterFirst = time.Hour
	laterMost  = 20 * time.Hour
	// laterAsks is up to how many times such an event is asked for by its id, within a
	// day, and how often one is kept whole that was held and gave way: else those for which
	// there is no room would take turns for ever. After that it is for the passes to bring it.
	laterAsks = 4
)

// waitingEvent is a whole event.
type waitingEvent struct {
	incoming graspsync.Incoming
	id       graspsync.EventID
	size     int64
	stats    *relayStats // of the relay that brought it, nil if none did
	since    time.Time
	seq      uint64 // of arrival
	entry    *remembered
	in       *holding
	cost     int64 // what it took of the allowance of its relay
	turn     shares.Member[*waitingEvent]
}

// holding is a bounded queue of whole events.
type holding struct {
	queue     list.List // of *waitingEvent, oldest first
	owners    shares.Shares[*waitingEvent]
	bytes     int64
	most      int
	mostBytes int64
}

// full reports whether it holds more than it may.
func (h *holding) full() bool { return h.queue.Len() > h.most || h.bytes > h.mostBytes }

// put holds one more.
func (h *holding) put(w *waitingEvent) {
	w.in = h
	w.entry.whole = h.queue.PushBack(w)
	h.bytes += w.size
	w.turn.Item = w
	// A place weighs as much as the bytes that there are for each.
	h.owners.Add(&w.turn, w.entry.relay, w.size+h.mostBytes/int64(max(1, h.most)))
}

// remove holds one no more.
func (h *holding) remove(w *waitingEvent) {
	h.queue.Remove(w.entry.whole)
	h.bytes -= w.size
	h.owners.Remove(&w.turn)
	w.entry.whole = nil
}

// depLink is one dependency of one event, in the ring of all that have it.
type depLink struct {
	key        depKey
	prev, next *depLink
	of         *remembered
}

func newRejected(most, waiting int, waitingBytes int64, keepFor, wholeFor time.Duration) *rejected {
	r := &rejected{
		keepFor: keepFor, wholeFor: wholeFor,
		most:  max(1, most),
		byID:  make(map[graspsync.EventID]*list.Element),
		byDep: make(map[depKey]*depLink),
		wait:  holding{most: waiting, mostBytes: waitingBytes},
		fresh: holding{most: waiting, mostBytes: waitingBytes / 4},
		later: holding{most: waiting, mostBytes: waitingBytes / 4},
	}
	r.owners.Spare(0, int64(r.most/2)) // what was here is ours to remember, whoever brought it
	return r
}

// relayTable gives relays small numbers. 0 is no relay.
type relayTable struct {
	urls    []graspsync.RelayURL
	numbers map[graspsync.RelayURL]uint16
	free    []uint16 // numbers of relays that were let go of
}

func (t *relayTable) number(u graspsync.RelayURL) uint16 {
	if u.IsZero() {
		return 0
	}
	if n, ok := t.numbers[u]; ok {
		return n
	}
	if last := len(t.free) - 1; last >= 0 {
		n := t.free[last]
		t.free = t.free[:last]
		t.urls[n-1] = u
		put(&t.numbers, u, n)
		return n
	}
	if len(t.urls) >= maxRelayTab {
		return 0
	}
	t.urls = append(t.urls, u)
	n := uint16(len(t.urls)) //nolint:gosec // bounded
	put(&t.numbers, u, n)
	return n
}

// release lets go of a number of which nothing is remembered any more.
func (t *relayTable) release(n uint16) {
	if u := t.url(n); !u.IsZero() {
		delete(t.numbers, u)
		t.urls[n-1] = graspsync.RelayURL{}
		t.free = append(t.free, n)
	}
}

func (t *relayTable) url(n uint16) graspsync.RelayURL {
	if n == 0 || int(n) > len(t.urls) {
		return graspsync.RelayURL{}
	}
	return t.urls[n-1]
}

func shortKey(k graspsync.PubKey) uint64 { return binary.BigEndian.Uint64(k[24:]) }

// note is what is to be remembered of an event.
type note struct {
	incoming graspsync.Incoming
	id       graspsync.EventID
	size     int64
	stats    *relayStats
	deps     []depKey
	flags    fate
	waits    bool  // keep it whole as long as there is room
	fresh    bool  // keep it whole for a moment
	later    bool  // there is no room for it now: keep it whole to be judged again
	tries    int   // with that: how often it gave way before, after which only the id is kept
	cost     int64 // given back to the relay if the event is accepted
}

// dropped counts what bounds took.
type dropped struct{ waiting, fresh, later, remembered int }

// add remembers an event. What it was said to have been once it stays.
func (r *rejected) add(n note) (d dropped) {
	r.mu.Lock()
	defer r.mu.Unlock()
	ev, now := n.incoming.Event, time.Now()
	e := r.entry(n.id, r.relays.number(n.incoming.Source.Relay), now)
	e.createdAt, e.kind = ev.CreatedAt, int32(ev.Kind) //nolint:gosec // a kind that does not fit matches no filter
	if author, err := graspsync.ParsePubKey(ev.PubKey); err == nil {
		e.author = shortKey(author)
	}
	tried := fate(min(max(e.flags.tries(), n.tries)+1, laterTries)) << laterShift //nolint:gosec // three bits
	e.flags = e.flags&^(fateAsked|fateJudged|fateLater) | n.flags
	r.release1(e)
	r.link(e, n.deps)
	if n.later {
		e.flags |= tried
	}
	if n.waits || n.fresh || n.later && n.tries < laterAsks {
		in := &r.wait
		switch {
		case n.fresh:
			in = &r.fresh
		case n.later:
			in = &r.later
		}
		r.seq++
		in.put(&waitingEvent{
			incoming: n.incoming, id: n.id, size: n.size, stats: n.stats, cost: n.cost, since: now, seq: r.seq, entry: e,
		})
	}
	return r.shrink(now)
}

// entry returns the entry of an id as the youngest one, and that of a relay, making it
// if need be.
func (r *rejected) entry(id graspsync.EventID, relay uint16, now time.Time) *remembered {
	el, ok := r.byID[id]
	if !ok {
		e := &remembered{id: id, createdAt: noTime}
		e.turn.Item = e
		el = r.order.PushBack(e)
		r.byID[id] = el
	} else {
		r.order.MoveToBack(el)
	}
	e := entryOf(el)
	e.seen, e.place = now.Unix(), r.nextPlace()
	// A relay keeps its number while there is anything of it.
	if last := r.owners.Remove(&e.turn); last && e.relay != relay {
		r.relays.release(e.relay)
	}
	e.relay = relay
	r.owners.Add(&e.turn, relay, 1)
	return e
}

func (r *rejected) nextPlace() uint64 {
	r.places++
	return r.places - 1
}

func entryOf(el *list.Element) *remembered {
	e, _ := el.Value.(*remembered)
	return e
}

func wholeOf(el *list.Element) *waitingEvent {
	w, _ := el.Value.(*waitingEvent)
	return w
}

// link makes an entry wait for keys.
func (r *rejected) link(e *remembered, keys []depKey) {
	r.links += len(keys) - len(e.deps)
	r.owners.Weigh(&e.turn, 1+int64(len(keys)/linksPerEntry))
	e.deps = make([]depLink, len(keys))
	for i, k := range keys {
		d := &e.deps[i]
		*d = depLink{key: k, of: e}
		if first := r.byDep[k]; first != nil {
			d.prev, d.next = first.prev, first
			first.prev.next, first.prev = d, d
		} else {
			d.prev, d.next = d, d
			r.byDep[k] = d
		}
	}
}

// release1 makes an entry wait for nothing and takes its event from it.
func (r *rejected) release1(e *remembered) *waitingEvent {
	for i := range e.deps {
		d := &e.deps[i]
		switch {
		case d.next == d:
			delete(r.byDep, d.key)
		case r.byDep[d.key] == d:
			r.byDep[d.key] = d.next
		}
		d.prev.next, d.next.prev = d.next, d.prev
	}
	r.links -= len(e.deps)
	r.owners.Weigh(&e.turn, 1)
	e.deps = nil
	return r.unhold(e)
}

// unhold leaves of a whole event only the entry.
func (r *rejected) unhold(e *remembered) *waitingEvent {
	if e.whole == nil {
		return nil
	}
	w := wholeOf(e.whole)
	w.in.remove(w)
	return w
}

func (r *rejected) remove(el *list.Element) {
	e := entryOf(el)
	r.release1(e)
	r.order.Remove(el)
	delete(r.byID, e.id)
	if r.owners.Remove(&e.turn) {
		r.relays.release(e.relay)
	}
}

// shrink keeps the bounds.
func (r *rejected) shrink(now time.Time) (d dropped) {
	for el := r.fresh.queue.Front(); el != nil && now.Sub(wholeOf(el).since) >= r.wholeFor; el = r.fresh.queue.Front() {
		r.unhold(wholeOf(el).entry)
	}
	for r.fresh.full() {
		r.unhold(r.fresh.owners.Next().Item.entry)
		d.fresh++
	}
	for r.wait.full() {
		r.unhold(r.wait.owners.Next().Item.entry)
		d.waiting++
	}
	for r.later.full() {
		r.unhold(r.later.owners.Next().Item.entry)
		d.later++
	}
	for el := r.order.Front(); el != nil && r.old(entryOf(el), now); el = r.order.Front() {
		r.remove(el)
	}
	for r.order.Len() > r.most || r.links > linksPerEntry*r.most {
		last := r.owners.Next().Item
		// Of what nothing depends on, and a relay has more of than its share, what was
		// there first stays: a pass over all of it, in the same order each time, would
		// find nothing if the oldest went.
		if e := entryOf(r.order.Back()); r.order.Len() > r.most && e.relay == last.relay && len(e.deps) == 0 && e.flags&^fateLater == 0 && e.relay != 0 {
			last = e
		}
		r.remove(r.byID[last.id])
		d.remembered++
	}
	return d
}

func (r *rejected) old(e *remembered, now time.Time) bool {
	return now.Unix()-e.seen > int64(r.keepFor/time.Second)
}

// due reports whether an event is to be looked at again, or asked for, for which there
// was no room. One that is whole is judged again as it is.
func (r *rejected) due(e *remembered, now time.Time) bool {
	tries := e.flags.tries()
	return tries > 0 && e.whole == nil && now.Unix()-e.seen >= int64(backoff.Doubled(laterFirst, laterMost, tries)/time.Second)
}

// get returns the entry of an id, nil if there is none.
func (r *rejected) get(id graspsync.EventID) *remembered {
	el, ok := r.byID[id]
	if !ok || r.old(entryOf(el), time.Now()) {
		return nil
	}
	return entryOf(el)
}
