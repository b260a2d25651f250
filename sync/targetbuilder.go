package sync

import (
	"slices"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/index"
	"github.com/graspsync/graspsync/sync/internal/lazy"
	"github.com/graspsync/graspsync/sync/internal/plan"
)

// targetBuilder turns changes of the index and of held announcements into inputs of the plan: the
// wanted repositories and their relays.
type targetBuilder struct {
	m *SyncManager

	held map[graspsync.RepoRef]*nip34.Announcement // held by the Policy

	counted map[graspsync.RepoRef]omittedCounts // of followed repositories
}

// omittedCounts are the already counted omissions of a repository.
type omittedCounts struct {
	of     graspsync.EventID // its announcement
	relays int               // relays without room that only other maintainers list
}

// hold updates the held announcements.
func (w *targetBuilder) hold(b *selfBatch) {
	changed := func(ref graspsync.RepoRef) {
		b.change.SetName(ref.Identifier)
		if _, also := b.change.Repos[ref]; !also {
			b.change.SetRepo(ref, w.m.index.Announcement(ref))
		}
	}
	for ref, a := range b.held {
		w.held[ref] = a
		changed(ref)
	}
	for _, a := range b.unheld {
		if h := w.held[a.Ref]; h != nil && h.ID == a.ID {
			delete(w.held, a.Ref)
			changed(a.Ref)
		}
	}
}

// changes returns the plan input for a change of the index.
func (w *targetBuilder) changes(c index.Change) plan.Changes {
	var out plan.Changes
	s := w.m.newRelayChoice()
	s.give(c.Repos)
	s.give(w.held)
	for ref, a := range c.Repos {
		change := plan.RepoChange{Ref: ref}
		if a != nil {
			change.Level = plan.LevelFull
			delete(w.held, ref)
		} else if a = w.held[ref]; a != nil {
			change.Level = plan.LevelStateOnly
		}
		if a != nil {
			w.countDropped(a)
			w.follow(s, &change)
		} else {
			delete(w.counted, ref)
		}
		out.Repos = append(out.Repos, change)
	}
	for ref, level := range w.alsoAffected(c.Names) {
		if _, changed := c.Repos[ref]; !changed {
			change := plan.RepoChange{Ref: ref, Level: level}
			w.follow(s, &change)
			out.Repos = append(out.Repos, change)
		}
	}
	out.Roots = make([]plan.RootChange, 0, len(c.Roots))
	for id, refs := range c.Roots {
		out.Roots = append(out.Roots, plan.RootChange{ID: id, Repos: refs, CreatedAt: w.m.index.RootTime(id)})
	}
	for of, refs := range c.Descendants {
		out.Descendants = append(out.Descendants, plan.DescendantChange{Of: of, Repos: refs})
	}
	return out
}

func (w *targetBuilder) follow(s *relayChoice, c *plan.RepoChange) {
	relays, left := s.of(c.Ref)
	for _, r := range relays {
		c.Relays = append(c.Relays, r.Relay)
	}
	counted := w.counted[c.Ref]
	w.m.telemetry.drop("relays_others", max(0, left-counted.relays))
	counted.relays = left
	lazy.Put(&w.counted, c.Ref, counted)
}

// countDropped counts the omissions of an announcement.
func (w *targetBuilder) countDropped(a *nip34.Announcement) {
	counted := w.counted[a.Ref]
	if counted.of == a.ID {
		return
	}
	counted.of = a.ID
	lazy.Put(&w.counted, a.Ref, counted)
	followed := a.Relays[:min(len(a.Relays), w.m.cfg.Limits.MaxRelaysPerRepo)]
	plaintext, blocked := 0, 0
	for _, u := range followed {
		switch {
		case w.m.isOurs(u):
		case w.m.tooPlain(u):
			plaintext++
		case w.m.blockedRelay(u):
			blocked++
		}
	}
	w.m.telemetry.drop("plaintext", plaintext)
	w.m.telemetry.drop("blocked", blocked)
	w.m.telemetry.drop("relays_listed", a.DroppedRelays+len(a.Relays)-len(followed))
	w.m.telemetry.drop("relays_unusable", a.UnusableRelays)
	w.m.telemetry.drop("clones_listed", a.DroppedClones)
	w.m.telemetry.drop("clones_unusable", a.UnusableClones)
	w.m.telemetry.drop("maintainers_listed", a.DroppedMaintainers)
	w.m.telemetry.drop("maintainers_unusable", a.UnusableMaintainers)
}

