package pending

import (
	"cmp"
	"hash/maphash"
	"maps"
	"slices"
	"sync"
	"time"
	"unique"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/internal/backoff"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/sync/internal/lazy"
)

const (
	// linksPerEntry is the maximum average number of dependencies per event. A deletion may have
	// thousands.
	linksPerEntry = 16
)

// RejectedIndex contains the ids of verified events that are not stored. An id is added only after
// its event was verified, so a forged copy cannot hide the real event.
//
// Ids are kept for days with their dependencies, and whole events as [PendingEvent] while there is
// room. When a dependency arrives, whole events are judged again, and the other ids become wanted.
// Relay hosts share the limits, see [limit.Table]. A RejectedIndex is safe for concurrent use.
type RejectedIndex struct {
	cfg  Config       // read-only
	seed maphash.Seed // selects the chunk of an id; read-only

	mu sync.Mutex
	// guarded by mu
	seq    uint64
	ids    *limit.Table[graspsync.EventID, *entry] // bytes are those of dependencies
	byDep  map[Key]*depLink
	events *limit.Table[graspsync.EventID, *PendingEvent]
	// unsaved is the number of events that could not be saved, unsavedBytes the size of the whole ones.
	unsaved      int
	unsavedBytes int64
	inTurn       int    // number of whole events that had no room or could not be saved
	later        int    // number of ids with tries
	version      uint64 // changes with each exported change
}

// entry is the data of one id. It is small because there are many.
type entry struct {
	id        graspsync.EventID
	createdAt nostr.Timestamp
	seen      int64 // Unix seconds
	deps      []depLink
	event     *PendingEvent // nil if only the id is kept
	relay     unique.Handle[graspsync.RelayURL]
	kind      int32
	accepted  bool  // the policy accepted the event once
	wanted    bool  // the event is being judged or requested again
	unsaved   bool  // the event could not be saved
	tries     uint8 // 1 + number of failed requests; 0 if the event had room and could be saved
}

// depLink is one dependency of one event in the ring of all events with this dependency.
type depLink struct {
	key        Key
	prev, next *depLink
	of         *entry
}

// PendingEvent is a whole event that is judged again.
type PendingEvent struct {
	Incoming graspsync.Incoming
	ID       graspsync.EventID
	Size     int64
	Payer    any // from the Note

	since time.Time // time of the addition or of the last judgement
	seq   uint64
	entry *entry
}

const (
	// firstLaterWait is the time until an id without room is requested again. It doubles with each
	// request and each return without room.
	firstLaterWait = time.Hour
	maxLaterWait   = 20 * time.Hour
	// The same for an id that could not be saved.
	firstUnsavedWait = time.Minute
	maxUnsavedWait   = 4 * time.Hour
	// laterAgain is the time until an event without room is judged again, unsavedAgain until an event
	// is saved again, doubling up to four times laterAgain.
	laterAgain   = time.Minute
	unsavedAgain = time.Second
	// After laterWhole evictions a held event is not kept whole. Otherwise events without room
	// would evict each other forever.
	laterWhole = 4
	// maxTries is the maximum number of requests by id. A pass may fetch the event from another
	// relay. An event that arrives and cannot be saved is requested at least maxTries-maxWait more
	// times.
	maxTries = 14
	maxWait  = 9
)

// Config contains the limits of a [RejectedIndex].
type Config struct {
	Most         int           // maximum ids
	Waiting      int           // maximum whole events
	WaitingBytes int64         // maximum size of whole events
	KeepFor      time.Duration // lifetime of an id
}

// NewRejectedIndex returns an empty index.
func NewRejectedIndex(cfg Config) *RejectedIndex {
	most := max(1, cfg.Most)
	return &RejectedIndex{
		cfg: cfg, seed: maphash.MakeSeed(), byDep: make(map[Key]*depLink), version: 1,
		ids:    limit.NewTable[graspsync.EventID, *entry](most, keySize*linksPerEntry*int64(most)),
		events: limit.NewTable[graspsync.EventID, *PendingEvent](cfg.Waiting, max(1, cfg.WaitingBytes)),
	}
}

// Note is an event to remember.
type Note struct {
	Incoming graspsync.Incoming
	ID       graspsync.EventID
	Size     int64
	Payer    any // returned with the whole event
	Deps     []Key
	Accepted bool // the policy accepted it once
	Whole    bool // keep it whole while there is room
	Wanted   bool // it is requested again
	Later    bool // it had no room: it is judged again in turn
	Tries    int  // with Later: number of earlier evictions; from laterWhole on only the id is kept
	Unsaved  bool // it could not be saved: it is saved again in turn
}

// Dropped counts evicted whole events and ids, and the evicted ids of unsaved events.
type Dropped struct{ Waiting, Later, Remembered, Unsaved int }

