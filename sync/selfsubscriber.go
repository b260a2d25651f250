package sync

import (
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/index"
	"github.com/graspsync/graspsync/sync/internal/plan"
)

// selfSubscriber collects the changes by events that our relay stores, removes or holds during one
// batch window, and makes the input of the plan from them: the wanted repositories and their relays.
// Senders never block.
type selfSubscriber struct {
	m    *SyncManager
	wake chan struct{} // one slot

	counted map[graspsync.RepoRef]graspsync.EventID // announcements with counted omissions; owned by the loop

	mu sync.Mutex
	// guarded by mu
	change  index.Change                              // of the open window
	all     bool                                      // everything counts as changed
	held    map[graspsync.RepoRef]*nip34.Announcement // by the Policy
	authors plan.Authors
}

func newSelfSubscriber(m *SyncManager) *selfSubscriber {
	return &selfSubscriber{
		m: m, wake: make(chan struct{}, 1),
		held: make(map[graspsync.RepoRef]*nip34.Announcement), counted: make(map[graspsync.RepoRef]graspsync.EventID),
	}
}

// stored adds an event to the index, and its effect to the window.
func (s *selfSubscriber) stored(ev graspsync.Event) {
	s.update(func() {
		s.add(s.m.index.Stored(ev))      // the changed repositories, root events and replies
		if len(s.authors) < maxAuthors { // reporting an author twice is harmless
			s.authors = append(s.authors, ev.PubKey)
		}
	})
}

func (s *selfSubscriber) removed(ev graspsync.Event) {
	s.update(func() {
		s.add(s.m.index.Removed(ev))
		ref := graspsync.RepoRef{Owner: ev.PubKey, Identifier: ev.Tags.GetD()}
		if h := s.held[ref]; h != nil && h.ID == ev.ID {
			delete(s.held, ref)
			s.heldChanged(h.Ref)
		}
	})
}

func (s *selfSubscriber) hold(a *nip34.Announcement) {
	a = index.WithoutEvent(a)
	s.update(func() {
		s.held[a.Ref] = a
		s.heldChanged(a.Ref)
	})
}

func (s *selfSubscriber) heldChanged(ref graspsync.RepoRef) {
	var c index.Change
	c.SetName(ref.Identifier)
	c.SetRepo(ref, s.m.index.Announcement(ref))
	s.add(c)
}

// apply applies a change of the index that a search of the Store finds.
func (s *selfSubscriber) apply(find func() index.Change) (found bool) {
	s.update(func() {
		c := find()
		found = !c.Empty()
		s.add(c)
	})
	return found
}

func (s *selfSubscriber) notifyAllChanged() { s.update(s.setAllChanged) }

func (s *selfSubscriber) add(c index.Change) {
	if s.all || s.tooMany(&c) {
		c = c.WithoutEntries()
		s.setAllChanged()
	}
	s.change.Merge(c)
	if s.tooMany(&s.change) {
		s.setAllChanged()
	}
}

// tooMany reports whether reading the whole index costs less than the changes.
func (s *selfSubscriber) tooMany(c *index.Change) bool {
	return c.Size() > s.m.cfg.constants.FeedQueue && c.Size() > s.m.index.Size()/allChangedShare
}

const allChangedShare = 4

func (s *selfSubscriber) setAllChanged() { s.change, s.all = s.change.WithoutEntries(), true }

// update runs change. If the window has changes, the loop calls closeWindow after BatchWindow.
func (s *selfSubscriber) update(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	if !s.change.Empty() || len(s.authors) > 0 || s.all {
		select {
		case s.wake <- struct{}{}:
		default:
		}
	}
}

// closeWindow passes the changes of a batch window to the plan.
func (l *loop) closeWindow(ctx context.Context) {
	change, authors, all := l.m.self.take()
	l.m.telemetry.drop("descendants", change.LeftOut)
	if change.Broken {
		l.rescanBefore(repairAfter)
	}
	if len(authors) > 0 {
		l.step(ctx, authors)
	}
	if changes := l.m.self.planChanges(change, all); all {
		l.step(ctx, plan.Snapshot(changes))
	} else {
		l.step(ctx, changes)
	}
}

// take returns the changes of the window and the new authors. all means that c is the whole index.
func (s *selfSubscriber) take() (c index.Change, authors plan.Authors, all bool) {
	s.mu.Lock()
	c, authors, all = s.change, s.authors, s.all
	s.change, s.authors, s.all = index.Change{}, nil, false
	s.mu.Unlock()
	if all {
		beside := c
		c = s.m.index.All()
		c.Merge(beside)
	}
	return c, authors, all
}