// alsoAffected returns the repositories under these identifiers that list maintainers, with their
// levels.
func (w *targetBuilder) alsoAffected(names map[string]struct{}) map[graspsync.RepoRef]plan.Level {
	out := make(map[graspsync.RepoRef]plan.Level)
	add := func(a *nip34.Announcement, level plan.Level) {
		if slices.ContainsFunc(a.Maintainers, func(m graspsync.PubKey) bool { return m != a.Ref.Owner }) {
			out[a.Ref] = level
		}
	}
	if len(names) > 0 {
		for ref, a := range w.held {
			if _, changed := names[ref.Identifier]; changed {
				add(a, plan.LevelStateOnly)
			}
		}
	}
	for name := range names {
		for _, a := range w.m.index.Announcements(name) {
			add(a, plan.LevelFull)
		}
	}
	return out
}

// listers returns the author who lists each relay of a repository.
func (w *targetBuilder) listers(ref graspsync.RepoRef) map[graspsync.RelayURL]graspsync.PubKey {
	s := w.m.newRelayChoice()
	s.give(w.held)
	by := make(map[graspsync.RelayURL]graspsync.PubKey)
	relays, _ := s.of(ref)
	for _, r := range relays {
		by[r.Relay] = r.By
	}
	return by
}

// withHeld adds the held repositories to a change of everything.
func (w *targetBuilder) withHeld(c *index.Change) {
	for ref := range w.held {
		if _, announced := c.Repos[ref]; !announced {
			c.SetRepo(ref, nil)
		}
	}
}

// usable reports whether a relay may be followed.
func (m *SyncManager) usable(u graspsync.RelayURL) bool {
	return !m.isOurs(u) && !m.tooPlain(u) && !m.blockedRelay(u)
}

func (m *SyncManager) blockedRelay(u graspsync.RelayURL) bool {
	return m.cfg.Rules != nil && m.cfg.Rules.BlocksRelay(u)
}

func (m *SyncManager) isOurs(u graspsync.RelayURL) bool {
	return m.identity.IsRelay(u) || u == m.cfg.OwnRelay
}

func (m *SyncManager) tooPlain(u graspsync.RelayURL) bool {
	return u.Plaintext() && !m.cfg.AllowPlaintext
}

// relayChoice computes the relays of repositories ([nip34.AnnouncementSet.Targets]), once per
// identifier.
type relayChoice struct {
	m     *SyncManager
	given map[string][]*nip34.Announcement // additional announcements by identifier
	rules map[string]func(owner graspsync.PubKey) ([]nip34.Target, int)
}

func (m *SyncManager) newRelayChoice() *relayChoice {
	return &relayChoice{
		m: m, given: make(map[string][]*nip34.Announcement),
		rules: make(map[string]func(owner graspsync.PubKey) ([]nip34.Target, int)),
	}
}

// give adds announcements that are not stored. It must be called before of.
func (s *relayChoice) give(held map[graspsync.RepoRef]*nip34.Announcement) {
	for ref, a := range held {
		if a != nil {
			s.given[ref.Identifier] = append(s.given[ref.Identifier], a)
		}
	}
}

// of returns the relays of a repository. left is the number of relays that only other maintainers
// list and that exceed the limit.
func (s *relayChoice) of(ref graspsync.RepoRef) ([]nip34.Target, int) {
	rule := s.rules[ref.Identifier]
	if rule == nil {
		// The order of members is the same on all servers.
		all := append(s.m.index.Family(ref.Identifier), s.given[ref.Identifier]...)
		rule = nip34.Membership{}.Family(ref.Identifier, all).Targets(nip34.TargetBounds{
			People: nip34.ServedBounds().Each,
			Each:   s.m.cfg.Limits.MaxRelaysPerRepo, Most: s.m.cfg.Limits.MaxRelaysPerRepo, Usable: s.m.usable,
		})
		s.rules[ref.Identifier] = rule
	}
	return rule(ref.Owner)
}