// Add stores an event.
func (r *RejectedIndex) Add(n Note) (d Dropped) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.version++
	now := time.Now()
	r.expire(now)
	e, ok := r.ids.Get(n.ID)
	if !ok {
		e = &entry{id: n.ID}
	}
	r.unlink(e)
	e.seen, e.relay = now.Unix(), unique.Make(n.Incoming.Source.Relay)
	e.createdAt, e.kind = n.Incoming.Event.CreatedAt, int32(n.Incoming.Event.Kind) //nolint:gosec // a kind that does not fit matches no filter
	e.wanted, e.accepted = n.Wanted, e.accepted || n.Accepted
	tries := 0
	if n.Later || n.Unsaved {
		tries = min(max(int(e.tries), n.Tries)+1, maxWait)
	}
	r.setTries(e, uint8(tries)) //nolint:gosec // bounded
	if e.unsaved = n.Unsaved; e.unsaved {
		r.unsaved++
	}
	r.link(e, n.Deps)
	r.put(e, &d)
	if _, ok := r.ids.Get(e.id); ok && (n.Whole || n.Later && n.Tries < laterWhole || n.Unsaved) {
		r.seq++
		r.hold(&PendingEvent{Incoming: n.Incoming, ID: n.ID, Size: n.Size, Payer: n.Payer, since: now, seq: r.seq, entry: e}, &d)
	}
	return d
}

func host(u unique.Handle[graspsync.RelayURL]) limit.Stranger {
	return limit.Stranger{ID: u.Value().HostPort().Host}
}

// put makes an entry the newest of its relay host and adds evicted entries to d.
func (r *RejectedIndex) put(e *entry, d *Dropped) {
	gone, ok := r.ids.Put(e.id, host(e.relay), keySize*int64(len(e.deps)), e)
	if !ok {
		gone = append(gone, limit.Entry[graspsync.EventID, *entry]{Value: e})
	}
	for _, g := range gone {
		d.Remembered++
		if g.Value.unsaved {
			d.Unsaved++
		}
		r.unlink(g.Value)
		r.setTries(g.Value, 0)
	}
}

func (r *RejectedIndex) setTries(e *entry, n uint8) {
	r.later += min(1, int(n)) - min(1, int(e.tries))
	e.tries = n
}

// hold keeps a whole event and adds evicted events to d.
func (r *RejectedIndex) hold(w *PendingEvent, d *Dropped) {
	w.entry.event = w
	if w.entry.unsaved {
		r.unsavedBytes += w.Size
	}
	if w.entry.tries > 0 {
		r.inTurn++
	}
	gone, ok := r.events.Put(w.ID, host(w.entry.relay), w.Size, w)
	if !ok {
		gone = append(gone, limit.Entry[graspsync.EventID, *PendingEvent]{Value: w})
	}
	for _, g := range gone {
		if r.gone(g.Value); g.Value.entry.tries > 0 {
			d.Later++
		} else {
			d.Waiting++
		}
	}
}

func (r *RejectedIndex) link(e *entry, keys []Key) {
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

// unlink removes the dependencies and the event of an entry and returns the event.
func (r *RejectedIndex) unlink(e *entry) *PendingEvent {
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
	e.deps = nil
	w := r.unhold(e)
	if e.unsaved {
		e.unsaved = false
		r.unsaved--
	}
	return w
}

func (r *RejectedIndex) unhold(e *entry) *PendingEvent {
	w := e.event
	if w != nil {
		r.events.Delete(e.id)
		r.gone(w)
	}
	return w
}

// gone records that an event is no longer kept whole.
func (r *RejectedIndex) gone(w *PendingEvent) {
	if w.entry.event = nil; w.entry.unsaved {
		r.unsavedBytes -= w.Size
	}
	if w.entry.tries > 0 {
		r.inTurn--
	}
}

func (r *RejectedIndex) remove(e *entry) {
	r.version++
	r.unlink(e)
	r.setTries(e, 0)
	r.ids.Delete(e.id)
}

func (r *RejectedIndex) expire(now time.Time) {
	var old []*entry
	for _, e := range r.ids.All() {
		if !r.old(e, now) {
			break
		}
		old = append(old, e)
	}
	for _, e := range old {
		r.remove(e)
	}
}

func (r *RejectedIndex) old(e *entry, now time.Time) bool {
	return !e.unsaved && now.Unix()-e.seen > int64(r.cfg.KeepFor/time.Second)
}

// due reports whether the id of an event without room or unsaved must be requested again. It is
// false for a whole event. An unsaved event is due early if it was seen before works.
func (e *entry) due(now, works time.Time) bool {
	return e.tries > 0 && e.event == nil && (now.Unix()-e.seen >= int64(e.wait()/time.Second) || e.unsaved && e.seen < works.Unix())
}

func (e *entry) wait() time.Duration {
	if e.unsaved {
		return backoff.Doubled(firstUnsavedWait, maxUnsavedWait, int(e.tries))
	}
	return backoff.Doubled(firstLaterWait, maxLaterWait, int(e.tries))
}

func (r *RejectedIndex) get(id graspsync.EventID) *entry {
	e, ok := r.ids.Get(id)
	if !ok || r.old(e, time.Now()) {
		return nil
	}
	return e
}

// Has reports whether an event with this id can be ignored.
func (r *RejectedIndex) Has(id graspsync.EventID) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.get(id)
	return e != nil && !e.wanted && !e.due(time.Now(), time.Time{}) && (!e.unsaved || e.event != nil)
}

