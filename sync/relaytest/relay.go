package relaytest

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	relaysync "github.com/graspsync/graspsync/sync"
	"github.com/graspsync/graspsync/sync/wire"
)

// maxRecords is how much of each kind a relay remembers for inspection; then the
// oldest half is forgotten.
const maxRecords = 200_000

// maxTexts is how many different texts are counted.
const maxTexts = 1000

// Relay is one scripted relay. Make it with [Network.Add].
type Relay struct {
	url graspsync.RelayURL

	// mu is never held across a channel operation or a call out.
	mu         sync.Mutex
	behavior   Behavior
	store      *archive
	conns      map[*Conn]struct{}
	lastConn   int
	cuts       int // by CutAfter
	dials      []Dial
	requests   []Seen
	violations []Violation
	traffic    Traffic
	refusals   map[string]int // by text; bounded by maxTexts
	challenges int
	made       *Key  // signs what is made up
	sources    meter // of all connections together, since all come from one address
}

// New returns a relay that is part of no [Network]. It panics if url is no relay
// URL.
func New(url string, b Behavior) *Relay {
	u, err := graspsync.ParseRelayURL(url)
	if err != nil {
		panic(fmt.Sprintf("relaytest: %v", err))
	}
	return &Relay{
		url:      u,
		behavior: b,
		store:    newArchive(),
		conns:    make(map[*Conn]struct{}),
		refusals: make(map[string]int),
	}
}

// URL returns the relay's URL.
func (r *Relay) URL() graspsync.RelayURL { return r.url }

// Behavior returns what the relay does now.
func (r *Relay) Behavior() Behavior {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.behavior
}

// Update changes what the relay does from now on. The function must not call the
// relay.
func (r *Relay) Update(change func(b *Behavior)) {
	r.mu.Lock()
	change(&r.behavior)
	down := r.behavior.Down
	conns := r.connected()
	r.mu.Unlock()
	for _, c := range conns {
		if down {
			c.end(errCut)
		}
		c.stir()
	}
}

// SetDown takes the relay down, which cuts all connections, or up again.
func (r *Relay) SetDown(down bool) { r.Update(func(b *Behavior) { b.Down = down }) }

// Cut ends all connections at once. What was on its way is lost.
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
	for _, c := range conns {
		for _, m := range messages {
			c.push(&answer{frames: []frame{{msg: m}}, due: time.Now()})
		}
	}
	r.mu.Unlock()
	for _, c := range conns {
		c.stir()
	}
}

// connected returns the open connections in the order in which they came; mu is
// held.
func (r *Relay) connected() []*Conn {
	conns := make([]*Conn, 0, len(r.conns))
	for c := range r.conns {
		conns = append(conns, c)
	}
	slices.SortFunc(conns, func(a, b *Conn) int { return a.id - b.id })
	return conns
}

// Publish stores events in order, unless they are superseded or deleted, and sends
// them to the subscriptions that match. Nothing about them is checked; nobody may
// change them any more. It returns how many were new.
func (r *Relay) Publish(events ...*nostr.Event) int {
	n := 0
	for _, ev := range events {
		if ok, _ := r.publish(ev); ok {
			n++
		}
	}
	return n
}

func (r *Relay) publish(ev *nostr.Event) (ok bool, reason string) {
	r.mu.Lock()
	rec, reason := r.store.add(ev)
	var hit []*Conn
	if rec != nil {
		for _, c := range r.connected() {
			if c.live(rec) {
				hit = append(hit, c)
			}
		}
	}
	most := r.behavior.MaxBacklog
	r.mu.Unlock()
	if most == 0 {
		most = 32 << 20
	}
	for _, c := range hit {
		if c.behind() > most {
			c.end(errSlow)
		}
		c.stir()
	}
	return rec != nil, reason
}

// Remove makes the relay lose events, without a deletion.
func (r *Relay) Remove(ids ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, id := range ids {
		if rec := r.store.byID[id]; rec != nil {
			r.store.drop(rec)
		}
	}
}

// Events returns everything stored, newest first, lowest id first at equal times.
// The events must not be changed.
func (r *Relay) Events() []*nostr.Event { return r.Query(nostr.Filter{}) }

// Query returns the stored events that match, in the order of [Relay.Events]. The
// filter's limit is not looked at.
func (r *Relay) Query(f nostr.Filter) []*nostr.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	found := r.store.query(f)
	events := make([]*nostr.Event, len(found))
	for i, rec := range found {
		events[i] = rec.ev
	}
	return events
}

// Dial opens a connection, as [Network.Dial] does.
func (r *Relay) Dial(ctx context.Context) (*Conn, error) {
	started := time.Now()
	c, err := r.dial(ctx)
	if err != nil {
		err = fmt.Errorf("dial %s: %w", r.url, err)
	}
	r.mu.Lock()
	r.dials = remember(r.dials, Dial{At: started, Took: time.Since(started), Err: err})
	r.mu.Unlock()
	if err != nil {
		return nil, err
	}
	c.greet()
	return c, nil
}

func (r *Relay) dial(ctx context.Context) (*Conn, error) {
	b := r.Behavior()
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	if b.NoAnswer {
		<-ctx.Done()
		return nil, context.Cause(ctx)
	}
	if b.DialDelay > 0 {
		timer := time.NewTimer(b.DialDelay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
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

// remember appends to a record of bounded length.
func remember[T any](list []T, item T) []T {
	if len(list) >= maxRecords {
		list = slices.Delete(list, 0, maxRecords/2)
	}
	return append(list, item)
}

var _ relaysync.Conn = (*Conn)(nil)
