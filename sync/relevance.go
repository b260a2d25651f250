package sync

import (
	"slices"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// relevance says whose an event is before its signature was checked: whether it is for us, and
// about whose repositories. It reads no Store. It may be used by any goroutine.
type relevance struct {
	policy *containedPolicy
	report *report
	roots  roots
	kin    kinCache // of what is stored
}

// roots is what is known of the events that belong to what is ours, beside what a [View] says.
type roots interface {
	// descends reports whether an event descends from something of ours, and is followed.
	descends(id graspsync.EventID) bool
	// rootBy reports whether a root event, or what descends from one, is followed and by that
	// author.
	rootBy(id graspsync.EventID, author graspsync.PubKey) bool
	// rootOwner returns whose repository a root event, or what descends from one, belongs to.
	rootOwner(id graspsync.EventID) (owner graspsync.PubKey, ok bool)
}

// rootedView is a [View] that knows them.
type rootedView interface {
	View
	roots
}

var _ rootedView = storeView{}

// concerns reports whether an event, should it be genuine, belongs to what is ours now.
// It is asked before the signature is checked, so it reads no Store and has the Policy
// say only what it says of an announcement: one that holds events must not see this one.
func (o *relevance) concerns(ev graspsync.Event) (ours bool) {
	if o.policy.of == nil || nostr.IsEphemeralKind(ev.Kind) || nip34.IsProtected(ev.Event) || expired(ev) || o.policy.isAhead(ev) {
		return false // it is not taken, whatever it names
	}
	defer func() {
		if recover() != nil { // it is judged like any other
			ours = false
			o.report.panicked("policy")
		}
	}()
	switch ev.Kind {
	case graspsync.KindAnnouncement:
		a, err := nip34.ParseAnnouncement(ev)
		return err == nil && (o.policy.of.Lists(a) || o.policy.view.Announced(a.Ref) || o.policy.view.Left(a.Ref) || o.listed(a.Ref))
	case graspsync.KindState:
		s, err := nip34.ParseState(ev)
		return err == nil && (o.policy.view.Announced(s.Ref) || o.listed(s.Ref))
	case graspsync.KindDeletion:
		return o.deletesOurs(ev)
	}
	ofOurs := func(a graspsync.Address) bool {
		ref, ok := a.Repo()
		return ok && o.policy.view.Announced(ref)
	}
	ids := nip34.EventRefs(ev.Event)
	return slices.ContainsFunc(nip34.Addresses(ev.Event), ofOurs) || slices.ContainsFunc(ids, o.policy.view.Root) ||
		slices.ContainsFunc(ids, o.roots.descends)
}

// listed reports whether somebody is listed by an announcement with that identifier: what
// they write may be for us. Whether they have a say is for the policy to judge.
func (o *relevance) listed(who graspsync.RepoRef) bool {
	return knows(o.policy.view, who) && o.kin.of(nip34.Membership{}, who.Identifier, o.policy.view, nil).family.Lists(who.Owner)
}

// deletesOurs reports whether a deletion names something of its author's that is ours.
func (o *relevance) deletesOurs(ev graspsync.Event) bool {
	author := ev.PubKey
	ids, addresses := nip34.ParseDeletion(ev.Event)
	for _, a := range addresses {
		ref, ok := a.Repo()
		if ok && a.Author == author && (o.policy.view.Announced(ref) || o.listed(ref)) {
			return true
		}
	}
	return slices.ContainsFunc(ids, func(id graspsync.EventID) bool { return o.roots.rootBy(id, author) })
}

// mostAbout is for how many owners it is looked whether an event is expected to be refused.
const mostAbout = 8

// about returns whose repositories an event of ours is about: the first that it names, or
// that of the first root event; of a maintainer's state, all those who list its author. It is
// zero for what names none. A deletion of something in another's repository is about its
// author: it says nothing of what the others delete there.
func (o *relevance) about(ev graspsync.Event) []graspsync.PubKey {
	switch ev.Kind {
	case graspsync.KindAnnouncement:
		if a, err := nip34.ParseAnnouncement(ev); err == nil && o.essential(ev) {
			return []graspsync.PubKey{a.Ref.Owner}
		}
	case graspsync.KindState:
		if s, err := nip34.ParseState(ev); err == nil {
			return o.ownersOf(s.Ref)
		}
	case graspsync.KindDeletion:
		for _, a := range nip34.Addresses(ev.Event) {
			ref, ok := a.Repo()
			if !ok || a.Author != ev.PubKey {
				continue
			}
			if owners := o.ownersOf(ref); owners[0] != (graspsync.PubKey{}) {
				return owners
			}
		}
		return []graspsync.PubKey{ev.PubKey}
	}
	return []graspsync.PubKey{o.names(ev)}
}

// ownersOf returns the owner of a repository that is announced, else those who list its owner
// as a maintainer of theirs.
func (o *relevance) ownersOf(ref graspsync.RepoRef) (owners []graspsync.PubKey) {
	if o.policy.view.Announced(ref) {
		return []graspsync.PubKey{ref.Owner}
	}
	for _, a := range o.policy.view.Announcements(ref.Identifier) {
		if len(owners) == mostAbout {
			break
		}
		if slices.Contains(a.Maintainers, ref.Owner) {
			owners = append(owners, a.Ref.Owner)
		}
	}
	if len(owners) == 0 {
		return []graspsync.PubKey{{}}
	}
	return owners
}

// names returns the owner of the first repository that an event names, or that of the first
// root event, or of what descends from one; zero if there is none.
func (o *relevance) names(ev graspsync.Event) graspsync.PubKey {
	for _, a := range nip34.Addresses(ev.Event) {
		if ref, ok := a.Repo(); ok && o.policy.view.Announced(ref) {
			return ref.Owner
		}
	}
	for _, id := range nip34.EventRefs(ev.Event) {
		if owner, ok := o.roots.rootOwner(id); ok {
			return owner
		}
	}
	return graspsync.PubKey{}
}

// essential reports whether an event of ours is one of somebody whom we know that others
// need: a newer announcement, a state or a deletion. That anybody may make a repository
// ours does not count.
func (o *relevance) essential(ev graspsync.Event) bool {
	switch ev.Kind {
	case graspsync.KindState, graspsync.KindDeletion:
		return true
	case graspsync.KindAnnouncement:
		a, err := nip34.ParseAnnouncement(ev)
		return err == nil && (o.policy.view.Announced(a.Ref) || o.policy.view.Left(a.Ref))
	}
	return false
}
