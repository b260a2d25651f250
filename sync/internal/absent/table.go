package absent

import (
	"cmp"
	"container/list"
	"encoding/binary"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/sync/internal/lazy"
	"github.com/graspsync/graspsync/sync/internal/shares"
)

const (
	// linksPerEntry is how many dependencies an event has on average at most. A deletion
	// may have thousands; most events have one or two.
	linksPerEntry = 16

	noTime nostr.Timestamp = -1 // of an event of which only the id is known
)

// Table remembers verified events that the Store does not have, or no longer
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
type Table struct {
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
	byDep  map[Key]*depLink
	wait   holding // what waits
	fresh  holding // what was rejected a moment ago
	later  holding // what there was no room for, that was judged longest ago first
	relays shares.Relays
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
	whole     *list.Element // of *Whole in one of the holdings, nil if only this is left
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

// Whole is an event that is kept whole.
type Whole struct {
	Incoming graspsync.Incoming
	ID       graspsync.EventID
	Size     int64
	Payer    any // as in the Note
	since    time.Time
	seq      uint64 // of arrival
	entry    *remembered
	in       *holding
	turn     shares.Member[*Whole]
}

// holding is a bounded queue of whole events.
type holding struct {
	queue     list.List // of *Whole, oldest first
	owners    shares.Shares[*Whole]
	bytes     int64
	most      int
	mostBytes int64
}

// full reports whether it holds more than it may.
func (h *holding) full() bool { return h.queue.Len() > h.most || h.bytes > h.mostBytes }

// put holds one more.
func (h *holding) put(w *Whole) {
	w.in = h
	w.entry.whole = h.queue.PushBack(w)
	h.bytes += w.Size
	w.turn.Item = w
	// A place weighs as much as the bytes that there are for each.
	h.owners.Add(&w.turn, w.entry.relay, w.Size+h.mostBytes/int64(max(1, h.most)))
}

// remove holds one no more.
func (h *holding) remove(w *Whole) {
	h.queue.Remove(w.entry.whole)
	h.bytes -= w.Size
	h.owners.Remove(&w.turn)
	w.entry.whole = nil
}

// depLink is one dependency of one event, in the ring of all that have it.
type depLink struct {
	key        Key
	prev, next *depLink
	of         *remembered
}

// Config bounds a table.
type Config struct {
	Most         int           // events remembered
	Waiting      int           // of these, whole: of what waits, and as many of what was rejected, and of what had no room
	WaitingBytes int64         // of what waits whole; a quarter of that for each of the others
	KeepFor      time.Duration // an event is remembered
	WholeFor     time.Duration // what was rejected stays whole
}

// New returns an empty table.
func New(cfg Config) *Table {
	r := &Table{
		keepFor: cfg.KeepFor, wholeFor: cfg.WholeFor,
		most:  max(1, cfg.Most),
		byID:  make(map[graspsync.EventID]*list.Element),
		byDep: make(map[Key]*depLink),
		wait:  holding{most: cfg.Waiting, mostBytes: cfg.WaitingBytes},
		fresh: holding{most: cfg.Waiting, mostBytes: cfg.WaitingBytes / 4},
		later: holding{most: cfg.Waiting, mostBytes: cfg.WaitingBytes / 4},
	}
	r.owners.Spare(0, int64(r.most/2)) // what was here is ours to remember, whoever brought it
	return r
}

func shortKey(k graspsync.PubKey) uint64 { return binary.BigEndian.Uint64(k[24:]) }

// Note is what is to be remembered of an event.
type Note struct {
	Incoming graspsync.Incoming
	ID       graspsync.EventID
	Size     int64
	Payer    any // what the caller wants back with the whole event: nothing here looks at it
	Deps     []Key
	Accepted bool // the policy accepted it once, and there may be other versions of it
	Waits    bool // keep it whole as long as there is room
	Fresh    bool // keep it whole for a moment
	Later    bool // there is no room for it now: keep it whole to be judged again
	Tries    int  // with that: how often it gave way before, after which only the id is kept
}

// Dropped counts what bounds took.
type Dropped struct{ Waiting, Fresh, Later, Remembered int }

// Add remembers an event. What it was said to have been once it stays.
func (r *Table) Add(n Note) (d Dropped) {
	ev := n.Incoming.Event
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	e := r.entry(n.ID, r.relays.Number(n.Incoming.Source.Relay), now)
	e.createdAt, e.kind = ev.CreatedAt, int32(ev.Kind) //nolint:gosec // a kind that does not fit matches no filter
	e.author = shortKey(ev.PubKey)
	tried := fate(min(max(e.flags.tries(), n.Tries)+1, laterTries)) << laterShift //nolint:gosec // three bits
	e.flags &^= fateAsked | fateJudged | fateLater
	if n.Accepted {
		e.flags |= fateAccepted
	}
	r.unlink(e)
	r.link(e, n.Deps)
	if n.Later {
		e.flags |= tried
	}
	if n.Waits || n.Fresh || n.Later && n.Tries < laterAsks {
		in := &r.wait
		switch {
		case n.Fresh:
			in = &r.fresh
		case n.Later:
			in = &r.later
		}
		r.seq++
		w := &Whole{
			Incoming: n.Incoming, ID: n.ID, Size: n.Size, Payer: n.Payer, since: now, seq: r.seq, entry: e,
		}
		in.put(w)
	}
	return r.shrink(now)
}

// entry returns the entry of an id as the youngest one, and that of a relay, making it
// if need be.
func (r *Table) entry(id graspsync.EventID, relay uint16, now time.Time) *remembered {
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
		r.relays.Release(e.relay)
	}
	e.relay = relay
	r.owners.Add(&e.turn, relay, 1)
	return e
}

