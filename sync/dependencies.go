package sync

import (
	"maps"
	"slices"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/pending"
)

// followHeld follows the repository of a held announcement, and returns the dependencies that a held
// event fulfills.
func (g *ingest) followHeld(ev graspsync.Event) []pending.Key {
	keys := append(pending.Fulfils(ev, false), pending.KeyOf(graspsync.OnHeldBy(ev.PubKey)))
	if a := g.index.ListedBy(ev); a != nil {
		g.self.hold(a)
	}
	g.index.HeldChanged(ev)
	if a, err := nip34.ParseAnnouncement(ev); err == nil {
		if g.recognized(a.Ref.Identifier) == nil {
			keys = append(keys, onRecognized(a)...)
		}
	}
	return keys
}

// onRecognized returns the dependencies on the role of the people in an announcement.
func onRecognized(a *nip34.Announcement) (keys []pending.Key) {
	for _, who := range append([]graspsync.PubKey{a.Ref.Owner}, a.Maintainers...) {
		keys = append(keys, pending.KeyOf(graspsync.OnBecomesMaintainer(a.Ref.Identifier, who)),
			pending.KeyOf(graspsync.OnBecomesListed(a.Ref.Identifier, who)))
	}
	return keys
}

// awaited adds to keys the awaited dependencies that a stored event fulfills.
func (g *ingest) awaited(ev graspsync.Event, keys map[pending.Key]struct{}) {
	if g.rejected.Idle() {
		return
	}
	all := pending.Fulfils(ev, true)
	if a, err := nip34.ParseAnnouncement(ev); err == nil { // its owner and maintainers may be recognized now
		all = append(all, onRecognized(a)...)
	}
	for _, k := range all {
		if g.rejected.Awaits(k) {
			keys[k] = struct{}{}
		}
	}
}

// wakeForStored judges the events again that wait for an event stored without the writer.
func (g *ingest) wakeForStored(ev graspsync.Event) {
	g.wakeFor(pending.Fulfils(ev, true))
}

func (g *ingest) holdEnded(ev graspsync.Event) {
	g.index.HeldChanged(ev)
	g.wakeFor(nil)
}

// resumePending resumes the pending events of the previous process. keys are their dependencies,
// which may have been stored since.
func (g *ingest) resumePending(keys map[pending.Key]struct{}) {
	g.wakeFor(slices.Collect(maps.Keys(keys)))
	for relay, ids := range g.rejected.Wanted() {
		g.refetch(relay, ids)
	}
}

// removed records an event that our relay has removed. It is requested again only if the rule that
// blocks it is lifted or an operator asks for it.
func (g *ingest) removed(ev graspsync.Event) {
	deps := []graspsync.Dependency{graspsync.OnOperatorRequest(ev.ID)}
	if reason, until := g.cfg.blocks(ev); reason != "" {
		deps = append(deps, until...)
	}
	g.remember(pending.Note{Incoming: graspsync.Incoming{Event: ev}, ID: ev.ID, Deps: pending.KeysOf(deps), Accepted: countsAgain(ev)})
	g.known.Forget(ev.ID) // last, or a copy that arrives in between would be stored
}

// displaced schedules another judgment of an event that the Policy dropped for lack of room.
func (g *ingest) displaced(ev graspsync.Event) {
	n, known := g.inflight.heldNote(ev.ID, true)
	if !known { // held before a restart
		n.Incoming.Source.Kind = graspsync.CatchUp
	}
	if n.Size == 0 {
		n.Size = min(memorySize(ev, len(ev.String())), g.cfg.InFlight)
	}
	n.Incoming.Event, n.ID, n.Later = ev, ev.ID, true
	g.remember(n)
	g.known.Forget(ev.ID)
}

func (g *ingest) heldForUser(id graspsync.EventID) (byUser, held bool) {
	if g.cfg.Holder == nil {
		return false, false
	}
	var err error
	defer g.telemetry.recovered(&err, "policy") // a panicking Policy cannot tell
	return g.cfg.Holder.HeldForUser(id)
}

// heldFrom returns the origin of a held event, and removes its record if the hold has ended.
func (g *ingest) heldFrom(id graspsync.EventID, ended bool) pending.Note {
	n, known := g.inflight.heldNote(id, ended)
	if !known {
		if byUser, held := g.heldForUser(id); held && !byUser {
			n.Incoming.Source.Kind = graspsync.CatchUp
		}
	}
	return n
}

// count counts an event that was stored without the writer.
func (g *ingest) count(ev graspsync.Event) {
	if _, held := g.inflight.heldNote(ev.ID, false); !held && (g.isProcessed(ev.ID) || g.inflight.has(ev.ID)) {
		return // the writer has counted it
	}
	h := g.heldFrom(ev.ID, true)
	src := h.Incoming.Source
	g.telemetry.logEvent("event stored", graspsync.Incoming{Event: ev, Source: src})
	if src.Kind == graspsync.Direct {
		g.telemetry.sources[graspsync.Direct].Add(1)
		return
	}
	g.telemetry.outcome(src.Kind, graspsync.Stored)
	g.telemetry.observe(Observation{Is: IsStored, Source: src, Event: ev})
	if stats, _ := h.Payer.(*relayStats); stats != nil {
		stats.stored.Add(1)
	}
}

// wakeFor makes the writer judge the events again that wait for any of keys. It never blocks. Beyond
// a limit all pending events are judged again.
func (g *ingest) wakeFor(keys []pending.Key) {
	if g.wakeups.put(keys) > maxFulfilled {
		g.wakeups.take() // before wakeupsDropped, which then covers all that is dropped
		g.wakeupsDropped.Store(true)
		g.wakeups.put(nil)
	}
}

// maxFulfilled is the maximum number of waiting calls of wakeFor. One call has up to 1,000 keys.
const maxFulfilled = 3_000

// maxHeld exceeds the room of any purgatory.
const maxHeld = 100_000

func (i *inflight) addHeld(n pending.Note) {
	n.Incoming.Event = graspsync.Event{} // to save memory
	i.mu.Lock()
	defer i.mu.Unlock()
	if _, known := i.held[n.ID]; !known && len(i.held) < maxHeld {
		i.held[n.ID] = n
	}
}

// heldNote returns the origin of a held event, and removes it if take is set.
func (i *inflight) heldNote(id graspsync.EventID, take bool) (pending.Note, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	n, known := i.held[id]
	if take {
		delete(i.held, id)
	}
	return n, known
}

func (g *ingest) recognized(identifier string) (authors map[graspsync.PubKey]bool) {
	var err error
	defer g.telemetry.recovered(&err, "policy") // a panicking Policy cannot tell
	return g.policy.RecognizedAuthors(identifier, g.view)
}

func (g *ingest) authority(ref graspsync.RepoRef) *nip34.Authority {
	var err error
	defer g.telemetry.recovered(&err, "policy")
	return g.policy.Authority(ref, g.view)
}