// Forget removes an id.
func (r *RejectedIndex) Forget(id graspsync.EventID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e, ok := r.ids.Get(id); ok {
		r.remove(e)
	}
}

// Arrived returns the entries that depend on any of the keys and makes them wanted: the whole
// events in arrival order, and the other ids by relay.
func (r *RejectedIndex) Arrived(keys []Key) (whole []*PendingEvent, ask map[graspsync.RelayURL][]graspsync.EventID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.expire(time.Now())
	for i, k := range keys {
		if i%arrivedAtOnce == arrivedAtOnce-1 { // unlock for other callers
			r.mu.Unlock()
			r.mu.Lock()
		}
		for _, e := range r.waitingFor(k) {
			if e.event != nil {
				whole = append(whole, r.unlink(e))
			} else if !e.wanted {
				lazy.Put(&ask, e.relay.Value(), append(ask[e.relay.Value()], e.id))
			}
			e.wanted = true
			r.version++
		}
	}
	sortPending(whole)
	return whole, ask
}

// arrivedAtOnce is the number of keys looked up under one lock.
const arrivedAtOnce = 256

func (r *RejectedIndex) waitingFor(k Key) (all []*entry) {
	first := r.byDep[k]
	for d := first; d != nil; {
		all = append(all, d.of)
		if d = d.next; d == first {
			break
		}
	}
	return all
}

// Idle reports whether no event has a dependency.
func (r *RejectedIndex) Idle() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.byDep) == 0
}

// Awaits reports whether an event depends on k.
func (r *RejectedIndex) Awaits(k Key) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.byDep[k] != nil
}

// Wanted returns the wanted ids of an earlier process by relay.
func (r *RejectedIndex) Wanted() (ask map[graspsync.RelayURL][]graspsync.EventID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for id, e := range r.ids.All() {
		if e.wanted {
			lazy.Put(&ask, e.relay.Value(), append(ask[e.relay.Value()], id))
		}
	}
	return ask
}

// InTurn returns about most due events without room or unsaved, of all relay hosts in turn, see
// entry.due. The events stay in the index until the next call about them.
func (r *RejectedIndex) InTurn(most int, now, works time.Time) (turn []*PendingEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.inTurn == 0 {
		return nil
	}
	byHost := make(map[string][]*PendingEvent) // due
	for _, w := range r.events.All() {
		if w.entry.tries == 0 {
			continue // it waits for a dependency
		}
		due := w.since.Add(laterAgain)
		if w.entry.unsaved {
			if due = w.since.Add(backoff.Doubled(unsavedAgain, laterAgain*4, int(w.entry.tries))); w.since.Before(works) {
				due = now
			}
		}
		if !due.After(now) {
			h := host(w.entry.relay).ID
			byHost[h] = append(byHost[h], w)
		}
	}
	for len(byHost) > 0 && len(turn) < most {
		for _, h := range slices.Sorted(maps.Keys(byHost)) {
			if turn, byHost[h] = append(turn, byHost[h][0]), byHost[h][1:]; len(byHost[h]) == 0 {
				delete(byHost, h)
			}
		}
	}
	for _, w := range turn { // the last ones of the next turn
		w.since = now
		r.events.Touch(w.ID)
	}
	return turn
}

// Unsaved returns the number of events that could not be saved.
func (r *RejectedIndex) Unsaved() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.unsaved
}

// HasRoom reports whether an unsaved event of this size can be kept whole beside the other unsaved
// ones. Other events, which strangers can send in any number, do not count.
func (r *RejectedIndex) HasRoom(size int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.unsaved < r.cfg.Waiting && r.unsavedBytes+size <= r.cfg.WaitingBytes
}

// State is the data of one id.
type State struct {
	ID        graspsync.EventID
	Seen      time.Time // last time, in seconds
	Relay     graspsync.RelayURL
	Kind      int
	CreatedAt nostr.Timestamp
	Accepted  bool // the policy accepted it once
	Tries     int  // see entry
	Unsaved   bool // it could not be saved
	Wanted    bool // it is judged or requested again
	Deps      []Key
	Whole     *PendingEvent // nil if only the id is kept
}

