package sync

import (
	"context"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
)

// concerns reports whether an event, should it be genuine, belongs to what is ours now.
// It is asked before the signature is checked, so it reads no Store and has the Policy
// say only what it says of an announcement: one that holds events must not see this one.
func (g *ingest) concerns(ev *nostr.Event) (ours bool) {
	if g.policy == nil || nostr.IsEphemeralKind(ev.Kind) || nip34.IsProtected(ev) || g.expired(ev) || g.ahead(ev) {
		return false // it is not taken, whatever it names
	}
	defer func() {
		if recover() != nil { // it is judged like any other
			ours = false
			g.report.panicked("policy")
		}
	}()
	switch ev.Kind {
	case graspsync.KindAnnouncement:
		a, err := nip34.ParseAnnouncement(ev)
		return err == nil && (g.policy.Lists(a) || g.view.Announced(a.Ref) || g.view.Left(a.Ref) || g.listed(a.Ref))
	case graspsync.KindState:
		s, err := nip34.ParseState(ev)
		return err == nil && (g.view.Announced(s.Ref) || g.listed(s.Ref))
	case graspsync.KindDeletion:
		return g.deletesOurs(ev)
	}
	ofOurs := func(a graspsync.Address) bool {
		ref, ok := a.Repo()
		return ok && g.view.Announced(ref)
	}
	ids := nip34.EventRefs(ev)
	if slices.ContainsFunc(nip34.Addresses(ev), ofOurs) || slices.ContainsFunc(ids, g.view.Root) {
		return true
	}
	below, ok := g.view.(interface {
		descends(id graspsync.EventID) bool
	})
	return ok && slices.ContainsFunc(ids, below.descends)
}

// listed reports whether somebody is listed by an announcement with that identifier: what
// they write may be for us. Whether they have a say is for the policy to judge.
func (g *ingest) listed(who graspsync.RepoRef) bool {
	return knows(g.view, who) && g.kin.of(nip34.Membership{}, who.Identifier, g.view, nil).family.Lists(who.Owner)
}

// deletesOurs reports whether a deletion names something of its author's that is ours.
func (g *ingest) deletesOurs(ev *nostr.Event) bool {
	author, err := graspsync.ParsePubKey(ev.PubKey)
	if err != nil {
		return false
	}
	ids, addresses := nip34.ParseDeletion(ev)
	for _, a := range addresses {
		ref, ok := a.Repo()
		if ok && a.Author == author && (g.view.Announced(ref) || g.listed(ref)) {
			return true
		}
	}
	roots, ok := g.view.(interface {
		rootBy(id graspsync.EventID, author graspsync.PubKey) bool
	})
	return ok && slices.ContainsFunc(ids, func(id graspsync.EventID) bool { return roots.rootBy(id, author) })
}

// mostAbout is for how many owners it is looked whether an event is expected to be refused.
const mostAbout = 8

// about returns whose repositories an event of ours is about: the first that it names, or
// that of the first root event; of a maintainer's state, all those who list its author. It is
// zero for what names none. A deletion of something in another's repository is about its
// author: it says nothing of what the others delete there.
func (g *ingest) about(ev *nostr.Event, author graspsync.PubKey) []graspsync.PubKey {
	switch ev.Kind {
	case graspsync.KindAnnouncement:
		if a, err := nip34.ParseAnnouncement(ev); err == nil && g.essential(ev) {
			return []graspsync.PubKey{a.Ref.Owner}
		}
	case graspsync.KindState:
		if s, err := nip34.ParseState(ev); err == nil {
			return g.ownersOf(s.Ref)
		}
	case graspsync.KindDeletion:
		for _, a := range nip34.Addresses(ev) {
			ref, ok := a.Repo()
			if !ok || a.Author != author {
				continue
			}
			if owners := g.ownersOf(ref); owners[0] != (graspsync.PubKey{}) {
				return owners
			}
		}
		return []graspsync.PubKey{author}
	}
	return []graspsync.PubKey{g.names(ev)}
}

// ownersOf returns the owner of a repository that is announced, else those who list its owner
// as a maintainer of theirs.
func (g *ingest) ownersOf(ref graspsync.RepoRef) (owners []graspsync.PubKey) {
	if g.view.Announced(ref) {
		return []graspsync.PubKey{ref.Owner}
	}
	for _, a := range g.view.Announcements(ref.Identifier) {
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
func (g *ingest) names(ev *nostr.Event) graspsync.PubKey {
	for _, a := range nip34.Addresses(ev) {
		if ref, ok := a.Repo(); ok && g.view.Announced(ref) {
			return ref.Owner
		}
	}
	if roots, ok := g.view.(interface {
		rootOwner(id graspsync.EventID) (graspsync.PubKey, bool)
	}); ok {
		for _, id := range nip34.EventRefs(ev) {
			if owner, ok := roots.rootOwner(id); ok {
				return owner
			}
		}
	}
	return graspsync.PubKey{}
}

// essential reports whether an event of ours is one of somebody whom we know that others
// need: a newer announcement, a state or a deletion. That anybody may make a repository
// ours does not count.
func (g *ingest) essential(ev *nostr.Event) bool {
	switch ev.Kind {
	case graspsync.KindState, graspsync.KindDeletion:
		return true
	case graspsync.KindAnnouncement:
		a, err := nip34.ParseAnnouncement(ev)
		return err == nil && (g.view.Announced(a.Ref) || g.view.Left(a.Ref))
	}
	return false
}

// slowMost is for how long the reading of a relay waits for what refers to ours and may
// be of use, however much of it comes. Then the events that find no allowance are left out.
const slowMost = time.Minute

// pay takes what an event costs until it turns out to be of use, and reports whether it
// is to be looked at. History that was asked for is, on credit. A live event that is not
// for us, or is expected to be refused, does not wait for its turn, or all that comes
// behind it on the connection would: it is left out, and caught up with later.
func (g *ingest) pay(ctx context.Context, d delivery, j *job) (look bool, err error) {
	w, c := d.from.stats.work, d.from
	j.stats, j.ours = c.stats, d.ours || g.concerns(d.event)
	j.lane = laneOf(j.ours)
	if d.asked {
		j.cost = w.owe(j.size, j.ours)
		return true, nil
	}
	live := d.src.Kind == graspsync.Live
	essential := false
	if author, err := graspsync.ParsePubKey(d.event.PubKey); err == nil && live && j.ours {
		essential = g.essential(d.event)
		j.recorded = true
		for _, owner := range g.about(d.event, author) {
			j.category = categoryOf(d.event.Kind, owner)
			if j.lane = w.laneFor(author, j.category); j.lane == trustedLane {
				break
			}
		}
	}
	patient := j.lane == trustedLane && (essential || !c.signs.slowFor(slowMost))
	cost, from, wait := w.try(j.size, j.lane, live)
	if wait > 0 && d.current && !patient && w.skip(int64(d.size)) {
		g.report.drop("unread", 1)
		c.signs.skipped()
		return false, nil
	}
	if wait > 0 {
		c.signs.slowed()
		if cost, from, err = w.take(ctx, j.size, j.lane, live); err != nil {
			return false, err
		}
	}
	j.cost, j.lane = cost, from
	return true, nil
}
