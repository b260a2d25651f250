package sync

import (
	"context"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/limit"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/sync/internal/pending"
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
	// Authority returns the members of a repository, whose states move its refs, with the reasons,
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
	// Family returns all stored announcements with this identifier, because the members depend
	// on each. The caller must not change the announcements. Their Event is nil.
	Family(identifier string) []*nip34.Announcement
	// Waiting returns the held announcements that would make a repository with this identifier
	// hosted. The caller must not change the announcements.
	Waiting(identifier string) []*nip34.Announcement
	// Revision returns a comparable value that changes whenever the result of Waiting, Family or
	// Announcements for this identifier changes, such as a pointer that is allocated at each change.
	// It is nil for a View that cannot tell versions apart.
	Revision(identifier string) any
	// Root reports whether id is an accepted patch, pull request or issue of a hosted repository.
	Root(id graspsync.EventID) bool
	// Announcements returns the accepted announcements with this identifier, of all owners, in any
	// order. The caller must not change the announcements. Their Event is nil.
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

// GRASPPolicy is the [Policy] of a GRASP server. It accepts:
//
//   - announcements that list this service in relays and clone, unless Hosts refuses them, and
//     other versions of such an announcement, because an owner may remove a repository from the
//     service
//   - announcements of authors listed, directly or indirectly, by an accepted announcement with the
//     same identifier ([nip34.AnnouncementSet.Wanted], within [nip34.ServedBounds]), because the
//     maintainer set depends on these announcements. They do not make a repository hosted
//   - states by members of the maintainer set ([nip34.Authority]) of a repository with an accepted
//     announcement
//   - other events that refer to an accepted event (a, A, q, e or E), or to which an accepted event
//     refers, also through up to 16 stored events
//   - deletions by the author of a stored event
//   - lists of preferred GRASP servers, if GRASPLists is set
//   - requests to vanish (NIP-62) to this service or all relays by authors of stored events
//
// An event that refers only to missing events depends on these events. All other events are rejected, including ephemeral events, and protected events (NIP-70) that their author's client
// did not submit. The decision depends only on the stored events, not on the order of arrival. The
// caller checks expired events (NIP-40), events from the future and quotas. A GRASPPolicy is safe
// for concurrent use.
type GRASPPolicy struct {
	// Membership computes the maintainer set, as in purgatory. It must not change after the first
	// use.
	Membership nip34.Membership
	// GRASPLists accepts lists of preferred GRASP servers (kind 10317) of all authors, one list of
	// at most 32 KiB per author. It must not change after the first use.
	GRASPLists bool
	// Hosts reports whether a repository whose announcement lists this service is hosted, for
	// example by an allow list. Hosts must be a pure function, safe for concurrent use, and must
	// not change after the first use. Defaults to all.
	Hosts func(a *nip34.Announcement) bool

	identity nip34.Identity
	mu       sync.Mutex
	cache    *limit.Table[authorityKey, *recognizedAuthors] // recent results; guarded by mu
}

var _ Policy = (*GRASPPolicy)(nil)

// NewGRASPPolicy returns the policy of the service with this identity. The zero Identity accepts no
// repository.
func NewGRASPPolicy(identity nip34.Identity) *GRASPPolicy {
	return &GRASPPolicy{
		identity: identity, cache: limit.NewTable[authorityKey, *recognizedAuthors](maxAuthorities, maxAuthorityListings),
	}
}

// Version returns a text for Config.PolicyVersion that depends on the fields except Hosts.
func (p *GRASPPolicy) Version() string {
	return fmt.Sprintf("one-sided %t, lists %t", p.Membership.OneSided, p.GRASPLists)
}

// Reasons of verdicts.
const (
	reasonEphemeral = "blocked: ephemeral events are not kept"
	reasonProtected = "blocked: protected event not submitted by its author"
	reasonCrowded   = "rate-limited: too many are listed as maintainers of repositories of this name"
	reasonVanish    = "blocked: asks other relays to forget"
	reasonDeletion  = "blocked: none of the events that it deletes is stored"
	reasonUnhosted  = "blocked: this service does not host this repository"
	reasonLong      = "invalid: list of GRASP servers is too long"
	reasonUnrelated = "blocked: not related to a repository of this service"
	reasonUnlisted  = "blocked: announcement does not list this service"
)

// unlisted rejects an announcement of a repository that is not hosted, and names the missing
// entries.
func unlisted(identity nip34.Identity, a *nip34.Announcement) (v graspsync.Verdict) {
	defer func() {
		v.DependsOn = []graspsync.Dependency{graspsync.OnBecomesListed(a.Ref.Identifier, a.Ref.Owner), graspsync.OnRepo(a.Ref)}
	}()
	if identity.IsZero() {
		return reject(reasonUnlisted)
	}
	switch relay, clone := identity.ListedIn(a); {
	case relay && clone:
		return reject(reasonUnhosted)
	case relay:
		v = reject("blocked: announcement does not list this service in clone")
	case clone:
		v = reject("blocked: announcement does not list this service in relays")
	default:
		v = reject(reasonUnlisted)
	}
	v.Detail = "want " + identity.RelayURL() + " in relays and " + identity.CloneURL(a.Ref) + " in clone; it lists relays " +
		some(a.Relays) + ", clone " + some(a.Clones)
	return v
}

// Bounds of the details of a rejection.
const (
	maxListed = 3
	maxOfURL  = 150 // bytes
)

func some[T fmt.Stringer](urls []T) string {
	if len(urls) == 0 {
		return "none"
	}
	var out []string
	for _, u := range urls[:min(len(urls), maxListed)] {
		out = append(out, graspsync.PrintableAtMost(u.String(), maxOfURL))
	}
	if n := len(urls) - len(out); n > 0 {
		out = append(out, fmt.Sprintf("and %d more", n))
	}
	return strings.Join(out, " ")
}

func accept() graspsync.Verdict { return graspsync.Verdict{Decision: graspsync.Accept} }
func reject(reason string) graspsync.Verdict {
	return graspsync.Verdict{Decision: graspsync.Reject, Reason: reason}
}

func depend(on ...graspsync.Dependency) graspsync.Verdict {
	return graspsync.Verdict{Decision: graspsync.Depend, DependsOn: on}
}

func addDependency(on []graspsync.Dependency, d graspsync.Dependency) []graspsync.Dependency {
	if len(on) < pending.MaxDependencies && (len(on) > 16 || !slices.Contains(on, d)) {
		on = append(on, d)
	}
	return on
}

// Lists reports whether the announcement lists this service and Hosts does not refuse it. Judge
// calls it even if an embedding Policy overrides it.
func (p *GRASPPolicy) Lists(a *nip34.Announcement) bool {
	return p.identity.Lists(a) && (p.Hosts == nil || p.Hosts(a))
}

// Judge implements [Policy]. An error is one of the view.
func (p *GRASPPolicy) Judge(ctx context.Context, ev graspsync.Event, src graspsync.Source, view View) (graspsync.Verdict, error) {
	if nostr.IsEphemeralKind(ev.Kind) {
		return reject(reasonEphemeral), nil
	}
	if src.Kind != graspsync.Direct && nip34.IsProtected(ev.Event) {
		return reject(reasonProtected), nil
	}
	switch ev.Kind {
	case graspsync.KindAnnouncement:
		return p.judgeAnnouncement(ev, view), nil
	case graspsync.KindState:
		return p.judgeState(ev, view), nil
	case graspsync.KindDeletion:
		return p.judgeDeletion(ctx, ev, view)
	case graspsync.KindVanish:
		return p.judgeVanish(ctx, ev, view)
	}
	if ev.Kind == graspsync.KindGRASPList && p.GRASPLists {
		if length(ev.Event) > maxGRASPList {
			return reject(reasonLong), nil
		}
		return accept(), nil
	}
	return p.judgeRelated(ctx, ev, view)
}

// maxGRASPList is the maximum size of a list of GRASP servers, because any key may store a list.
const maxGRASPList = 32 << 10

func length(ev *nostr.Event) int {
	n := len(ev.Content)
	for _, t := range ev.Tags {
		for _, v := range t {
			n += 1 + len(v)
		}
	}
	return n
}

func (p *GRASPPolicy) judgeAnnouncement(ev graspsync.Event, view View) graspsync.Verdict {
	a, err := nip34.ParseAnnouncement(ev)
	switch {
	case err != nil:
		return reject(nip34.Reason(err))
	case p.Lists(a), view.Announced(a.Ref), view.Left(a.Ref):
		return accept()
	}
	v := unlisted(p.identity, a)
	k := p.authors(a.Ref.Identifier, view).compute()
	if _, is := k.wanted[a.Ref.Owner]; is {
		return accept()
	}
	if k.full && k.family.Knows(a.Ref.Owner) {
		v.Reason, v.Detail = reasonCrowded, ""
	}
	return v
}

func (p *GRASPPolicy) judgeState(ev graspsync.Event, view View) graspsync.Verdict {
	s, err := nip34.ParseState(ev)
	if err != nil {
		return reject(nip34.Reason(err))
	}
	if p.isMember(s.Ref, view) {
		return accept()
	}
	return depend(graspsync.OnBecomesMaintainer(s.Ref.Identifier, s.Ref.Owner))
}

// Authority implements [Policy].
func (p *GRASPPolicy) Authority(ref graspsync.RepoRef, view View) *nip34.Authority {
	return p.authors(ref.Identifier, view).family.Authority(ref)
}

// RecognizedAuthors implements [Policy].
func (p *GRASPPolicy) RecognizedAuthors(identifier string, view View) map[graspsync.PubKey]bool {
	return p.authors(identifier, view).compute().roles
}

func (p *GRASPPolicy) judgeVanish(ctx context.Context, ev graspsync.Event, view View) (graspsync.Verdict, error) {
	author := ev.PubKey
	if !p.identity.IsVanishRequest(ev.Event) {
		return reject(reasonVanish), nil
	}
	wrote, err := view.Wrote(ctx, author)
	switch {
	case err != nil:
		return graspsync.Verdict{}, err
	case wrote:
		return accept(), nil
	}
	return depend(graspsync.OnAuthor(author), graspsync.OnHeldBy(author)), nil
}

func (p *GRASPPolicy) judgeDeletion(ctx context.Context, ev graspsync.Event, view View) (graspsync.Verdict, error) {
	author := ev.PubKey
	ids, at := nip34.DeletionTargets(ev)
	var wait []graspsync.Dependency
	for _, a := range at {
		ref, ok := a.Repo()
		switch {
		case !ok:
			continue
		case a.Kind == graspsync.KindAnnouncement && view.Announced(ref):
			return accept(), nil
		case a.Kind == graspsync.KindState:
			if p.isMember(ref, view) {
				return accept(), nil
			}
			wait = addDependency(wait, graspsync.OnBecomesMaintainer(ref.Identifier, author))
		default:
			wait = addDependency(wait, graspsync.OnRepo(ref))
		}
	}
	missing := len(wait) > 0
	here, err := view.Addressed(ctx, at)
	switch {
	case err != nil:
		return graspsync.Verdict{}, err
	case here:
		return accept(), nil
	}
	for _, c := range at {
		wait = addDependency(wait, graspsync.OnVersion(c))
	}
	found, err := view.Events(ctx, ids) // in one call, because an event may name thousands
	if err != nil {
		return graspsync.Verdict{}, err
	}
	for _, id := range ids {
		target, here := found[id]
		if here && target.PubKey == author &&
			target.Kind != graspsync.KindDeletion && target.Kind != graspsync.KindVanish {
			return accept(), nil
		}
		missing = missing || !here
		wait = addDependency(wait, graspsync.OnEvent(id))
	}
	if !missing || len(wait) == 0 {
		return graspsync.Verdict{Decision: graspsync.Reject, Reason: reasonDeletion, DependsOn: wait}, nil
	}
	return depend(wait...), nil
}

const (
	// maxHops is the maximum number of references between an event and an accepted event.
	maxHops = 16
	// maxNear is the maximum number of stored events examined in one search.
	maxNear = 500
	// maxAddresses is the maximum number of addresses in one query that are not repositories.
	maxAddresses = 100
)

// relation is a search from an event along references in both directions, through stored events.
type relation struct {
	p    *GRASPPolicy
	view View

	seen     map[graspsync.EventID]struct{}
	looked   int                    // number of examined events
	mentions []graspsync.Dependency // events that would connect an examined event
	wait     []graspsync.Dependency // referenced events that are not stored or not related to a hosted repository
}

// judgeRelated accepts an event that is connected to an accepted event by references. Each event on
// the path must be stored.
func (p *GRASPPolicy) judgeRelated(ctx context.Context, ev graspsync.Event, view View) (graspsync.Verdict, error) {
	r := relation{p: p, view: view, seen: map[graspsync.EventID]struct{}{ev.ID: {}}}
	at := []graspsync.Event{ev}
	for hop := 0; hop < maxHops && len(at) > 0; hop++ {
		next, related, err := r.hop(ctx, at)
		switch {
		case err != nil:
			return graspsync.Verdict{}, err
		case related:
			return accept(), nil
		}
		at = next
	}
	v := depend()
	if len(r.wait) == 0 {
		v = reject(reasonUnrelated)
	}
	for _, d := range r.mentions {
		r.wait = addDependency(r.wait, d)
	}
	v.DependsOn = r.wait
	return v, nil
}

// hop returns the neighbors of events, or reports that one belongs to a hosted repository.
func (r *relation) hop(ctx context.Context, at []graspsync.Event) (next []graspsync.Event, related bool, err error) {
	var own, named []graspsync.EventID
	var addresses []graspsync.Address
	address := func(a graspsync.Address) {
		if len(addresses) < maxAddresses && !slices.Contains(addresses, a) {
			addresses = append(addresses, a)
		}
	}
	for _, ev := range at {
		own = append(own, ev.ID)
		r.mentions = addDependency(r.mentions, graspsync.OnMention(ev.ID))
		if a, ok := ev.Address(); ok {
			r.mentions = addDependency(r.mentions, graspsync.OnVersionMention(a))
			address(a)
		}
	}
	// Checks without a query come first.
	for _, ev := range at {
		for _, a := range nip34.Addresses(ev.Event) {
			if ref, ok := a.Repo(); ok {
				if r.view.Announced(ref) {
					return nil, true, nil
				}
				r.wait = addDependency(r.wait, graspsync.OnRepo(ref))
			}
		}
		ids := nip34.EventRefs(ev.Event)
		if slices.ContainsFunc(ids, r.view.Root) {
			return nil, true, nil
		}
		for _, id := range ids {
			if _, seen := r.seen[id]; !seen && (len(own) == 1 || len(named) < maxNear) {
				r.seen[id] = struct{}{}
				named = append(named, id)
			}
		}
	}
	found, err := r.view.Events(ctx, named)
	if err != nil {
		return nil, false, err
	}
	for _, id := range named {
		if ev, here := found[id]; !here {
			r.wait = addDependency(r.wait, graspsync.OnEvent(id))
		} else if next, related = r.meet(next, ev); related {
			return nil, true, nil
		}
	}
	for _, ev := range at {
		for _, a := range nip34.Addresses(ev.Event) {
			switch {
			case a.Kind == graspsync.KindAnnouncement, !nostr.IsAddressableKind(a.Kind) && !nostr.IsReplaceableKind(a.Kind):
			case a.Kind == graspsync.KindState:
				address(a) // its author may be a maintainer who announces nothing
			default:
				address(a)
				r.wait = addDependency(r.wait, graspsync.OnVersion(a))
			}
		}
	}
	near, err := r.view.Near(ctx, own, addresses)
	if err != nil {
		return nil, false, err
	}
	for _, ev := range near {
		if _, seen := r.seen[ev.ID]; seen {
			continue
		}
		r.seen[ev.ID] = struct{}{}
		if next, related = r.meet(next, ev); related {
			return nil, true, nil
		}
	}
	return next, false, nil
}

// meet adds a stored event to the next hop, and reports whether its own tags name a hosted
// repository.
func (r *relation) meet(next []graspsync.Event, ev graspsync.Event) (_ []graspsync.Event, related bool) {
	if r.looked >= maxNear || ev.Kind == graspsync.KindDeletion || ev.Kind == graspsync.KindVanish {
		return next, false
	}
	r.looked++
	for _, ref := range belongsTo(ev) {
		if r.view.Announced(ref) {
			return next, true
		}
		r.wait = addDependency(r.wait, graspsync.OnRepo(ref)) // an announcement would make the repository hosted
	}
	if s, err := nip34.ParseState(ev); err == nil {
		if r.p.isMember(s.Ref, r.view) {
			return next, true
		}
		r.wait = addDependency(r.wait, graspsync.OnBecomesMaintainer(s.Ref.Identifier, s.Ref.Owner))
	}
	if ev.Kind == graspsync.KindAnnouncement || ev.Kind == graspsync.KindState {
		return next, false // references from other repositories do not relate an event to a hosted one
	}
	return append(next, ev), slices.ContainsFunc(nip34.EventRefs(ev.Event), r.view.Root)
}

func belongsTo(ev graspsync.Event) []graspsync.RepoRef {
	switch ev.Kind {
	case graspsync.KindState:
		return nil // any author can tag any event
	case graspsync.KindAnnouncement:
		a, err := nip34.ParseAnnouncement(ev)
		if err != nil {
			return nil
		}
		return []graspsync.RepoRef{a.Ref}
	}
	return nip34.RepoRefs(ev.Event)
}

// isMember reports whether an author is a member of a hosted repository with the identifier.
func (p *GRASPPolicy) isMember(who graspsync.RepoRef, view View) bool {
	return p.authors(who.Identifier, view).compute().roles[who.Owner]
}

type recognizedAuthors struct {
	family          *nip34.AnnouncementSet
	owners, waiting []graspsync.PubKey // of accepted and of held announcements

	once   sync.Once
	wanted map[graspsync.PubKey]graspsync.PubKey // see [nip34.AnnouncementSet.Wanted]
	full   bool
	roles  map[graspsync.PubKey]bool // see [Policy].RecognizedAuthors
}

func (k *recognizedAuthors) compute() *recognizedAuthors {
	k.once.Do(func() {
		k.wanted, k.full = k.family.Wanted(k.owners, nip34.ServedBounds())
		others, full := k.family.Wanted(k.waiting, nip34.HeldBounds())
		maps.Copy(k.wanted, others)
		k.full = k.full || full
		k.roles = make(map[graspsync.PubKey]bool)
		for who := range k.wanted {
			k.roles[who] = false
		}
		for who := range k.family.AllMembers(slices.Concat(k.owners, k.waiting)) {
			k.roles[who] = true
		}
	})
	return k
}

// authorityKey is an identifier and the revision of its announcements ([View]).
type authorityKey struct {
	identifier string
	revision   any
}

const (
	// maxAuthorities is the maximum number of cached results, maxAuthorityListings of the announcements
	// and listings in these results. One result counts for at most half of the listings, because a
	// large identifier needs two results, with and without held announcements.
	maxAuthorities       = 1000
	maxAuthorityListings = 250_000
)

// authors returns the recognized authors of an identifier. It reads the revision before the
// announcements, so that a concurrent change makes the result obsolete.
func (p *GRASPPolicy) authors(identifier string, view View) *recognizedAuthors {
	key := authorityKey{identifier, view.Revision(identifier)}
	if k := p.cached(key); k != nil {
		return k
	}
	all, waiting := view.Family(identifier), nip34.Owners(view.Waiting(identifier))
	k := &recognizedAuthors{
		family: p.Membership.AnnouncementSet(identifier, all), waiting: waiting,
		owners: ownersAmong(all, view.Announcements(identifier), waiting, p.Lists),
	}
	if key.revision != nil && len(all) > 0 {
		listings := len(all)
		for _, a := range all {
			listings += len(a.Maintainers)
		}
		key.identifier = strings.Clone(identifier)
		p.mu.Lock()
		defer p.mu.Unlock()
		p.cache.Put(key, limit.Stranger{ID: key.identifier}, min(int64(listings), maxAuthorityListings/2), k)
	}
	return k
}

func (p *GRASPPolicy) cached(key authorityKey) *recognizedAuthors {
	p.mu.Lock()
	defer p.mu.Unlock()
	k, _ := p.cache.Get(key)
	if k != nil {
		p.cache.Touch(key)
	}
	return k
}

// ownersAmong returns the owners of hosted repositories whose announcements are not held.
func ownersAmong(all, accepted []*nip34.Announcement, waiting []graspsync.PubKey, ours func(*nip34.Announcement) bool) (owners []graspsync.PubKey) {
	is := make(map[graspsync.PubKey]bool, len(accepted)+len(waiting))
	for _, a := range accepted {
		is[a.Ref.Owner] = true
	}
	for _, owner := range waiting {
		is[owner] = false
	}
	for _, a := range all {
		if yes, known := is[a.Ref.Owner]; yes || !known && ours(a) {
			owners = append(owners, a.Ref.Owner)
		}
	}
	return owners
}