func (e *entry) state() State {
	return State{
		ID: e.id, Seen: time.Unix(e.seen, 0), Relay: e.relay.Value(), Kind: int(e.kind), CreatedAt: e.createdAt,
		Accepted: e.accepted, Tries: int(e.tries), Unsaved: e.unsaved, Wanted: e.wanted, Deps: e.keys(), Whole: e.event,
	}
}

// Awaiting returns the events that depend on a key, the last seen first.
func (r *RejectedIndex) Awaiting(k Key) (out []State) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.waitingFor(k) {
		out = append(out, e.state())
	}
	slices.SortStableFunc(out, func(a, b State) int { return b.Seen.Compare(a.Seen) })
	return out
}

// Look returns the data of an id, or false if it is unknown.
func (r *RejectedIndex) Look(id graspsync.EventID) (s State, known bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	e := r.get(id)
	if e == nil {
		return s, false
	}
	return e.state(), true
}

func (e *entry) keys() (keys []Key) {
	for i := range e.deps {
		keys = append(keys, e.deps[i].key)
	}
	return keys
}

// Overdue returns due ids without a whole event, up to most per relay, and makes them wanted. Ids that
// were requested too often are removed. gone is the number of removed ids of unsaved events.
func (r *RejectedIndex) Overdue(most int, works time.Time) (ask map[graspsync.RelayURL][]graspsync.EventID, gone int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.later == 0 {
		return nil, 0
	}
	now := time.Now()
	var old []*entry
	var asked []graspsync.EventID
	for id, e := range r.ids.All() {
		if e.tries == 0 {
			continue
		}
		u := e.relay.Value()
		switch {
		case !e.due(now, works) || len(ask[u]) >= most:
		case e.tries >= maxTries:
			old = append(old, e)
		default:
			e.wanted = true
			e.tries++
			e.seen = now.Unix()
			asked = append(asked, id)
			lazy.Put(&ask, u, append(ask[u], id))
		}
	}
	for _, id := range asked {
		r.version++
		r.ids.Touch(id)
	}
	for _, e := range old {
		if e.unsaved {
			gone++
		}
		r.remove(e)
	}
	return ask, gone
}

func sortPending(whole []*PendingEvent) {
	slices.SortFunc(whole, func(a, b *PendingEvent) int { return cmp.Compare(a.seq, b.seq) })
}

// Anything returns all whole events with dependencies and makes the other ids wanted, if the
// arrived dependencies are unknown.
func (r *RejectedIndex) Anything() (whole []*PendingEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.ids.All() {
		if len(e.deps) == 0 || e.accepted {
			continue
		}
		if w := r.unlink(e); w != nil {
			whole = append(whole, w)
		}
		e.wanted = true
		r.version++
	}
	sortPending(whole)
	return whole
}

// Waiting returns the number of whole events that wait for a dependency.
func (r *RejectedIndex) Waiting() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.events.Len() - r.inTurn
}

// EventKeys returns the keys of the known events that match a filter. For a filter with only kinds
// and times it compares all ids, else the whole events. Tags are matched outside the lock, for
// which every incoming event waits.
func (r *RejectedIndex) EventKeys(f nostr.Filter) (out []graspsync.EventKey) {
	if f.IDs == nil && f.Authors == nil && len(f.Tags) == 0 {
		return r.keysByKind(f)
	}
	match := filters.Compile([]nostr.Filter{f})
	for _, w := range r.whole() {
		if match.Match(w.Incoming.Event.Event) {
			out = append(out, w.Incoming.Event.Key())
		}
	}
	return out
}

func (r *RejectedIndex) keysByKind(f nostr.Filter) (out []graspsync.EventKey) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for _, e := range r.ids.All() {
		switch {
		case f.Kinds != nil && !slices.Contains(f.Kinds, int(e.kind)):
		case f.Since != nil && e.createdAt < *f.Since, f.Until != nil && e.createdAt > *f.Until:
		case r.counts(e, now):
			out = append(out, graspsync.EventKey{CreatedAt: e.createdAt, ID: e.id})
		}
	}
	return out
}

// whole returns the whole events that count as known.
func (r *RejectedIndex) whole() (out []*PendingEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	for _, w := range r.events.All() {
		if r.counts(w.entry, now) {
			out = append(out, w)
		}
	}
	return out
}

// counts reports whether an entry is a known event with a known time.
func (r *RejectedIndex) counts(e *entry, now time.Time) bool {
	return !e.wanted && !e.unsaved && e.createdAt >= 0 && !r.old(e, now) && !e.due(now, time.Time{})
}
