package sync

import (
	"slices"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/plan"
)

// targets tells at which relays repositories are followed: [nip34.Family.Targets] of what is known
// at one moment, worked out once for each identifier.
type targets struct {
	m     *SyncManager
	given map[string][]*nip34.Announcement // by identifier: what is not stored, or was just before
	rules map[string]func(owner graspsync.PubKey) ([]nip34.Target, int)
}

func (m *SyncManager) newTargets() *targets {
	return &targets{
		m:     m,
		given: make(map[string][]*nip34.Announcement),
		rules: make(map[string]func(owner graspsync.PubKey) ([]nip34.Target, int)),
	}
}

// give has announcements count besides those that are stored. It comes before of.
func (s *targets) give(held map[graspsync.RepoRef]*nip34.Announcement) {
	for ref, a := range held {
		if a != nil {
			s.given[ref.Identifier] = append(s.given[ref.Identifier], a)
		}
	}
}

// of returns the relays of a repository, and how many found no room among those that its owner
// does not name.
func (s *targets) of(ref graspsync.RepoRef) ([]nip34.Target, int) {
	rule := s.rules[ref.Identifier]
	if rule == nil {
		// Who has a say comes first as servers agree on it, whatever counts here.
		all := append(s.m.index.Family(ref.Identifier), s.given[ref.Identifier]...)
		rule = nip34.Membership{}.Family(ref.Identifier, all).Targets(nip34.TargetBounds{
			People: nip34.ServedBounds().Each,
			Each:   s.m.cfg.Limits.MaxRelaysPerRepo, Most: s.m.cfg.Limits.MaxRelaysPerRepo, Usable: s.m.usable,
		})
		s.rules[ref.Identifier] = rule
	}
	return rule(ref.Owner)
}

// usable reports whether a relay is none of ours, and one that may be connected to.
func (m *SyncManager) usable(u graspsync.RelayURL) bool {
	return !m.ours(u) && !m.tooPlain(u)
}

func (m *SyncManager) ours(u graspsync.RelayURL) bool {
	return m.identity.IsRelay(u) || u == m.cfg.OwnRelay
}

func (m *SyncManager) tooPlain(u graspsync.RelayURL) bool {
	return u.Plaintext() && !m.cfg.AllowPlaintext
}

// relatives returns the repositories under some identifiers whose owners list somebody, and how
// much is wanted of them: announcements of others may change where they are followed.
func (l *loop) relatives(names map[string]struct{}) map[graspsync.RepoRef]plan.Level {
	out := make(map[graspsync.RepoRef]plan.Level)
	add := func(a *nip34.Announcement, level plan.Level) {
		if slices.ContainsFunc(a.Maintainers, func(m graspsync.PubKey) bool { return m != a.Ref.Owner }) {
			out[a.Ref] = level
		}
	}
	if len(names) > 0 {
		for ref, a := range l.held {
			if _, changed := names[ref.Identifier]; changed {
				add(a, plan.LevelStateOnly)
			}
		}
	}
	for name := range names {
		for _, a := range l.m.index.Announcements(name) {
			add(a, plan.LevelFull)
		}
	}
	return out
}
