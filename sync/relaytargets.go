package sync

import (
	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// targeting says which relays may be followed at all.
type relayFilter struct {
	index     *eventIndex
	identity  nip34.Identity
	own       graspsync.RelayURL // [Config.OwnRelay]
	plaintext bool               // relays without encryption may be
	most      int                // relays of a repository
	operator  Rules              // nil: there are none
}

// begin returns what tells of repositories as they are now.
func (t *relayFilter) targets() *relayTargets {
	return &relayTargets{
		index: t.index, most: t.most, usable: t.usable,
		given: make(map[string][]*nip34.Announcement),
		rules: make(map[string]func(owner graspsync.PubKey) ([]nip34.Target, int)),
	}
}

// usable reports whether a relay is none of ours, and one that may be connected to.
func (t *relayFilter) usable(u graspsync.RelayURL) bool {
	return !t.ours(u) && !t.tooPlain(u) && !t.blocked(u)
}

func (t *relayFilter) blocked(u graspsync.RelayURL) bool {
	return t.operator != nil && t.operator.BlocksRelay(u)
}

func (t *relayFilter) ours(u graspsync.RelayURL) bool {
	return t.identity.IsRelay(u) || u == t.own
}

func (t *relayFilter) tooPlain(u graspsync.RelayURL) bool {
	return u.Plaintext() && !t.plaintext
}

// unreachable returns why a relay is never connected to, "" for others.
func (t *relayFilter) unreachable(u graspsync.RelayURL) OmitReason {
	switch {
	case !u.HostPort().Resolvable():
		return OmitUnresolvable
	case t.tooPlain(u):
		return OmitPlaintext
	}
	return ""
}

// targets tells at which relays repositories are followed: [nip34.Family.Targets] of what is known
// at one moment, worked out once for each identifier.
type relayTargets struct {
	index  *eventIndex
	most   int // relays of a repository
	usable func(graspsync.RelayURL) bool
	given  map[string][]*nip34.Announcement // by identifier: what is not stored, or was just before
	rules  map[string]func(owner graspsync.PubKey) ([]nip34.Target, int)
}

// give has announcements count besides those that are stored. It comes before of.
func (s *relayTargets) give(held map[graspsync.RepoRef]*nip34.Announcement) {
	for ref, a := range held {
		if a != nil {
			s.given[ref.Identifier] = append(s.given[ref.Identifier], a)
		}
	}
}

// of returns the relays of a repository, and how many found no room among those that its owner
// does not name.
func (s *relayTargets) of(ref graspsync.RepoRef) ([]nip34.Target, int) {
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
