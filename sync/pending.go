package sync

import (
	"context"
	"fmt"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
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
