package sync

import (
	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// targets tells at which relays repositories are followed: [nip34.Family.Targets] of what is known
// at one moment, worked out once for each identifier.
type targets struct {
	index  *index
	most   int // relays of a repository
	usable func(graspsync.RelayURL) bool
	given  map[string][]*nip34.Announcement // by identifier: what is not stored, or was just before
	rules  map[string]func(owner graspsync.PubKey) ([]nip34.Target, int)
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
		all := append(s.index.Family(ref.Identifier), s.given[ref.Identifier]...)
		rule = nip34.Membership{}.Family(ref.Identifier, all).Targets(nip34.TargetBounds{
			People: nip34.ServedBounds().Each,
			Each:   s.most, Most: s.most, Usable: s.usable,
		})
		s.rules[ref.Identifier] = rule
	}
	return rule(ref.Owner)
}