func (r *Table) nextPlace() uint64 {
	r.places++
	return r.places - 1
}

func entryOf(el *list.Element) *remembered {
	e, _ := el.Value.(*remembered)
	return e
}

func wholeOf(el *list.Element) *Whole {
	w, _ := el.Value.(*Whole)
	return w
}

// link makes an entry wait for keys.
func (r *Table) link(e *remembered, keys []Key) {
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

// unlink makes an entry wait for nothing and takes its event from it.
func (r *Table) unlink(e *remembered) *Whole {
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
func (r *Table) unhold(e *remembered) *Whole {
	if e.whole == nil {
		return nil
	}
	w := wholeOf(e.whole)
	w.in.remove(w)
	return w
}

func (r *Table) remove(el *list.Element) {
	e := entryOf(el)
	r.unlink(e)
	r.order.Remove(el)
	delete(r.byID, e.id)
	if r.owners.Remove(&e.turn) {
		r.relays.Release(e.relay)
	}
}

// shrink keeps the bounds.
func (r *Table) shrink(now time.Time) (d Dropped) {
	for el := r.fresh.queue.Front(); el != nil && now.Sub(wholeOf(el).since) >= r.wholeFor; el = r.fresh.queue.Front() {
		r.unhold(wholeOf(el).entry)
	}
	for r.fresh.full() {
		r.unhold(r.fresh.owners.Next().Item.entry)
		d.Fresh++
	}
	for r.wait.full() {
		r.unhold(r.wait.owners.Next().Item.entry)
		d.Waiting++
	}
	for r.later.full() {
		r.unhold(r.later.owners.Next().Item.entry)
		d.Later++
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
		d.Remembered++
	}
	return d
}

func (r *Table) old(e *remembered, now time.Time) bool {
	return now.Unix()-e.seen > int64(r.keepFor/time.Second)
}

// due reports whether an event is to be looked at again, or asked for, for which there
// was no room. One that is whole is judged again as it is.
func (r *Table) due(e *remembered, now time.Time) bool {
	tries := e.flags.tries()
	return tries > 0 && e.whole == nil && now.Unix()-e.seen >= int64(backoff.Doubled(laterFirst, laterMost, tries)/time.Second)
}

// get returns the entry of an id, nil if there is none.
func (r *Table) get(id graspsync.EventID) *remembered {
	el, ok := r.byID[id]
	if !ok || r.old(entryOf(el), time.Now()) {
		return nil
	}
	return entryOf(el)
}

// Has reports whether an event needs no second look.
func (r *Table) Has(id graspsync.EventID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.get(id)
	return e != nil && e.flags&fateAsked == 0 && !r.due(e, time.Now())
}

// Forget has an event looked at again. That it was accepted once stays known.
func (r *Table) Forget(id graspsync.EventID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	el, ok := r.byID[id]
	if !ok {
		return
	}
	if e := entryOf(el); e.flags&fateAccepted != 0 {
		r.unlink(e)
		e.flags = e.flags&^(fateJudged|fateLater) | fateAsked
		return
	}
	r.remove(el)
}

// Owe remembers of an event that could not be saved that it is wanted again.
func (r *Table) Owe(n Note) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	e := r.entry(n.ID, r.relays.Number(n.Incoming.Source.Relay), now)
	if e.createdAt == noTime {
		e.createdAt, e.kind = n.Incoming.Event.CreatedAt, int32(n.Incoming.Event.Kind) //nolint:gosec // a kind that does not fit matches no filter
	}
	r.unlink(e)
	e.flags = e.flags&^(fateJudged|fateLater) | fateAsked
	r.shrink(now)
}

// Stored takes note that an event is in the Store now.
func (r *Table) Stored(id graspsync.EventID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	el, ok := r.byID[id]
	switch {
	case !ok:
	case entryOf(el).flags&fateAccepted == 0:
		r.remove(el)
	default:
		r.unhold(entryOf(el))
		entryOf(el).flags &^= fateJudged | fateAsked | fateLater
	}
}

// Arrived returns what depends on any of the keys: whole events in the order in
// which they came, and the ids of the others by the relay that brought them, which
// count as forgotten.
func (r *Table) Arrived(keys []Key) (whole []*Whole, ask map[graspsync.RelayURL][]graspsync.EventID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shrink(time.Now())
	for i, k := range keys {
		if i%arrivedAtOnce == arrivedAtOnce-1 { // others have their turn
			r.mu.Unlock()
			r.mu.Lock()
		}
		for _, e := range r.waitingFor(k) {
			if e.whole != nil {
				whole = append(whole, r.unlink(e))
				e.flags |= fateJudged
			} else if e.flags&fateAsked == 0 {
				e.flags |= fateAsked
				u := r.relays.URL(e.relay)
				lazy.Put(&ask, u, append(ask[u], e.id))
			}
		}
	}
	sortWaiting(whole)
	return whole, ask
}

// arrivedAtOnce is how many keys are looked up while others wait. A scan may have found as many as
// there are repositories and root events.
const arrivedAtOnce = 256

// waitingFor returns the entries that wait for a key.
func (r *Table) waitingFor(k Key) (all []*remembered) {
	first := r.byDep[k]
	for d := first; d != nil; {
		all = append(all, d.of)
		if d = d.next; d == first {
			break
		}
	}
	return all
}

// Idle reports whether nothing waits for anything.
func (r *Table) Idle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.byDep) == 0
}

