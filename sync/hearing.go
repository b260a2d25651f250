package sync

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/absent"
	"github.com/graspsync/graspsync/sync/internal/lazy"
)

// maxHeard is of how many people it is remembered that what they say counts, of all
// identifiers together. Of an identifier that is forgotten all that waits is judged again
// with the next announcement.
const maxHeard = 100_000

// hearing is whose word counts under which identifiers, as far as it was asked and nothing
// was judged since that shows otherwise: what is by those who have gained something is judged
// again. True is for those whose states count as well. It belongs to the writer.
type hearing struct {
	of     map[string]map[graspsync.PubKey]bool
	people int
}

// gained returns what is fulfilled by who is heard now and was not, and remembers who is.
func (h *hearing) gained(identifier string, heard map[graspsync.PubKey]bool) (keys []absent.Key) {
	before := h.of[identifier]
	for k, say := range heard {
		had, was := before[k]
		if !was {
			keys = append(keys, absent.KeyOf(graspsync.OnWanted(identifier, k)))
		}
		if say && !had {
			keys = append(keys, absent.KeyOf(graspsync.OnSay(identifier, k)))
		}
	}
	h.forget(identifier)
	if len(heard) == 0 || len(heard) > maxHeard {
		return keys
	}
	for other := range h.of {
		if h.people+len(heard) <= maxHeard {
			break
		}
		h.forget(other)
	}
	h.people += len(heard)
	lazy.Put(&h.of, identifier, maps.Clone(heard))
	return keys
}

func (h *hearing) forget(identifier string) {
	h.people -= len(h.of[identifier])
	delete(h.of, identifier)
}

// waits takes note of what an event waits for now: whoever has to gain that has lost it.
func (h *hearing) waits(deps []graspsync.Dependency) {
	for _, d := range deps {
		heard := h.of[d.Text]
		say, is := heard[d.Author]
		switch {
		case !is:
		case d.Await == graspsync.AwaitSay && say:
			heard[d.Author] = false
		case d.Await == graspsync.AwaitWanted:
			delete(heard, d.Author)
			h.people--
		}
	}
}

// withdrawn has the writer see whether there are others under an identifier whose word counts
// since an announcement is gone: there was no room for them beside those whom it listed.
func (g *ingest) withdrawn(ev *nostr.Event) {
	if ev.Kind == graspsync.KindAnnouncement {
		g.announced(ev)
		g.wakeFor(nil)
	}
}

// announced takes note that there may be others under an identifier whose word counts.
func (g *ingest) announced(ev *nostr.Event) {
	if ev.Kind != graspsync.KindAnnouncement {
		return
	}
	if a, err := nip34.ParseAnnouncement(ev); err == nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		if len(g.changed) < g.cfg.fixed.FeedQueue {
			lazy.Put(&g.changed, strings.Clone(a.Ref.Identifier), struct{}{})
		} else {
			g.overrun, g.unsure = true, true
		}
	}
}

// heard returns what is to be judged again since announcements have come or gone, and has those
// removed that were stored for nothing but that they were listed. The policy is asked once for
// each identifier, however many have.
func (g *ingest) heard(ctx context.Context) (woken []*absent.Whole) {
	stored, all := g.feed.index.takeNews()
	g.mu.Lock()
	changed, unsure := g.changed, all || g.unsure
	g.changed, g.unsure = nil, false
	g.mu.Unlock()
	if all {
		woken = append(woken, g.absent.Anything()...)
	}
	if unsure {
		for _, identifier := range g.feed.index.related() {
			lazy.Put(&changed, identifier, struct{}{})
		}
	}
	for identifier := range stored {
		lazy.Put(&changed, identifier, struct{}{})
	}
	for _, identifier := range slices.Sorted(maps.Keys(changed)) {
		relatives := g.relatives(identifier)
		idle := g.absent.Idle() // who is heard meanwhile has nothing that waits
		if idle {
			g.hearing.forget(identifier)
		}
		if idle && len(relatives) == 0 {
			continue
		}
		heard, can := g.hear(identifier)
		if can {
			g.retire(ctx, g.unlisted(identifier, relatives, heard))
		}
		if idle {
			continue
		}
		keys := slices.DeleteFunc(g.newlyHeard(identifier, heard, can), func(k absent.Key) bool { return !g.absent.Awaits(k) })
		woken = append(woken, g.arrived(ctx, keys)...)
	}
	return woken
}

