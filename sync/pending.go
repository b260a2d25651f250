package sync

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/lazy"
	"github.com/graspsync/graspsync/sync/internal/pending"
)

func rejectedConfig(cfg Config) pending.Config {
	return pending.Config{
		Most: cfg.constants.Remembered, Waiting: cfg.constants.Waiting, WaitingBytes: cfg.constants.WaitingBytes,
		KeepFor: cfg.constants.RejectedFor, WholeFor: wholeFor,
	}
}

// dealtWith reports whether an event need not be processed again.
func (g *ingest) dealtWith(id graspsync.EventID) bool {
	return g.known.Has(id) || g.rejected.Has(id)
}

// needed returns the ids of events that are not stored and need processing.
func (g *ingest) needed(ctx context.Context, ids []graspsync.EventID) ([]graspsync.EventID, error) {
	out := make([]graspsync.EventID, 0, len(ids)) // usually nearly all
	for len(ids) > 0 {
		n := min(saveBatch, len(ids))
		chunk := make([]graspsync.EventID, 0, n)
		for _, id := range ids[:n] {
			if !g.dealtWith(id) {
				chunk = append(chunk, id)
			}
		}
		ids = ids[n:]
		has, err := g.store.has(ctx, chunk)
		if err != nil {
			return nil, fmt.Errorf("reading the store: %w", err)
		}
		for i, id := range chunk {
			if !has[i] {
				out = append(out, id)
			}
		}
	}
	return out, nil
}

// note records the state of a pending event and counts evicted records.
func (g *ingest) note(n pending.Note) {
	d := g.rejected.Add(n)
	g.telemetry.drop("waiting", d.Waiting)
	g.telemetry.drop("rejected", d.Fresh)
	g.telemetry.drop("postponed", d.Later)
	g.telemetry.drop("remembered", d.Remembered)
	g.lost(d.Unsaved)
	g.waiting.Store(int64(g.rejected.Held().Waiting))
}

// countsAgain reports whether an accepted event may be judged again later.
func countsAgain(ev graspsync.Event) bool {
	return ev.Kind != graspsync.KindDeletion && ev.Kind != graspsync.KindVanish
}

// fulfilsHeld returns the dependencies that a held event fulfills. If the Policy cannot tell the
// maintainers, these include all people in the announcement.
func (g *ingest) fulfilsHeld(ev graspsync.Event) []pending.Key {
	keys := append(pending.Fulfils(ev, false), pending.KeyOf(graspsync.OnHeldBy(ev.PubKey)))
	if a, err := nip34.ParseAnnouncement(ev); err == nil && !g.policy.canTell(a.Ref.Identifier) {
		for _, who := range append([]graspsync.PubKey{a.Ref.Owner}, a.Maintainers...) {
			keys = append(keys, pending.KeyOf(graspsync.OnBecomesMaintainer(a.Ref.Identifier, who)), pending.KeyOf(graspsync.OnBecomesListed(a.Ref.Identifier, who)))
		}
	}
	return keys
}

// awaited adds to keys the dependencies that a stored event fulfills, if an event waits for them.
func (g *ingest) awaited(ev graspsync.Event, keys map[pending.Key]struct{}) {
	if g.rejected.Idle() {
		return
	}
	awaited := func(k pending.Key) {
		if g.rejected.Awaits(k) {
			keys[k] = struct{}{}
		}
	}
	for _, k := range pending.Fulfils(ev, true) {
		awaited(k)
	}
	if a, err := nip34.ParseAnnouncement(ev); err == nil { // its owner and maintainers may be recognized now
		for _, who := range append([]graspsync.PubKey{a.Ref.Owner}, a.Maintainers...) {
			awaited(pending.KeyOf(graspsync.OnBecomesMaintainer(a.Ref.Identifier, who)))
			awaited(pending.KeyOf(graspsync.OnBecomesListed(a.Ref.Identifier, who)))
		}
	}
}