// Awaits reports whether something waits for a key.
func (r *Table) Awaits(k Key) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byDep[k] != nil
}

// Wanted returns the ids that an earlier process wanted again and did not get, by the
// relay that had them. What there was no room for has its turn later.
func (r *Table) Wanted() (ask map[graspsync.RelayURL][]graspsync.EventID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for el := r.order.Front(); el != nil; el = el.Next() {
		if e := entryOf(el); e.flags&fateAsked != 0 && e.flags&fateLater == 0 {
			u := r.relays.URL(e.relay)
			lazy.Put(&ask, u, append(ask[u], e.id))
		}
	}
	return ask
}

// Here takes note that an event is stored after all.
func (r *Table) Here(id graspsync.EventID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if el, ok := r.byID[id]; ok {
		entryOf(el).flags &^= fateAsked
	}
}

// InTurn returns whole events for which there was no room, at most so many, that were last
// judged at a time or before: those that were longest ago, of each relay no more than its part
// if others have some. They are kept.
func (r *Table) InTurn(most int, last, now time.Time) (turn []*Whole) {
	r.mu.Lock()
	defer r.mu.Unlock()
	h := &r.later
	of := make(map[shares.Owner]int)
	part := most / max(1, h.owners.Owners())
	for round := range 2 { // in the second one, whoever has more
		for el := h.queue.Front(); el != nil && len(turn) < most; {
			w, next := wholeOf(el), el.Next()
			if w.since.After(last) {
				break
			}
			if relay := w.entry.relay; round > 0 || of[relay] < part {
				of[relay]++
				w.since = now
				h.queue.MoveToBack(el)
				turn = append(turn, w)
			}
			el = next
		}
	}
	return turn
}

