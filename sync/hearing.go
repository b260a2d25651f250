package sync

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/nip34"
)

// maxHeard is of how many people it is remembered that what they say counts, of all
// identifiers together. Of an identifier that is forgotten all that waits is judged again
// with the next announcement.
const maxHeard = 100_000

// hearing is whose word counts under which identifiers, as far as it was asked and nothing
// was judged since that shows otherwise: what is by those who have gained something is judged
// again. True is for those whose states count as well. It belongs to the writer.
type hearing struct {
	of     map[string]map[filters.PubKey]bool
	people int
}

// gained returns what is fulfilled by who is heard now and was not, and remembers who is.
func (h *hearing) gained(identifier string, heard map[filters.PubKey]bool) (keys []depKey) {
	before := h.of[identifier]
	for k, say := range heard {
		had, was := before[k]
		if !was {
			keys = append(keys, OnWanted(identifier, k).key())
		}
		if say && !had {
			keys = append(keys, OnSay(identifier, k).key())
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
	put(&h.of, identifier, maps.Clone(heard))
	return keys
}

func (h *hearing) forget(identifier string) {
	h.people -= len(h.of[identifier])
	delete(h.of, identifier)
}

// waits takes note of what an event waits for now: whoever has to gain that has lost it.
func (h *hearing) waits(deps []Dependency) {
	for _, d := range deps {
		heard := h.of[d.text]
		say, is := heard[d.author]
		switch {
		case !is:
		case d.what == onSay && say:
			heard[d.author] = false
		case d.what == onWanted:
			delete(heard, d.author)
			h.people--
		}
	}
}

// withdrawn has the writer see whether there are others under an identifier whose word counts
// since an announcement is gone: there was no room for them beside those whom it listed.
func (g *ingest) withdrawn(ev *nostr.Event) {
	if ev.Kind == filters.KindAnnouncement {
		g.announced(ev)
		g.wakeFor(nil)
	}
}

// announced takes note that there may be others under an identifier whose word counts.
func (g *ingest) announced(ev *nostr.Event) {
	if ev.Kind != filters.KindAnnouncement {
		return
	}
	if a, err := nip34.ParseAnnouncement(ev); err == nil {
		g.mu.Lock()
		defer g.mu.Unlock()
		if len(g.changed) < g.cfg.FeedQueue {
			put(&g.changed, strings.Clone(a.Ref.Identifier), struct{}{})
		} else {
			g.overrun = true
		}
	}
}

// heard returns what is to be judged again since announcements have come or gone. The policy
// is asked once for each identifier, however many have.
func (g *ingest) heard(ctx context.Context) (woken []*waitingEvent) {
	stored, all := g.feed.index.takeNews()
	g.mu.Lock()
	changed := g.changed
	g.changed = nil
	g.mu.Unlock()
	if all {
		woken = append(woken, g.rejected.anything()...)
	}
	for identifier := range stored {
		put(&changed, identifier, struct{}{})
	}
	for _, identifier := range slices.Sorted(maps.Keys(changed)) {
		if g.rejected.idle() { // who is heard meanwhile has nothing that waits
			g.hearing.forget(identifier)
			continue
		}
		keys := slices.DeleteFunc(g.newlyHeard(identifier), func(k depKey) bool { return !g.rejected.awaits(k) })
		woken = append(woken, g.arrived(ctx, keys)...)
	}
	return woken
}

// newlyHeard returns what is fulfilled by whose word counts now that did not. A policy that
// can't tell has everybody tried.
func (g *ingest) newlyHeard(identifier string) (keys []depKey) {
	if policy, can := g.policy.(Hearer); can {
		if heard, err := g.askHearer(policy, identifier); err == nil {
			return g.hearing.gained(identifier, heard)
		}
	}
	known := make(map[filters.PubKey]struct{})
	for _, a := range g.view.Family(identifier) {
		known[a.Ref.Owner] = struct{}{}
		for _, m := range a.Maintainers {
			known[m] = struct{}{}
		}
	}
	for who := range known {
		keys = append(keys, OnSay(identifier, who).key(), OnWanted(identifier, who).key())
	}
	return keys
}

func (g *ingest) askHearer(policy Hearer, identifier string) (heard map[filters.PubKey]bool, err error) {
	defer g.counters.recovered(&err, "policy")
	heard = policy.Heard(identifier, g.view)
	if heard == nil {
		return nil, fmt.Errorf("%w: who is heard", errVerdict)
	}
	return heard, nil
}
