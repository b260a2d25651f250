package sync

import (
	"context"
	"fmt"
	"sync/atomic"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/pending"
)

// absences is what is known of events that are not here, and what has them judged again; of
// those that are here it knows that. It may be used by any goroutine.
type absences struct {
	known    *pending.Known
	rejected *pending.RejectedIndex
	store    *containedStore
	policy   *containedPolicy
	report   *report
	refetch  *refetch
	saving   *saving
	waiting  atomic.Int64 // events that wait whole

	arrivals arrivals // of those that are here, the newest
}

func rejectedConfig(cfg Config) pending.Config {
	return pending.Config{
		Most: cfg.fixed.Remembered, Waiting: cfg.fixed.Waiting, WaitingBytes: cfg.fixed.WaitingBytes,
		KeepFor: cfg.fixed.RejectedFor, WholeFor: cfg.fixed.WholeFor,
	}
}

// dealtWith reports whether an event needs no second look.
func (x *absences) dealtWith(id graspsync.EventID) bool {
	return x.known.Has(id) || x.rejected.Has(id)
}

// needed returns those of ids that are neither known nor stored.
func (x *absences) needed(ctx context.Context, ids []graspsync.EventID) ([]graspsync.EventID, error) {
	out := make([]graspsync.EventID, 0, len(ids)) // nearly all, most of the time
	for len(ids) > 0 {
		n := min(saveBatch, len(ids))
		chunk := make([]graspsync.EventID, 0, n)
		for _, id := range ids[:n] {
			if !x.dealtWith(id) {
				chunk = append(chunk, id)
			}
		}
		ids = ids[n:]
		has, err := x.store.has(ctx, chunk)
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
func (x *absences) note(n pending.Note) {
	d := x.rejected.Add(n)
	x.report.drop("waiting", d.Waiting)
	x.report.drop("rejected", d.Fresh)
	x.report.drop("postponed", d.Later)
	x.report.drop("remembered", d.Remembered)
	x.lost(d.Unsaved)
	x.waiting.Store(int64(x.rejected.Held().Waiting))
}

// countsAgain reports whether it is to be remembered of an event that it was accepted: what
// happens to others may have it judged again.
func countsAgain(ev graspsync.Event) bool {
	return ev.Kind != graspsync.KindDeletion && ev.Kind != graspsync.KindVanish
}

// fulfilsHeld returns what events may have waited for that ev is held. A policy that can't tell
// whose word counts has those tried whom it may be about: no view but the policy's has it.
func (x *absences) fulfilsHeld(ev graspsync.Event) []pending.Key {
	keys := append(pending.Fulfils(ev, false), pending.KeyOf(graspsync.OnHeldBy(ev.PubKey)))
	if a, err := nip34.ParseAnnouncement(ev); err == nil && !x.policy.canTell(a.Ref.Identifier) {
		for _, who := range append([]graspsync.PubKey{a.Ref.Owner}, a.Maintainers...) {
			keys = append(keys, pending.KeyOf(graspsync.OnSay(a.Ref.Identifier, who)), pending.KeyOf(graspsync.OnWanted(a.Ref.Identifier, who)))
		}
	}
	return keys
}

// awaited adds to keys what a stored event fulfils and something waits for.
func (x *absences) awaited(ev graspsync.Event, keys map[pending.Key]struct{}) {
	if x.rejected.Idle() {
		return
	}
	awaited := func(k pending.Key) {
		if x.rejected.Awaits(k) {
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
func (x *absences) arrived(ctx context.Context, keys []pending.Key) []*pending.PendingEvent {
	whole, ask := x.rejected.Arrived(keys)
	for relay, ids := range ask {
		has, err := x.store.has(ctx, ids)
		missing := ids[:0]
		for i, id := range ids {
			if err == nil && has[i] {
				x.rejected.Forget(id)
				continue
			}
			x.known.Forget(id)
			missing = append(missing, id)
		}
		x.refetch.again(relay, missing)
	}
	return whole
}

// revived makes jobs of events that have waited. Nobody counts on them any more.
func (x *absences) revived(waiting []*pending.PendingEvent) []*job {
	jobs := make([]*job, len(waiting))
	for i, w := range waiting {
		p, _ := w.Payer.(payer)
		jobs[i] = &job{
			key: copyKey{id: w.ID}, incoming: w.Incoming, size: w.Size, stats: p.stats, retry: p.retry, revived: true,
		}
	}
	x.waiting.Store(int64(x.rejected.Held().Waiting))
	return jobs
}