// relatives returns what may be removed under an identifier if nobody lists it any more.
func (g *ingest) relatives(identifier string) []*nip34.Announcement {
	if _, can := g.store.(Remover); !can {
		return nil
	}
	return g.feed.index.relatives(identifier)
}

// spared is how many announcements with an identifier stay that nobody lists any more, the newest:
// who is listed again, after a mistake of an old client say, is known at once.
const spared = 32

// unlisted returns which of those have to go who are not listed.
func (g *ingest) unlisted(identifier string, relatives []*nip34.Announcement, heard map[graspsync.PubKey]bool) []*nip34.Announcement {
	out := slices.DeleteFunc(relatives, func(a *nip34.Announcement) bool {
		_, is := heard[a.Ref.Owner]
		return is
	})
	if len(g.view.Announcements(identifier)) == 0 { // nobody is left whose repository it is about
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
// who are listed. They may come again, and are asked for once they are listed. What can't
// be removed is tried with the next change there.
func (g *ingest) retire(ctx context.Context, all []*nip34.Announcement) {
	for some := range slices.Chunk(all, retiredAtOnce) {
		ids := make([]graspsync.EventID, len(some))
		for i, a := range some {
			ids[i] = a.ID
		}
		events, err := g.view.Events(ctx, ids)
		for i := 0; i < len(some) && err == nil; i++ {
			err = g.remove(ctx, some[i], events[some[i].ID])
		}
		if err != nil {
			g.cfg.Logger.Warn("announcements that nobody lists any more could not be removed", "left", len(some), keyErr, err)
			return
		}
	}
}

// remove removes an announcement; ev is nil if it is not stored any more.
func (g *ingest) remove(ctx context.Context, a *nip34.Announcement, ev *nostr.Event) error {
	if ev == nil {
		ev = &nostr.Event{ID: a.ID.String(), Kind: graspsync.KindAnnouncement}
		g.feed.removed(ev)
		return nil
	}
	if err := g.removeStored(ctx, ev); err != nil {
		return err
	}
	deps := absent.KeysOf([]graspsync.Dependency{graspsync.OnWanted(a.Ref.Identifier, a.Ref.Owner), graspsync.OnRepo(a.Ref)})
	g.note(absent.Note{
		Incoming: graspsync.Incoming{Event: ev, Source: graspsync.Source{Kind: graspsync.CatchUp}}, ID: a.ID, Deps: deps,
	})
	g.known.Forget(a.ID)
	g.report.drop("unlisted", 1)
	g.cfg.Logger.Debug("an announcement that nobody lists any more was removed", keyEvent, a.ID.String())
	g.feed.removed(ev)
	g.withdrawn(ev)
	return nil
}

func (g *ingest) removeStored(ctx context.Context, ev *nostr.Event) (err error) {
	defer g.report.recovered(&err, "store")
	ctx, cancel := context.WithTimeout(ctx, g.cfg.Times.StoreTimeout)
	defer cancel()
	store, can := g.store.(Remover)
	if !can {
		return nil
	}
	return store.Remove(ctx, ev)
}

// hear asks the policy whose word counts under an identifier; false: it can't tell.
func (g *ingest) hear(identifier string) (map[graspsync.PubKey]bool, bool) {
	policy, can := g.policy.(Hearer)
	if !can {
		return nil, false
	}
	heard, err := g.askHearer(policy, identifier)
	return heard, err == nil
}

// newlyHeard returns what is fulfilled by whose word counts now that did not. A policy that
// can't tell has everybody tried.
func (g *ingest) newlyHeard(identifier string, heard map[graspsync.PubKey]bool, can bool) (keys []absent.Key) {
	if can {
		return g.hearing.gained(identifier, heard)
	}
	known := make(map[graspsync.PubKey]struct{})
	for _, a := range g.view.Family(identifier) {
		known[a.Ref.Owner] = struct{}{}
		for _, m := range a.Maintainers {
			known[m] = struct{}{}
		}
	}
	for who := range known {
		keys = append(keys, absent.KeyOf(graspsync.OnSay(identifier, who)), absent.KeyOf(graspsync.OnWanted(identifier, who)))
	}
	return keys
}

func (g *ingest) askHearer(policy Hearer, identifier string) (heard map[graspsync.PubKey]bool, err error) {
	defer g.report.recovered(&err, "policy")
	heard = policy.Heard(identifier, g.view)
	if heard == nil {
		return nil, fmt.Errorf("%w: who is heard", errVerdict)
	}
	return heard, nil
}