// arrived returns the whole events that waited for any of keys, and requests the events of which
// only the id is left.
func (g *ingest) arrived(ctx context.Context, keys []pending.Key) []*pending.PendingEvent {
	whole, ask := g.rejected.Arrived(keys)
	for relay, ids := range ask {
		has, err := g.store.has(ctx, ids)
		missing := ids[:0]
		for i, id := range ids {
			if err == nil && has[i] {
				g.rejected.Forget(id)
				continue
			}
			g.known.Forget(id)
			missing = append(missing, id)
		}
		g.refetch(relay, missing)
	}
	return whole
}

// revived returns jobs for pending events. No batch waits for these jobs.
func (g *ingest) revived(waiting []*pending.PendingEvent) []*job {
	jobs := make([]*job, len(waiting))
	for i, w := range waiting {
		p, _ := w.Payer.(payer)
		jobs[i] = &job{
			key: copyKey{id: w.ID}, incoming: w.Incoming, size: w.Size, stats: p.stats, retry: p.retry, revived: true,
		}
	}
	g.waiting.Store(int64(g.rejected.Held().Waiting))
	return jobs
}

// lost records unsaved events whose ids were evicted. Their relays are asked later for everything
// since then.
func (g *ingest) lost(unsaved []pending.Heard) {
	for _, e := range unsaved {
		g.telemetry.drop("unsaved", 1)
		g.known.Forget(e.ID)
		g.health.letGo(e.Relay, e.Seen)
	}
}

// reprocessQueue contains the causes to judge pending events again. The writer takes them. Any
// goroutine may add causes and never blocks.
type reprocessQueue struct {
	most int           // maximum number of keys
	wake chan struct{} // one slot: the queue is not empty

	roomAt atomic.Pointer[time.Time] // when the Policy last ended a hold, which may make room; nil: never
	later  atomic.Bool               // some event had no room

	mu sync.Mutex
	// guarded by mu
	fulfilled []pending.Key // by events that were stored without the writer
	overrun   bool          // a limit was exceeded: judge all pending events
}

// wakeFor adds fulfilled dependencies.
func (q *reprocessQueue) wakeFor(keys []pending.Key) {
	q.mu.Lock()
	if len(q.fulfilled) < q.most {
		q.fulfilled = append(q.fulfilled, keys...)
	} else {
		q.overrun = true
	}
	q.mu.Unlock()
	q.poke()
}

// judgeLater records that an event waits for room.
func (q *reprocessQueue) judgeLater() {
	q.later.Store(true)
	q.poke()
}

// freed records that there may be room for events with the verdict [graspsync.Later].
func (q *reprocessQueue) freed() {
	now := time.Now()
	q.roomAt.Store(&now)
	q.judgeLater()
}

func (q *reprocessQueue) room() (at time.Time) {
	if p := q.roomAt.Load(); p != nil {
		at = *p
	}
	return at
}

func (q *reprocessQueue) poke() {
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *reprocessQueue) takeFulfilled() (keys []pending.Key, all bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	keys, all = q.fulfilled, q.overrun
	q.fulfilled, q.overrun = nil, false
	return keys, all
}

// maxHeldSources exceeds the room of any purgatory.
const maxHeldSources = 100_000

// heldSource is the origin of a held event. Its counters are updated when the event is released.
type heldSource struct {
	source graspsync.Source
	size   int64
	stats  *relayStats // of the relay; nil for a client
	tries  int         // attempts without room before it was held
}

// heldSources contains the origins of held events. An event without an origin counts as submitted
// by a client. The zero value is ready to use.
type heldSources struct {
	mu sync.Mutex
	by map[graspsync.EventID]heldSource // guarded by mu
}

// add records the origin of an event if none is recorded.
func (h *heldSources) add(id graspsync.EventID, e heldSource) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, known := h.by[id]; !known && len(h.by) < maxHeldSources {
		lazy.Put(&h.by, id, e)
	}
}

func (h *heldSources) has(id graspsync.EventID) bool {
	_, known := h.get(id, false)
	return known
}

// get returns the origin of an event, and removes it if take is set.
func (h *heldSources) get(id graspsync.EventID, take bool) (heldSource, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	e, known := h.by[id]
	if take {
		delete(h.by, id)
	}
	return e, known
}
