package sync

import (
	"context"
	"slices"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/nip34"
)

// GRASPPolicy is the [Policy] of a GRASP server: repositories whose announcement
// lists our service, and what belongs to them. It accepts
//
//   - announcements that list our service in both relays and clone, and other
//     versions of such a one: the owner may take a repository from us,
//   - states by an author in the maintainer set of an accepted announcement with
//     that identifier ([nip34.MaintainerSet]), or as Membership says,
//   - other events that refer to an accepted announcement, or to an accepted patch,
//     pull request or issue, or that an accepted event refers to,
//   - deletions by the author of something that is here,
//   - requests to vanish (NIP-62) that name us or all relays, by somebody who has
//     something here.
//
// What refers only to things that are not here depends on them; all else is
// rejected, and with it ephemeral events, and protected ones (NIP-70) unless their
// author's client submits them. Expired events (NIP-40) and those from the future
// are not looked at: that takes a clock, which the caller has. So are quotas.
//
// What counts is who is a maintainer and what is accepted now, by what is stored. What is
// gone lets nothing in any more: a comment on a deleted issue, an issue of a repository
// that was deleted, left or was moderated, a state by who was a maintainer wait, and are
// judged again should that come back. What was stored before stays until it is deleted.
// So what belongs to our repositories is the same in whatever order things arrive; of
// what does not any more, that depends on when it came.
//
// A GRASPPolicy has no state and is safe for concurrent use.
type GRASPPolicy struct {
	// Membership says who is a maintainer. It must not be changed once the policy is
	// used, and must be that of purgatory where there is one.
	Membership nip34.Membership

	identity nip34.Identity
}

var _ Policy = (*GRASPPolicy)(nil)

// NewGRASPPolicy returns the policy of the service that is reached as identity.
// With the zero Identity no repository is ever accepted.
func NewGRASPPolicy(identity nip34.Identity) *GRASPPolicy {
	return &GRASPPolicy{identity: identity}
}

// The reasons of a GRASPPolicy.
const (
	reasonInvalid   = "invalid: malformed event"
	reasonEphemeral = "blocked: ephemeral events are not kept"
	reasonProtected = "blocked: protected event not submitted by its author"
	reasonUnlisted  = "blocked: announcement does not list this service as a relay and its own repository here as a clone URL"
	reasonVanish    = "blocked: asks other relays to forget"
	reasonDeletion  = "blocked: deletes nothing of its author that is here"
	reasonUnrelated = "blocked: not related to a repository of this service"
)

func accept() Verdict              { return Verdict{Decision: Accept} }
func reject(reason string) Verdict { return Verdict{Decision: Reject, Reason: reason} }

// waitingFor collects dependencies, each once as long as there are few; twice does no
// harm.
type waitingFor []Dependency

func (w *waitingFor) add(d Dependency) {
	if len(*w) < maxDependencies && (len(*w) > 16 || !slices.Contains(*w, d)) {
		*w = append(*w, d)
	}
}

// verdict is to wait, or to reject where there is nothing to wait for.
func (w waitingFor) verdict(reason string) Verdict {
	if len(w) == 0 {
		return reject(reason)
	}
	return Verdict{Decision: Depend, DependsOn: w}
}

// Lists reports whether the announcement lists our service.
func (p *GRASPPolicy) Lists(a *nip34.Announcement) bool { return p.identity.Lists(a) }

// Judge decides about an event. An error is one of the view's.
func (p *GRASPPolicy) Judge(ctx context.Context, ev *nostr.Event, src Source, view View) (Verdict, error) {
	if nostr.IsEphemeralKind(ev.Kind) {
		return reject(reasonEphemeral), nil
	}
	if src.Kind != Direct && nip34.IsProtected(ev) {
		return reject(reasonProtected), nil
	}
	switch ev.Kind {
	case filters.KindAnnouncement:
		return p.judgeAnnouncement(ev, view), nil
	case filters.KindState:
		return p.judgeState(ev, view), nil
	case filters.KindDeletion:
		return p.judgeDeletion(ctx, ev, view)
	case filters.KindVanish:
		return p.judgeVanish(ctx, ev, view)
	}
	return judgeRelated(ctx, ev, view)
}

func (p *GRASPPolicy) judgeAnnouncement(ev *nostr.Event, view View) Verdict {
	a, err := nip34.ParseAnnouncement(ev)
	switch {
	case err != nil:
		return reject(reasonInvalid)
	case p.identity.Lists(a), view.Announced(a.Ref), view.Left(a.Ref):
		return accept()
	}
	// It may turn out to be a version of one of ours.
	return Verdict{Decision: Reject, Reason: reasonUnlisted, DependsOn: []Dependency{OnRepo(a.Ref)}}
}

// judgeState accepts a state that some repository's maintainer set authorises.
// What else it tags doesn't matter: a stranger can tag anything.
func (p *GRASPPolicy) judgeState(ev *nostr.Event, view View) Verdict {
	s, err := nip34.ParseState(ev)
	if err != nil {
		return reject(reasonInvalid)
	}
	if p.maintained(s.Ref, view) {
		return accept()
	}
	return Verdict{Decision: Depend, DependsOn: []Dependency{OnMaintainer(s.Ref.Identifier, s.Ref.Owner)}}
}

