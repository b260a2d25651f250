package sync

import (
	"context"
	"iter"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// A Policy decides which events the relay stores, synced and submitted ones. All methods may be
// called concurrently. Judge is called for verified events, and must neither change the event nor
// use the network. After an error the event is judged again.
//
// Lists reports whether an announcement makes its repository a hosted one. It must be a pure
// function, because it is also called for announcements with unchecked signatures. An announcement
// that Lists refuses is rejected without a call of Judge, unless [View].Knows its author under the
// identifier, or RecognizedAuthors contains the author or is nil.
//
// A Policy that extends another Policy embeds it. The embedded Policy does not call methods of the
// outer Policy. To host other repositories, set [GRASPPolicy].Hosts. A type that overrides Lists
// must override Judge too.
type Policy interface {
	Judge(ctx context.Context, event graspsync.Event, src graspsync.Source, view View) (graspsync.Verdict, error)
	Lists(a *nip34.Announcement) bool
	// Authority returns the maintainers of a repository, who may move its refs, with the reasons,
	// or nil if the Policy cannot tell.
	Authority(ref graspsync.RepoRef, view View) *nip34.Authority
	// RecognizedAuthors returns the authors whose announcements with this identifier are accepted
	// now. The value is true if their states are accepted too. Events that depend on an added
	// author are judged again. A nil result means that the Policy cannot tell. Then each
	// announcement causes all events that depend on its people to be judged again.
	RecognizedAuthors(identifier string, view View) map[graspsync.PubKey]bool
}

// A Holder stores the events that a [Policy] holds, durably before Judge answers [graspsync.Hold].
// The Policy is often its own Holder. All methods may be called concurrently.
type Holder interface {
	// Held returns the keys of all held events that match the filter, in any order.
	Held(ctx context.Context, filter nostr.Filter) ([]graspsync.EventKey, error)
	// HeldForUser reports whether an event is held, and whether a client of this relay submitted
	// it.
	HeldForUser(id graspsync.EventID) (byUser, held bool)
	// HeldAnnouncements yields the held announcements. An error is the last pair.
	HeldAnnouncements(ctx context.Context) iter.Seq2[*nip34.Announcement, error]
}

// A View gives a [Policy] access to the stored events. It is safe for concurrent use. It may lag
// behind the Store by the events that are being saved.
type View interface {
	// The first methods answer from memory, without reading the Store.

	// Announced reports whether an accepted announcement makes the repository a hosted one.
	Announced(ref graspsync.RepoRef) bool
	// Left reports whether the newest stored announcement of the repository no longer lists this
	// server.
	Left(ref graspsync.RepoRef) bool
	// Family returns all stored announcements with this identifier, because the maintainers depend
	// on all of them. The caller must not change them. Their Event is nil.
	Family(identifier string) []*nip34.Announcement
	// Waiting returns the held announcements that would make a repository with this identifier
	// hosted. The caller must not change them.
	Waiting(identifier string) []*nip34.Announcement
	// Revision returns a comparable value that changes whenever the result of Waiting, Family or
	// Announcements for this identifier changes, such as a pointer that is allocated at each change.
	// It is nil for a View that cannot tell versions apart.
	Revision(identifier string) any
	// Root reports whether id is an accepted patch, pull request or issue of a hosted repository.
	Root(id graspsync.EventID) bool
	// Announcements returns the accepted announcements with this identifier, of all owners, in any
	// order. The caller must not change them. Their Event is nil.
	Announcements(identifier string) []*nip34.Announcement
	// Event returns the stored event with this id, or the zero Event if none is stored.
	Event(ctx context.Context, id graspsync.EventID) (graspsync.Event, error)
	// Events returns the stored events among ids, by id. The number of Store calls does not grow
	// with the number of ids.
	Events(ctx context.Context, ids []graspsync.EventID) (map[graspsync.EventID]graspsync.Event, error)
	// Addressed reports whether an event is stored at any of the addresses.
	Addressed(ctx context.Context, at []graspsync.Address) (bool, error)
	// Near returns some hundred stored events that tag one of the ids or addresses (e, E or q; a, A
	// or q), and the events at the addresses, without deletions. It may return an event twice.
	Near(ctx context.Context, ids []graspsync.EventID, at []graspsync.Address) ([]graspsync.Event, error)
	// Wrote reports whether an event by this author is stored, other than a request to vanish.
	Wrote(ctx context.Context, author graspsync.PubKey) (bool, error)
}

// Rules are the operator's blocks. After a change [SyncManager.RulesChanged] must be called. All
// methods may be called concurrently and must not block. Package rules contains an implementation.
type Rules interface {
	// Blocks returns the reason why an event is blocked, as a constant text with a prefix of
	// NIP-01, or "". After a call of RulesChanged with one of the dependencies in until
	// ([graspsync.OnRuleRemoved]) the event is judged again.
	Blocks(event graspsync.Event) (reason string, until []graspsync.Dependency)
	// BlocksRepository reports whether a repository is not hosted, regardless of its announcement.
	BlocksRepository(ref graspsync.RepoRef) bool
	// BlocksRelay reports whether a relay must not be contacted.
	BlocksRelay(relay graspsync.RelayURL) bool
}

// blocks calls Rules.Blocks.
func (c *Config) blocks(ev graspsync.Event) (reason string, until []graspsync.Dependency) {
	if c.Rules != nil {
		reason, until = c.Rules.Blocks(ev)
	}
	return reason, until
}

// WithRules returns a Policy that applies rules first and then policy, as [New] does with
// [Config.Rules].
func WithRules(policy Policy, rules Rules) Policy { return &rulesPolicy{policy, rules} }

type rulesPolicy struct {
	Policy
	rules Rules
}

// Judge implements [Policy].
func (p *rulesPolicy) Judge(ctx context.Context, ev graspsync.Event, src graspsync.Source, view View) (graspsync.Verdict, error) {
	if reason, until := p.rules.Blocks(ev); reason != "" {
		return graspsync.Verdict{Decision: graspsync.Reject, Reason: reason, DependsOn: until}, nil
	}
	return p.Policy.Judge(ctx, ev, src, view)
}

// Lists implements [Policy]. Its result changes with the rules. After a change all announcements
// are read again.
func (p *rulesPolicy) Lists(a *nip34.Announcement) bool {
	return p.Policy.Lists(a) && !p.rules.BlocksRepository(a.Ref)
}
