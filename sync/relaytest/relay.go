package relaytest

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/internal/eventtest"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/internal/negentropy"
	"github.com/graspsync/graspsync/sync/memstore"
	"github.com/graspsync/graspsync/sync/wire"
)

// maxRecords is the maximum number of recorded items of each kind. The oldest half is then dropped.
const maxRecords = 200_000

// Relay is a scripted relay. Use [Network.Add] or [New].
type Relay struct {
	url graspsync.RelayURL

	// mu is never held during a blocking channel operation or a callback.
	mu         sync.Mutex
	behavior   Behavior
	program    program // of behavior.Software
	store      *memstore.Store
	conns      map[*Conn]struct{}
	lastConn   int
	cuts       int // number of cuts by CutAfter
	dials      []Dial
	requests   []Seen
	violations []Violation
	traffic    Traffic
	challenges int
	made       *Key   // signs invented events
	source     bucket // khatru's, for all connections, which have the same address
}

// New returns a relay outside any [Network]. It panics if url is invalid.
func New(url string, b Behavior) *Relay {
	u, err := graspsync.ParseRelayURL(url)
	if err != nil {
		panic(fmt.Sprintf("relaytest: %v", err))
	}
	return &Relay{
		url:      u,
		behavior: b,
		program:  programOf(b.Software),
		store:    memstore.New(),
		conns:    make(map[*Conn]struct{}),
	}
}

// lock locks mu until unlock is called.
func (r *Relay) lock() (unlock func()) {
	r.mu.Lock()
	return r.mu.Unlock
}

// URL returns the relay's URL.
func (r *Relay) URL() graspsync.RelayURL { return r.url }

// Behavior returns the current behavior.
func (r *Relay) Behavior() Behavior {
	defer r.lock()()
	return r.behavior
}

// Update changes the behavior. change must not call the relay.
func (r *Relay) Update(change func(b *Behavior)) {
	r.mu.Lock()
	change(&r.behavior)
	r.program = programOf(r.behavior.Software)
	conns := r.connected()
	r.mu.Unlock()
	for _, c := range conns {
		c.stir()
	}
	if r.Behavior().Down {
		r.Cut()
	}
}

// SetDown sets Behavior.Down. A relay that goes down cuts all connections.
func (r *Relay) SetDown(down bool) { r.Update(func(b *Behavior) { b.Down = down }) }

// Cut ends all connections immediately. Undelivered messages are lost.
func (r *Relay) Cut() {
	r.mu.Lock()
	conns := r.connected()
	r.mu.Unlock()
	for _, c := range conns {
		c.end(errCut)
	}
}

// Broadcast sends messages on all open connections, in order.
func (r *Relay) Broadcast(messages ...wire.Message) {
	r.mu.Lock()
	conns := r.connected()
	r.mu.Unlock()
	for _, c := range conns {
		(&ConnScript{c}).Send(messages...)
	}
}

func (r *Relay) connected() []*Conn {
	return slices.SortedFunc(maps.Keys(r.conns), func(a, b *Conn) int { return a.id - b.id })
}

// Publish stores events in order and sends them to matching subscriptions. It returns the number of
// new ones. It checks no event. Callers must not change them later.
func (r *Relay) Publish(events ...*nostr.Event) (n int) {
	defer r.lock()()
	for _, ev := range events {
		if ok, _ := r.publish(ev); ok {
			n++
		}
	}
	return n
}

var refusals = map[graspsync.Result]string{
	graspsync.Duplicate:  "duplicate: already have this event",
	graspsync.Deleted:    "blocked: this event was deleted",
	graspsync.Superseded: "duplicate: have a newer event",
}

// publish stores an event, or returns the reason why not. The caller holds mu.
func (r *Relay) publish(ev *nostr.Event) (ok bool, reason string) {
	parsed := eventtest.Of(ev)
	outcomes, _ := r.store.Save(context.Background(), []graspsync.Incoming{{Event: parsed}}) // fails only with its context
	if reason := refusals[outcomes[0].Result]; reason != "" {
		return false, reason
	}
	for _, c := range r.connected() { // also if it is ephemeral, and refused by the store
		if c.live(parsed) {
			c.stir()
		}
	}
	return true, ""
}

// Remove removes events without a deletion.
func (r *Relay) Remove(ids ...string) {
	defer r.lock()()
	for _, id := range ids {
		if id, err := graspsync.ParseEventID(id); err == nil {
			_ = r.store.Remove(context.Background(), graspsync.Event{ID: id}) // fails only with its context
		}
	}
}

// Events returns all stored events, newest first, then by id. The events must not be changed.
func (r *Relay) Events() []*nostr.Event { return r.Query(nostr.Filter{}) }

// Query returns the stored events that match f, in the order of [Relay.Events]. It ignores the
// limit.
func (r *Relay) Query(f nostr.Filter) []*nostr.Event {
	found := r.query(f)
	events := make([]*nostr.Event, len(found))
	for i, ev := range found {
		events[i] = ev.Event
	}
	return events
}

