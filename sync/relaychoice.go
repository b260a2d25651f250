package sync

import (
	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/index"
)

// relayFilter decides which relays may be followed.
type relayFilter struct {
	index     *index.Index
	identity  nip34.Identity
	own       graspsync.RelayURL // [Config.OwnRelay]
	plaintext bool               // ws:// is allowed
	most      int                // maximum number of relays of a repository
	operator  Rules              // may be nil
}

// targets returns an empty relayTargets for the current index.
func (t *relayFilter) targets() *relayChoice {
	return &relayChoice{
		index: t.index, most: t.most, usable: t.usable,
		given: make(map[string][]*nip34.Announcement),
		rules: make(map[string]func(owner graspsync.PubKey) ([]nip34.Target, int)),
	}
}

// usable reports whether a relay may be followed.
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

// relayChoice computes the relays of repositories ([nip34.AnnouncementSet.Targets]), once per
// identifier.
type relayChoice struct {
	index  *index.Index
	most   int // maximum number of relays of a repository
	usable func(graspsync.RelayURL) bool
	given  map[string][]*nip34.Announcement // additional announcements by identifier
	rules  map[string]func(owner graspsync.PubKey) ([]nip34.Target, int)
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
		all := append(s.index.Family(ref.Identifier), s.given[ref.Identifier]...)
		rule = nip34.Membership{}.Family(ref.Identifier, all).Targets(nip34.TargetBounds{
			People: nip34.ServedBounds().Each,
			Each:   s.most, Most: s.most, Usable: s.usable,
		})
		s.rules[ref.Identifier] = rule
	}
	return rule(ref.Owner)
}