// State is what is remembered of one event.
type State struct {
	Accepted, Judged    bool // once; and it is being judged again
	Waits, Fresh, Later bool // it is whole for that
	Awaits              int  // how many things it depends on
	Tries               int  // how often there was no room for it
	Whole               *Whole
	Asked               bool // it was forgotten but for that, and is wanted again
	Heard
}

// Heard is when an event was heard of last, and what is known of it.
type Heard struct {
	ID        graspsync.EventID
	Seen      time.Time // to the second
	Relay     graspsync.RelayURL
	Kind      int
	CreatedAt nostr.Timestamp // less than 0 if it is not known
}

func (r *Table) heard(e *remembered) Heard {
	return Heard{ID: e.id, Seen: time.Unix(e.seen, 0), Relay: r.relays.URL(e.relay), Kind: int(e.kind), CreatedAt: e.createdAt}
}

// Awaiting returns what waits for a key: at most so many of those that were heard of last, and how
// many there are.
func (r *Table) Awaiting(k Key, most int) (out []Heard, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := r.waitingFor(k)
	for _, e := range all {
		out = append(out, r.heard(e))
	}
	slices.SortStableFunc(out, func(a, b Heard) int { return b.Seen.Compare(a.Seen) })
	return out[:min(len(out), most)], len(all)
}

// Look returns what is remembered of an event. false: nothing.
func (r *Table) Look(id graspsync.EventID) (s State, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.get(id)
	if e == nil {
		return s, false
	}
	s = State{
		Accepted: e.flags&fateAccepted != 0, Judged: e.flags&fateJudged != 0, Asked: e.flags&fateAsked != 0,
		Awaits: len(e.deps), Tries: e.flags.tries(), Heard: r.heard(e),
	}
	if e.whole != nil {
		s.Whole = wholeOf(e.whole)
		s.Waits, s.Fresh, s.Later = s.Whole.in == &r.wait, s.Whole.in == &r.fresh, s.Whole.in == &r.later
	}
	return s, true
}

// Keys returns what an event waits for.
func (r *Table) Keys(id graspsync.EventID) []Key {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.get(id)
	if e == nil {
		return nil
	}
	keys := make([]Key, len(e.deps))
	for i := range e.deps {
		keys[i] = e.deps[i].key
	}
	return keys
}

// Judging takes an event out of those for which there was no room: it is judged or saved
// again until that works. How often there was none is remembered.
func (r *Table) Judging(id graspsync.EventID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if el, ok := r.byID[id]; ok {
		e := entryOf(el)
		r.unhold(e)
		e.flags |= fateJudged
	}
}

// Overdue returns ids of events for which there was no room and of which only the id is
// left, by the relay that had them: of each at most so many. They count as forgotten.
// any is false if there is nothing at all for which there was no room.
func (r *Table) Overdue(most int) (ask map[graspsync.RelayURL][]graspsync.EventID, any bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for el := r.order.Front(); el != nil; el = el.Next() {
		e := entryOf(el)
		if e.flags&fateLater == 0 {
			continue
		}
		any = true
		u := r.relays.URL(e.relay)
		if e.flags&fateAsked == 0 && e.flags.tries() <= laterAsks && r.due(e, now) && len(ask[u]) < most {
			e.flags |= fateAsked
			lazy.Put(&ask, u, append(ask[u], e.id))
		}
	}
	return ask, any
}

func sortWaiting(whole []*Whole) {
	slices.SortFunc(whole, func(a, b *Whole) int { return cmp.Compare(a.seq, b.seq) })
}

// Anything returns all whole events that wait for something, and forgets the others
// that do: it is not known what has arrived.
func (r *Table) Anything() (whole []*Whole) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for el := r.order.Front(); el != nil; el = el.Next() {
		e := entryOf(el)
		if len(e.deps) == 0 || e.flags&fateAccepted != 0 {
			continue
		}
		if w := r.unlink(e); w != nil {
			whole = append(whole, w)
			e.flags |= fateJudged
		} else {
			e.flags |= fateAsked
		}
	}
	sortWaiting(whole)
	return whole
}

// Held is how many events are held whole.
type Held struct{ Waiting, Fresh, Later int }

