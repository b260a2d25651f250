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
		Most: cfg.fixed.Remembered, Waiting: cfg.fixed.Waiting, WaitingBytes: cfg.fixed.WaitingBytes,
		KeepFor: cfg.fixed.RejectedFor, WholeFor: cfg.fixed.WholeFor,
	}
}

// dealtWith reports whether an event needs no second look.
func (g *ingest) dealtWith(id graspsync.EventID) bool {
	return g.known.Has(id) || g.rejected.Has(id)
}

// needed returns those of ids that are neither known nor stored.
func (g *ingest) needed(ctx context.Context, ids []graspsync.EventID) ([]graspsync.EventID, error) {
	out := make([]graspsync.EventID, 0, len(ids)) // nearly all, most of the time
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
			return nil, fmt.Errorf("asking what is stored: %w", err)
		}
		for i, id := range chunk {
			if !has[i] {
				out = append(out, id)
			}
		}
	}
	return out, nil
}

// note remembers an event and counts what had to go for that.
func (g *ingest) note(n pending.Note) {
	d := g.rejected.Add(n)
	g.telemetry.drop("waiting", d.Waiting)
	g.telemetry.drop("rejected", d.Fresh)
	g.telemetry.drop("postponed", d.Later)
	g.telemetry.drop("remembered", d.Remembered)
	g.lost(d.Unsaved)
	g.waiting.Store(int64(g.rejected.Held().Waiting))
}

// countsAgain reports whether it is to be remembered of an event that it was accepted: what
// happens to others may have it judged again.
func countsAgain(ev graspsync.Event) bool {
	return ev.Kind != graspsync.KindDeletion && ev.Kind != graspsync.KindVanish
}

// fulfilsHeld returns what events may have waited for that ev is held. A policy that can't tell
// whose word counts has those tried whom it may be about: no view but the policy's has it.
func (g *ingest) fulfilsHeld(ev graspsync.Event) []pending.Key {
	keys := append(pending.Fulfils(ev, false), pending.KeyOf(graspsync.OnHeldBy(ev.PubKey)))
	if a, err := nip34.ParseAnnouncement(ev); err == nil && !g.policy.canTell(a.Ref.Identifier) {
		for _, who := range append([]graspsync.PubKey{a.Ref.Owner}, a.Maintainers...) {
			keys = append(keys, pending.KeyOf(graspsync.OnSay(a.Ref.Identifier, who)), pending.KeyOf(graspsync.OnWanted(a.Ref.Identifier, who)))
		}
	}
	return keys
}

// awaited adds to keys what a stored event fulfils and something waits for.
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
	if a, err := nip34.ParseAnnouncement(ev); err == nil { // who is heard is by one, or listed by one
		for _, who := range append([]graspsync.PubKey{a.Ref.Owner}, a.Maintainers...) {
			awaited(pending.KeyOf(graspsync.OnSay(a.Ref.Identifier, who)))
			awaited(pending.KeyOf(graspsync.OnWanted(a.Ref.Identifier, who)))
		}
	}
}

// arrived returns the whole events that waited for any of keys, and has those asked
// for again of which only the id is left.
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

// revived makes jobs of events that have waited. Nobody counts on them any more.
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

// lost has relays asked again for the time since unsaved events came of which not even the ids are kept.
func (g *ingest) lost(unsaved []pending.Heard) {
	for _, e := range unsaved {
		g.telemetry.drop("unsaved", 1)
		g.known.Forget(e.ID)
		g.health.letGo(e.Relay, e.Seen)
	}
}
