package sync

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/lazy"
	"github.com/graspsync/graspsync/sync/internal/pending"
)

// listings is what follows from who lists whom: whose events are judged again, and which
// announcements go that nobody lists any more. It belongs to the writer.
type listings struct {
	log      *slog.Logger
	hearing  hearing
	feed     *feed
	policy   *containedPolicy
	store    *containedStore
	absences *absences
	news     *news
	report   *report
}

// heard returns what is to be judged again since announcements have come or gone, and has those
// removed that were stored for nothing but that they were listed. The policy is asked once for
// each identifier, however many have.
func (x *listings) heard(ctx context.Context) (woken []*pending.PendingEvent) {
	stored, all := x.feed.index.takeNews()
	changed, unsure := x.news.takeChanged()
	unsure = unsure || all
	if all {
		woken = append(woken, x.absences.rejected.Anything()...)
	}
	if unsure {
		for _, identifier := range x.feed.index.related() {
			lazy.Put(&changed, identifier, struct{}{})
		}
	}
	for identifier := range stored {
		lazy.Put(&changed, identifier, struct{}{})
	}
	for _, identifier := range slices.Sorted(maps.Keys(changed)) {
		relatives := x.relatives(identifier)
		idle := x.absences.rejected.Idle() // who is heard meanwhile has nothing that waits
		if idle {
			x.hearing.of.Delete(identifier)
		}
		if idle && len(relatives) == 0 {
			continue
		}
		heard, can := x.policy.hear(identifier)
		if can {
			x.retire(ctx, x.unlisted(identifier, relatives, heard))
		}
		if idle {
			continue
		}
		keys := slices.DeleteFunc(x.newlyHeard(identifier, heard, can), func(k pending.Key) bool { return !x.absences.rejected.Awaits(k) })
		woken = append(woken, x.absences.arrived(ctx, keys)...)
	}
	return woken
}

// relatives returns what may be removed under an identifier if nobody lists it any more.
func (x *listings) relatives(identifier string) []*nip34.Announcement {
	if !x.store.removes() {
		return nil
	}
	return x.feed.index.relatives(identifier)
}

// spared is how many announcements with an identifier stay that nobody lists any more, the newest:
// who is listed again, after a mistake of an old client say, is known at once.
const spared = 32

// unlisted returns which of those have to go who are not listed.
func (x *listings) unlisted(identifier string, relatives []*nip34.Announcement, heard map[graspsync.PubKey]bool) []*nip34.Announcement {
	out := slices.DeleteFunc(relatives, func(a *nip34.Announcement) bool {
		_, is := heard[a.Ref.Owner]
		return is
	})
	if len(x.policy.view.Announcements(identifier)) == 0 { // nobody is left whose repository it is about
		return out
	}
	slices.SortFunc(out, func(a, b *nip34.Announcement) int {
		if a.Stamp().Newer(b.Stamp()) {
			return -1
		}
		return 1
	})
	return out[min(spared, len(out)):]
}

// retiredAtOnce are removed that are read together: each may be half a megabyte long.
const retiredAtOnce = 16

// retire removes announcements that nobody lists any more, or that have given way to others
// who are listed. They may come again, and are asked for once they are listed. What could not
// be removed is tried with the next change there, unless the Store never can.
func (x *listings) retire(ctx context.Context, all []*nip34.Announcement) {
	for some := range slices.Chunk(all, retiredAtOnce) {
		ids := make([]graspsync.EventID, len(some))
		for i, a := range some {
			ids[i] = a.ID
		}
		events, err := x.policy.events(ctx, ids)
		for i := 0; i < len(some) && err == nil; i++ {
			err = x.remove(ctx, some[i], events[some[i].ID])
		}
		if errors.Is(err, ErrCannotRemove) {
			return
		}
		if err != nil {
			x.log.Warn("announcements that nobody lists any more could not be removed", "left", len(some), keyErr, err)
			return
		}
	}
}

// remove removes an announcement; ev is zero if it is not stored any more.
func (x *listings) remove(ctx context.Context, a *nip34.Announcement, ev graspsync.Event) error {
	if ev.IsZero() {
		x.feed.removed(graspsync.Event{Event: &nostr.Event{Kind: graspsync.KindAnnouncement}, ID: a.ID, PubKey: a.Ref.Owner})
		return nil
	}
	if err := x.store.remove(ctx, ev); err != nil {
		return err
	}
	deps := pending.KeysOf([]graspsync.Dependency{graspsync.OnWanted(a.Ref.Identifier, a.Ref.Owner), graspsync.OnRepo(a.Ref)})
	x.absences.note(pending.Note{
		Incoming: graspsync.Incoming{Event: ev, Source: graspsync.Source{Kind: graspsync.CatchUp}}, ID: a.ID, Deps: deps,
	})
	x.absences.known.Forget(a.ID)
	x.report.drop("unlisted", 1)
	x.log.Debug("an announcement that nobody lists any more was removed", keyEvent, a.ID.String())
	x.feed.removed(ev)
	x.news.withdrawn(ev)
	return nil
}

// newlyHeard returns what is fulfilled by whose word counts now that did not. A policy that
// can't tell has everybody tried.
func (x *listings) newlyHeard(identifier string, heard map[graspsync.PubKey]bool, can bool) (keys []pending.Key) {
	if can {
		return x.hearing.gained(identifier, heard)
	}
	known := make(map[graspsync.PubKey]struct{})
	for _, a := range x.policy.view.Family(identifier) {
		known[a.Ref.Owner] = struct{}{}
		for _, m := range a.Maintainers {
			known[m] = struct{}{}
		}
	}
	for who := range known {
		keys = append(keys, pending.KeyOf(graspsync.OnSay(identifier, who)), pending.KeyOf(graspsync.OnWanted(identifier, who)))
	}
	return keys
}