// Held returns how many events are held whole.
func (r *Table) Held() Held {
	r.mu.Lock()
	defer r.mu.Unlock()
	return Held{Waiting: r.wait.queue.Len(), Fresh: r.fresh.queue.Len(), Later: r.later.queue.Len()}
}

// Len is how many events are remembered.
func (r *Table) Len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.order.Len()
}

// Stamps returns what is known to match a filter: of filters that name nothing but
// kinds and a time everything remembered, of others what is still whole. Every event
// that comes waits for the lock, so that nothing is matched under it but kinds and times.
func (r *Table) Stamps(f nostr.Filter) (out []graspsync.Stamp) {
	if f.IDs == nil && f.Authors == nil && len(f.Tags) == 0 {
		return r.stampsByKind(f)
	}
	match := filters.Compile([]nostr.Filter{f})
	for _, w := range r.whole() {
		if match.Match(w.ev.Event) {
			out = append(out, w.stamp)
		}
	}
	return out
}

func (r *Table) stampsByKind(f nostr.Filter) (out []graspsync.Stamp) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for el := r.order.Front(); el != nil; el = el.Next() {
		e := entryOf(el)
		switch {
		case f.Kinds != nil && !slices.Contains(f.Kinds, int(e.kind)):
		case f.Since != nil && e.createdAt < *f.Since, f.Until != nil && e.createdAt > *f.Until:
		case r.counts(e, now):
			out = append(out, e.stamp())
		}
	}
	return out
}

// wholeStamp is a remembered event of which more than the stamp is left.
type wholeStamp struct {
	stamp graspsync.Stamp
	ev    graspsync.Event
}

// whole returns the whole events that count as known.
func (r *Table) whole() (out []wholeStamp) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	out = make([]wholeStamp, 0, r.wait.queue.Len()+r.fresh.queue.Len()+r.later.queue.Len())
	for _, in := range []*holding{&r.wait, &r.fresh, &r.later} {
		for el := in.queue.Front(); el != nil; el = el.Next() {
			if w := wholeOf(el); r.counts(w.entry, now) {
				out = append(out, wholeStamp{w.entry.stamp(), w.Incoming.Event})
			}
		}
	}
	return out
}

// counts reports whether an entry says that an event is known, and when it was made.
func (r *Table) counts(e *remembered, now time.Time) bool {
	return e.flags&fateAsked == 0 && e.createdAt >= 0 && !r.old(e, now) && !r.due(e, now)
}

func (e *remembered) stamp() graspsync.Stamp {
	return graspsync.Stamp{CreatedAt: e.createdAt, ID: e.id}
}

// Audit checks the table against itself: what is counted, linked and shared out is what is there.
func (r *Table) Audit() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	owned := int64(0)
	for n := range uint16(len(r.relays.URLs()) + 1) {
		w := r.owners.Weight(n)
		owned += w
		if (n > 0 && w > 0) == r.relays.URL(n).IsZero() {
			return fmt.Errorf("relay %d owns %d: it has its number while there is anything of it", n, w)
		}
	}
	links, whole := 0, 0
	var size, weight int64
	for el := r.order.Front(); el != nil; el = el.Next() {
		e := entryOf(el)
		links += len(e.deps)
		weight += 1 + int64(len(e.deps)/linksPerEntry)
		if e.whole != nil {
			whole++
			size += wholeOf(e.whole).Size
		}
	}
	rings := 0
	for k := range r.byDep {
		for _, e := range r.waitingFor(k) {
			if _, known := r.byID[e.id]; !known {
				return fmt.Errorf("%s waits and is not remembered", e.id)
			}
			rings++
		}
	}
	for what, n := range map[string][2]int64{
		"by id":          {int64(len(r.byID)), int64(r.order.Len())},
		"links in rings": {int64(rings), int64(links)},
		"links":          {int64(r.links), int64(links)},
		"weight of all":  {owned, weight},
		"held whole":     {int64(r.wait.queue.Len() + r.fresh.queue.Len() + r.later.queue.Len()), int64(whole)},
		"bytes of these": {r.wait.bytes + r.fresh.bytes + r.later.bytes, size},
	} {
		if n[0] != n[1] {
			return fmt.Errorf("%s: %d, and not %d", what, n[0], n[1])
		}
	}
	return nil
}