// maintained reports whether the author of a state is a maintainer of any repository.
// With reciprocal listings that takes an announcement of their own, which makes them one
// of that repository at least.
func (p *GRASPPolicy) maintained(state filters.RepoRef, view View) bool {
	if p.Membership.Reciprocal {
		return view.Announced(state)
	}
	return view.Maintained(state.Identifier, state.Owner)
}

// judgeVanish accepts a request of somebody who has something here that can vanish.
func (p *GRASPPolicy) judgeVanish(ctx context.Context, ev *nostr.Event, view View) (Verdict, error) {
	author, err := filters.ParsePubKey(ev.PubKey)
	switch {
	case err != nil:
		return reject(reasonInvalid), nil //nolint:nilerr // the verdict says it
	case !p.identity.Vanishes(ev):
		return reject(reasonVanish), nil
	}
	wrote, err := view.Wrote(ctx, author)
	switch {
	case err != nil:
		return Verdict{}, err
	case wrote:
		return accept(), nil
	}
	return Verdict{Decision: Depend, DependsOn: []Dependency{OnAuthor(author), OnHeldBy(author)}}, nil
}

func (p *GRASPPolicy) judgeDeletion(ctx context.Context, ev *nostr.Event, view View) (Verdict, error) {
	author, err := filters.ParsePubKey(ev.PubKey)
	if err != nil {
		return reject(reasonInvalid), nil //nolint:nilerr // the verdict says it
	}
	ids, addresses := nip34.ParseDeletion(ev)
	_, at := nip34.Deletes(ev)
	var wait waitingFor
	for _, a := range addresses {
		ref, ok := a.Repo()
		switch {
		case !ok || a.PubKey != author:
			continue
		case a.Kind == filters.KindState && p.maintained(ref, view),
			a.Kind == filters.KindAnnouncement && view.Announced(ref):
			return accept(), nil
		case a.Kind == filters.KindState:
			wait.add(OnMaintainer(ref.Identifier, author))
		default:
			wait.add(OnRepo(ref))
		}
	}
	missing := len(wait) > 0
	here, err := view.Addressed(ctx, at)
	switch {
	case err != nil:
		return Verdict{}, err
	case here:
		return accept(), nil
	}
	for _, c := range at {
		wait.add(OnVersion(c))
	}
	found, err := view.Events(ctx, ids) // all at once: a stranger may name thousands
	if err != nil {
		return Verdict{}, err
	}
	for _, id := range ids {
		target, here := found[id]
		if here && target.PubKey == author.String() &&
			target.Kind != filters.KindDeletion && target.Kind != filters.KindVanish {
			return accept(), nil
		}
		missing = missing || !here
		wait.add(OnEvent(id))
	}
	if !missing {
		return Verdict{Decision: Reject, Reason: reasonDeletion, DependsOn: wait}, nil
	}
	return wait.verdict(reasonDeletion), nil
}

func judgeRelated(ctx context.Context, ev *nostr.Event, view View) (Verdict, error) {
	self, err := filters.ParseEventID(ev.ID)
	if err != nil {
		return reject(reasonInvalid), nil //nolint:nilerr // the verdict says it
	}
	wait := waitingFor{OnMention(self)}
	for _, a := range nip34.Addresses(ev) {
		ref, ok := a.Repo()
		if !ok {
			continue
		}
		if view.Announced(ref) {
			return accept(), nil
		}
		wait.add(OnRepo(ref))
	}
	// First what costs nothing, then what reads the Store.
	ids := nip34.EventRefs(ev)
	if slices.ContainsFunc(ids, view.Root) {
		return accept(), nil
	}
	found, err := view.Events(ctx, ids)
	if err != nil {
		return Verdict{}, err
	}
	for _, id := range ids {
		target, here := found[id]
		if !here {
			wait.add(OnEvent(id))
			continue
		}
		for _, ref := range belongsTo(target) {
			if target.Kind == filters.KindAnnouncement && view.Announced(ref) {
				return accept(), nil
			}
			wait.add(OnRepo(ref)) // it would be one of ours with that
		}
	}
	mentioned, err := view.Mentioned(ctx, self)
	switch {
	case err != nil:
		return Verdict{}, err
	case mentioned:
		return accept(), nil
	}
	if len(wait) > 1 {
		return wait.verdict(reasonUnrelated), nil
	}
	return Verdict{Decision: Reject, Reason: reasonUnrelated, DependsOn: wait}, nil
}

// belongsTo returns the repositories of a stored announcement or root event.
func belongsTo(ev *nostr.Event) []filters.RepoRef {
	if ev.Kind != filters.KindAnnouncement {
		return nip34.RootRefs(ev)
	}
	a, err := nip34.ParseAnnouncement(ev)
	if err != nil {
		return nil
	}
	return []filters.RepoRef{a.Ref}
}