func (s *selfSubscriber) planChanges(c index.Change, all bool) plan.Changes {
	held := s.heldWithout(c)
	if all {
		for ref := range held {
			if _, also := c.Repos[ref]; !also {
				c.SetRepo(ref, nil)
			}
		}
	}
	out := plan.Changes{Roots: make([]plan.RootChange, 0, len(c.Roots))}
	relays := s.relays(held)
	follow := func(a *nip34.Announcement, level plan.Level) (left int) {
		c := plan.RepoChange{Ref: a.Ref, Level: level}
		targets, left := relays(a.Ref)
		for _, r := range targets {
			c.Relays = append(c.Relays, r.Relay)
		}
		out.Repos = append(out.Repos, c)
		return left
	}
	for ref, a := range c.Repos {
		switch {
		case a != nil:
			s.countOmitted(a, follow(a, plan.LevelFull))
		case held[ref] != nil:
			s.countOmitted(held[ref], follow(held[ref], plan.LevelStateOnly))
		default:
			delete(s.counted, ref)
			out.Repos = append(out.Repos, plan.RepoChange{Ref: ref})
		}
	}
	// A changed announcement may change the relays of other repositories with maintainers.
	also := func(a *nip34.Announcement, level plan.Level) {
		if _, changed := c.Repos[a.Ref]; !changed && slices.ContainsFunc(a.Maintainers, func(m graspsync.PubKey) bool { return m != a.Ref.Owner }) {
			follow(a, level)
		}
	}
	for name := range c.Names {
		for _, a := range s.m.index.Announcements(name) {
			also(a, plan.LevelFull)
			delete(held, a.Ref)
		}
	}
	for ref, a := range held {
		if _, changed := c.Names[ref.Identifier]; changed {
			also(a, plan.LevelStateOnly)
		}
	}
	for id, refs := range c.Roots {
		out.Roots = append(out.Roots, plan.RootChange{ID: id, Repos: refs, CreatedAt: s.m.index.RootTime(id)})
	}
	for of, refs := range c.Descendants {
		out.Descendants = append(out.Descendants, plan.DescendantChange{Of: of, Repos: refs})
	}
	return out
}

// heldWithout ends the hold of announcements that c replaces, and returns the held announcements.
func (s *selfSubscriber) heldWithout(c index.Change) map[graspsync.RepoRef]*nip34.Announcement {
	s.mu.Lock()
	defer s.mu.Unlock()
	for ref, a := range c.Repos {
		if a != nil {
			delete(s.held, ref)
		}
	}
	return maps.Clone(s.held)
}

// relays returns a function that returns the relays of a repository, as [nip34.AnnouncementSet.Targets]
// does: up to MaxRelaysPerRepo relays of the owner, then as many of maintainers, and the number of
// further relays of maintainers.
func (s *selfSubscriber) relays(held map[graspsync.RepoRef]*nip34.Announcement) func(graspsync.RepoRef) ([]nip34.Target, int) {
	waiting := make(map[string][]*nip34.Announcement)
	for ref, a := range held {
		waiting[ref.Identifier] = append(waiting[ref.Identifier], a)
	}
	rules := make(map[string]func(owner graspsync.PubKey) ([]nip34.Target, int))
	return func(ref graspsync.RepoRef) ([]nip34.Target, int) {
		rule := rules[ref.Identifier]
		if rule == nil {
			all := append(s.m.index.Family(ref.Identifier), waiting[ref.Identifier]...)
			perList := s.m.cfg.MaxRelaysPerRepo
			rule = nip34.Membership{}.AnnouncementSet(ref.Identifier, all).Targets(nip34.TargetBounds{
				MaxAuthors: nip34.ServedBounds().PerOwner, PerAuthor: perList, MaxByOthers: perList, IsUsable: s.m.isUsable,
			})
			rules[ref.Identifier] = rule
		}
		return rule(ref.Owner)
	}
}

// pending reports whether there are changes. Replies and authors do not count, because a relay counts
// as synced without.
func (s *selfSubscriber) pending() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.change
	c.Descendants, c.LeftOut = nil, 0
	return !c.Empty() || s.all
}

func (s *selfSubscriber) heldAnnouncement(ref graspsync.RepoRef) *nip34.Announcement {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.held[ref]
}

// listers returns the author who lists each relay of a repository.
func (s *selfSubscriber) listers(ref graspsync.RepoRef) map[graspsync.RelayURL]graspsync.PubKey {
	by := make(map[graspsync.RelayURL]graspsync.PubKey)
	relays, _ := s.relays(s.heldWithout(index.Change{}))(ref)
	for _, r := range relays {
		by[r.Relay] = r.ListedBy
	}
	return by
}

// countOmitted counts the omissions of an announcement once. others is the number of relays without
// room that only maintainers list.
func (s *selfSubscriber) countOmitted(a *nip34.Announcement, others int) {
	if s.counted[a.Ref] == a.ID {
		return
	}
	s.counted[a.Ref] = a.ID
	m := s.m
	followed := a.Relays[:min(len(a.Relays), m.cfg.MaxRelaysPerRepo)]
	plaintext, blocked := 0, 0
	for _, u := range followed {
		switch {
		case m.isOurs(u):
		case m.forbidsPlaintext(u):
			plaintext++
		case m.blockedRelay(u):
			blocked++
		}
	}
	m.telemetry.drop("plaintext", plaintext)
	m.telemetry.drop("blocked", blocked)
	m.telemetry.drop("relays_listed", a.DroppedRelays+len(a.Relays)-len(followed))
	m.telemetry.drop("relays_others", others)
	m.telemetry.drop("relays_unusable", a.UnusableRelays)
	m.telemetry.drop("clones_listed", a.DroppedClones)
	m.telemetry.drop("clones_unusable", a.UnusableClones)
	m.telemetry.drop("maintainers_listed", a.DroppedMaintainers)
	m.telemetry.drop("maintainers_unusable", a.UnusableMaintainers)
}

func (m *SyncManager) isUsable(u graspsync.RelayURL) bool {
	return !m.isOurs(u) && !m.forbidsPlaintext(u) && !m.blockedRelay(u)
}

func (m *SyncManager) blockedRelay(u graspsync.RelayURL) bool {
	return m.cfg.Rules != nil && m.cfg.Rules.BlocksRelay(u)
}

func (m *SyncManager) isOurs(u graspsync.RelayURL) bool {
	return m.identity.IsRelay(u) || u == m.cfg.OwnRelay
}

func (m *SyncManager) forbidsPlaintext(u graspsync.RelayURL) bool {
	return u.Plaintext() && !m.cfg.AllowPlaintext
}
