package sync

import (
	"context"
	"errors"
	"maps"
	"slices"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/lazy"
	"github.com/graspsync/graspsync/sync/internal/pending"
)

// maintainersChanged returns the events to judge again after announcements were added or removed.
// It removes announcements that were stored only because a maintainer list named their authors, if
// no list names them now. The Policy is called once per identifier.
func (w *writer) maintainersChanged(ctx context.Context) (woken []*pending.PendingEvent) {
	changed, all := w.self.index.TakeNews()
	if all {
		woken = append(woken, w.rejected.Anything()...)
		for _, identifier := range w.self.index.Related() {
			lazy.Put(&changed, identifier, struct{}{})
		}
	}
	for _, identifier := range slices.Sorted(maps.Keys(changed)) {
		relatives := w.relatives(identifier)
		if w.rejected.Idle() && len(relatives) == 0 {
			continue
		}
		heard, can := w.policy.hear(identifier)
		if can {
			w.retire(ctx, w.unlisted(identifier, relatives, heard))
		}
		keys := slices.DeleteFunc(w.recognized(identifier, heard, can), func(k pending.Key) bool { return !w.rejected.Awaits(k) })
		woken = append(woken, w.arrived(ctx, keys)...)
	}
	return woken
}

func (w *writer) relatives(identifier string) []*nip34.Announcement {
	if !w.store.removes() {
		return nil
	}
	return w.self.index.Relatives(identifier)
}

// spared is the number of unlisted announcements per identifier that stay stored, the newest. They
// are still available if a list dropped an author by mistake and names the author again.
const spared = 32

func (w *writer) unlisted(identifier string, relatives []*nip34.Announcement, heard map[graspsync.PubKey]bool) []*nip34.Announcement {
	out := slices.DeleteFunc(relatives, func(a *nip34.Announcement) bool {
		_, is := heard[a.Ref.Owner]
		return is
	})
	if len(w.policy.view.Announcements(identifier)) == 0 { // no hosted repository is left
		return out
	}
	slices.SortFunc(out, func(a, b *nip34.Announcement) int {
		if a.Key().Newer(b.Key()) {
			return -1
		}
		return 1
	})
	return out[min(spared, len(out)):]
}

// retiredAtOnce is the number of announcements that are read together. Each may take 500 KB.
const retiredAtOnce = 16

// retire removes announcements of authors that no list names, or that were dropped in favor of
// other authors. They may be stored again. A failed removal is retried after the next change of the
// identifier, unless the Store cannot remove events.
func (w *writer) retire(ctx context.Context, all []*nip34.Announcement) {
	for some := range slices.Chunk(all, retiredAtOnce) {
		ids := make([]graspsync.EventID, len(some))
		for i, a := range some {
			ids[i] = a.ID
		}
		events, err := w.policy.events(ctx, ids)
		for i := 0; i < len(some) && err == nil; i++ {
			err = w.remove(ctx, some[i], events[some[i].ID])
		}
		if errors.Is(err, ErrCannotRemove) {
			return
		}
		if err != nil {
			w.cfg.Logger.Warn("removing unlisted announcements failed", "remaining", len(some), keyErr, err)
			return
		}
	}
}

// remove removes an announcement. ev is zero if it is not stored.
func (w *writer) remove(ctx context.Context, a *nip34.Announcement, ev graspsync.Event) error {
	if ev.IsZero() {
		w.self.removed(graspsync.Event{Event: &nostr.Event{Kind: graspsync.KindAnnouncement}, ID: a.ID, PubKey: a.Ref.Owner})
		return nil
	}
	if err := w.store.remove(ctx, ev); err != nil {
		return err
	}
	w.note(pending.Note{
		Incoming: graspsync.Incoming{Event: ev, Source: graspsync.Source{Kind: graspsync.CatchUp}}, ID: a.ID,
		Deps: pending.KeysOf([]graspsync.Dependency{graspsync.OnBecomesListed(a.Ref.Identifier, a.Ref.Owner), graspsync.OnRepo(a.Ref)}),
	})
	w.known.Forget(a.ID)
	w.telemetry.drop("unlisted", 1)
	w.cfg.Logger.Debug("unlisted announcement removed", keyEvent, a.ID.String())
	w.self.removed(ev)
	w.withdrawn(ev)
	return nil
}

// recognized returns the dependencies that recognized authors fulfill. If the Policy cannot tell
// (can is false), it returns those of all known people.
func (w *writer) recognized(identifier string, heard map[graspsync.PubKey]bool, can bool) (keys []pending.Key) {
	if !can {
		for _, a := range w.policy.view.Family(identifier) {
			keys = append(keys, onRecognized(a)...)
		}
	}
	for who, isMember := range heard {
		keys = append(keys, pending.KeyOf(graspsync.OnBecomesListed(identifier, who)))
		if isMember {
			keys = append(keys, pending.KeyOf(graspsync.OnBecomesMaintainer(identifier, who)))
		}
	}
	return keys
}