func (r *Relay) query(f nostr.Filter) (found []graspsync.Event) {
	for ev := range r.store.Events(context.Background(), f) { // fails only with its context
		found = append(found, ev)
	}
	slices.SortFunc(found, order)
	return found
}

// order compares by time, newest first, then by id (NIP-01).
func order(a, b graspsync.Event) int {
	return cmp.Or(cmp.Compare(b.CreatedAt, a.CreatedAt), bytes.Compare(a.ID[:], b.ID[:]))
}

// Dial opens a connection like [Network.Dial].
func (r *Relay) Dial(ctx context.Context) (*Conn, error) {
	d := Dial{At: time.Now()}
	c, err := r.dial(ctx)
	if err != nil {
		d.Err = fmt.Errorf("dial %s: %w", r.url, err)
	}
	r.mu.Lock()
	r.dials = remember(r.dials, d)
	r.mu.Unlock()
	if err != nil {
		return nil, d.Err
	}
	c.greet()
	return c, nil
}

func (r *Relay) dial(ctx context.Context) (*Conn, error) {
	b := r.Behavior()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var answer <-chan time.Time
	if !b.NoAnswer {
		answer = time.After(b.DialDelay)
	}
	select {
	case <-answer:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	defer r.lock()()
	switch b := &r.behavior; {
	case b.DialError != nil:
		return nil, b.DialError
	case b.Down:
		return nil, ErrDown
	}
	r.lastConn++
	c := newConn(r, r.lastConn)
	r.conns[c] = struct{}{}
	return c, nil
}

func remember[T any](list []T, item T) []T {
	if len(list) >= maxRecords {
		list = slices.Delete(list, 0, maxRecords/2)
	}
	return append(list, item)
}

var _ relaysync.Conn = (*Conn)(nil)

// Dials returns all attempts to connect in the order in which they ended.
func (r *Relay) Dials() []Dial {
	defer r.lock()()
	return slices.Clone(r.dials)
}

// Requests returns the messages of all clients in order, or only those of the given types.
func (r *Relay) Requests(types ...wire.RequestType) []Seen {
	defer r.lock()()
	return slices.DeleteFunc(slices.Clone(r.requests), func(s Seen) bool { return len(types) > 0 && !slices.Contains(types, s.Type) })
}

// Open returns the number of open connections.
func (r *Relay) Open() int {
	defer r.lock()()
	return len(r.conns)
}

// Subscriptions returns the open subscriptions, ordered by connection and id, without NEG sessions.
func (r *Relay) Subscriptions() []Subscription {
	defer r.lock()()
	var all []Subscription
	for _, c := range r.connected() {
		for _, id := range sortedKeys(c.subs) {
			all = append(all, Subscription{Conn: c.id, ID: id, Filters: c.subs[id].filters})
		}
	}
	return all
}

// Traffic returns the traffic of all connections.
func (r *Relay) Traffic() Traffic {
	defer r.lock()()
	return r.traffic
}

// Violations returns the violations of clients, in order.
func (r *Relay) Violations() []Violation {
	defer r.lock()()
	return slices.Clone(r.violations)
}

func (r *Relay) items(f nostr.Filter) (items []negentropy.Item) {
	for _, ev := range r.query(f) {
		if ev.CreatedAt >= 0 {
			items = append(items, negentropy.Item{CreatedAt: uint64(ev.CreatedAt), ID: ev.ID})
		}
	}
	return items
}

func (r *Relay) lies(f nostr.Filter) []negentropy.Item {
	at := nostr.Timestamp(1_700_000_000)
	if f.Until != nil {
		at = min(at, *f.Until)
	}
	if f.Since != nil {
		at = max(at, *f.Since)
	}
	var items []negentropy.Item
	for i := range r.behavior.LyingNegentropy {
		id := sha256.Sum256(fmt.Append(nil, "lie", r.url.String(), i))
		items = append(items, negentropy.Item{CreatedAt: uint64(max(0, at)), ID: id})
	}
	return items
}

// stored returns the events of each filter in turn, each once, and whether no limit applied.
func (r *Relay) stored(fs []nostr.Filter) (events []graspsync.Event, complete bool) {
	b := &r.behavior
	complete = true
	seen := make(map[graspsync.EventID]bool)
	for _, f := range fs {
		limit := f.Limit
		if f.LimitZero && !b.LimitZeroReturnsStored {
			continue
		}
		if limit <= 0 {
			limit = b.DefaultLimit
		}
		if b.IgnoreLimit || limit <= 0 {
			limit = math.MaxInt
		}
		if b.Cap > 0 {
			limit = min(limit, b.Cap)
		}
		if b.IgnoreUntil {
			f.Until = nil
		}
		found := r.query(f)
		if len(found) > limit {
			found, complete = found[:limit], false
		}
		if b.WrongOrder {
			slices.Reverse(found)
		}
		for _, ev := range found {
			if !seen[ev.ID] {
				seen[ev.ID] = true
				events = append(events, ev)
			}
		}
	}
	if b.Software == SoftwareRustNostr {
		slices.SortFunc(events, order)
	}
	return events, complete
}
