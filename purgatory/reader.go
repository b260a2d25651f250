package purgatory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/refplan"
)

// listings are the keys that announcements with an identifier list as maintainers.
type listings struct {
	family *nip34.AnnouncementSet
	served map[graspsync.PubKey]graspsync.PubKey // by served announcements, with one lister
	held   map[graspsync.PubKey]graspsync.PubKey // by held announcements, within bounds
}

// readEvents returns the stored events of all repositories with the identifier of ref, and those of
// held that count for ref.
func (p *Purgatory) readEvents(ctx context.Context, ref graspsync.RepoRef, why refplan.Reasons, held []refplan.Entry) (*refplan.Group, error) {
	g, err := p.readGroup(ctx, ref.Identifier, why)
	if err != nil {
		return nil, err
	}
	r := g.Repository(ref)
	err = p.addHeld(ctx, g, slices.DeleteFunc(held, func(e refplan.Entry) bool {
		return e.Class == refplan.Announcement || (e.Class == refplan.State && !r.IsMember(e.Author))
	}))
	return g, err
}

// readGroup returns the announcements, stored or held, and the stored states with an identifier.
func (p *Purgatory) readGroup(ctx context.Context, identifier string, why refplan.Reasons) (*refplan.Group, error) {
	g := &refplan.Group{
		Identifier: identifier, Why: why, StoredAnnouncements: make(map[graspsync.RepoRef]*nip34.Announcement), HeldAnnouncements: make(map[graspsync.RepoRef]refplan.Entry),
	}
	// Held events are read before stored ones. An event that is released in between is found twice,
	// not missed.
	held := p.pending.named(identifier, (*pendingEvent).isAnnouncement)
	ours, others, err := p.announcements(ctx, identifier)
	if err != nil {
		return nil, err
	}
	for _, a := range ours {
		if old := g.StoredAnnouncements[a.Ref]; old == nil || a.Key().Newer(old.Key()) {
			g.StoredAnnouncements[a.Ref] = a
		}
	}
	if g.StoredStates, err = p.relay.states(ctx, identifier); err != nil {
		return nil, fmt.Errorf("reading states: %w", err)
	}
	if err = p.addHeld(ctx, g, held); err != nil {
		return g, err
	}
	all := slices.AppendSeq(others, maps.Values(g.StoredAnnouncements))
	for _, e := range g.MaintainerAnnouncements {
		all = append(all, e.Announces)
	}
	for ref, e := range g.HeldAnnouncements {
		if g.StoredAnnouncements[ref] == nil {
			all = append(all, e.Announces)
		}
	}
	g.Family = p.cfg.Membership.AnnouncementSet(identifier, all)
	return g, nil
}

// announcements returns the stored announcements that have not expired: ours list this service,
// others do not.
func (p *Purgatory) announcements(ctx context.Context, identifier string) (ours, others []*nip34.Announcement, err error) {
	now := time.Now()
	expired := func(a *nip34.Announcement) bool { return hasExpired(a.Event, now) }
	ours, others, err = p.relay.announcements(ctx, identifier)
	return slices.DeleteFunc(ours, expired), slices.DeleteFunc(others, expired), err
}

func (p *Purgatory) addHeld(ctx context.Context, g *refplan.Group, entries []refplan.Entry) error {
	now := time.Now()
	for _, e := range entries {
		if e.Soft {
			continue
		}
		if err := p.addEntry(ctx, g, e, now); err != nil {
			return err
		}
	}
	slices.SortFunc(g.HeldStates, func(a, b refplan.Entry) int { return refplan.Older(a.Version, b.Version) })
	slices.SortFunc(g.HeldPulls, func(a, b refplan.Entry) int { return a.ID.Compare(b.ID) })
	return nil
}

func (p *Purgatory) addEntry(ctx context.Context, g *refplan.Group, e refplan.Entry, now time.Time) error {
	if g.Why.AsksAbout(e.Author) {
		deleted, err := p.deleted(ctx, e)
		if err != nil {
			return err
		}
		if deleted {
			g.Ending = append(g.Ending, refplan.Ended{Entry: e, Reason: refplan.Deleted})
			return nil
		}
	}
	if e.Expires != 0 && now.Unix() >= e.Expires {
		g.Ending = append(g.Ending, refplan.Ended{Entry: e, Reason: refplan.Expired})
		return nil
	}
	switch e.Class {
	case refplan.Announcement:
		g.AddAnnouncement(e)
	case refplan.MaintainerAnnouncement:
		g.MaintainerAnnouncements = append(g.MaintainerAnnouncements, e)
	case refplan.State:
		s := e.State
		if slices.ContainsFunc(g.StoredStates, func(o *nip34.State) bool {
			return o.Ref == s.Ref && o.Key().Newer(s.Key())
		}) {
			g.Ending = append(g.Ending, refplan.Ended{Entry: e, Reason: refplan.Replaced})
			return nil
		}
		g.HeldStates = append(g.HeldStates, e)
	case refplan.PullRequest:
		g.HeldPulls = append(g.HeldPulls, e)
	}
	return nil
}

func (p *Purgatory) deleted(ctx context.Context, e refplan.Entry) (bool, error) {
	deleted, err := p.relay.Deleted(ctx, e.Signed())
	if err != nil {
		return false, fmt.Errorf("asking for deletions: %w", err)
	}
	return deleted, nil
}

// listings includes softly expired announcements, because they may be revived.
func (p *Purgatory) listings(ctx context.Context, identifier string) (w listings, err error) {
	held := p.pending.named(identifier, (*pendingEvent).isAnnouncement)
	ours, all, err := p.announcements(ctx, identifier)
	if err != nil {
		return w, err
	}
	all = slices.Concat(ours, all)
	var owners []graspsync.PubKey
	for _, e := range held {
		if all = append(all, e.Announces); e.Class == refplan.Announcement {
			owners = append(owners, e.Author)
		}
	}
	w.family = p.cfg.Membership.AnnouncementSet(identifier, all)
	w.served, _ = w.family.Wanted(nip34.Owners(ours), nip34.ServedBounds())
	w.held, _ = w.family.Wanted(owners, nip34.HeldBounds())
	return w, nil
}

// announcedRefs returns all announced repositories. The value is true for hosted ones.
func (p *Purgatory) announcedRefs(ctx context.Context) (map[graspsync.RepoRef]bool, error) {
	ctx, cancel := context.WithTimeout(ctx, p.cfg.fixed.Timeout)
	defer cancel()
	held := p.pending.all(nil) // first, so that an event released in between is in both
	out, err := p.relay.announcedRefs(ctx)
	if err != nil {
		return nil, fmt.Errorf("reading announcements: %w", err)
	}
	for _, e := range held {
		if e.IsAnnouncement() {
			lists, err := p.relay.Lists(e.Announces) // the service may have had another name
			out[e.Repos[0]] = out[e.Repos[0]] || e.Class == refplan.Announcement && !e.Soft && (lists || err != nil)
		}
	}
	return out, nil
}

// namedBy returns the objects that the newest stored state and held events of members name.
func (p *Purgatory) namedBy(ctx context.Context, ref graspsync.RepoRef) (ids []nip34.ObjectID, err error) {
	g, err := p.readGroup(ctx, ref.Identifier, refplan.Reasons{})
	if err != nil {
		return nil, err
	}
	r := g.Repository(ref)
	if s := g.NewestStored(r); s != nil {
		ids = slices.Collect(maps.Values(s.Refs))
	}
	entries := p.pending.of(ref)
	for _, e := range entries {
		switch {
		case !r.IsMember(e.Author):
		case e.Class == refplan.State:
			ids = slices.AppendSeq(ids, maps.Values(e.State.Refs))
		case e.Class == refplan.PullRequest:
			ids = append(ids, e.Pull.Tip)
		}
	}
	return ids, nil
}

// Announced returns the announcement of a repository, stored or held, or nil, and its members.
func (p *Purgatory) Announced(ctx context.Context, ref graspsync.RepoRef) (a *nip34.Announcement, members map[graspsync.PubKey]struct{}, err error) {
	g, err := p.readEvents(ctx, ref, refplan.Reasons{}, p.pending.of(ref))
	if err != nil {
		return nil, nil, err
	}
	if a = g.StoredAnnouncements[ref]; a == nil {
		a = g.HeldAnnouncements[ref].Announces
	}
	return a, g.Family.Authority(ref).Members(), nil
}

func (p *Purgatory) announcementStored(ctx context.Context, ref graspsync.RepoRef) (bool, error) {
	ours, _, err := p.announcements(ctx, ref.Identifier)
	return slices.ContainsFunc(ours, func(a *nip34.Announcement) bool { return a.Ref == ref }), err
}

func hasExpired(ev *nostr.Event, now time.Time) bool {
	if ev == nil {
		return false
	}
	at, expires := nip34.Expiration(ev)
	return expires && now.Unix() >= int64(at)
}

func (r safeRelay) announcements(ctx context.Context, identifier string) (ours, others []*nip34.Announcement, err error) {
	var failed error
	err = r.each(ctx, named(graspsync.KindAnnouncement, identifier), func(ev graspsync.Event) bool {
		a, err := nip34.ParseAnnouncement(ev)
		if err != nil || a.Ref.Identifier != identifier {
			return true
		}
		var lists bool
		switch lists, failed = r.Lists(a); {
		case lists:
			ours = append(ours, a)
		default:
			others = append(others, a)
		}
		return failed == nil
	})
	if err = errors.Join(err, failed); err != nil {
		return nil, nil, fmt.Errorf("reading announcements: %w", err)
	}
	return ours, others, nil
}

func (r safeRelay) states(ctx context.Context, identifier string) (out []*nip34.State, err error) {
	err = r.each(ctx, named(graspsync.KindState, identifier), func(ev graspsync.Event) bool {
		if st, err := nip34.ParseState(ev); err == nil && st.Ref.Identifier == identifier {
			out = append(out, st)
		}
		return true
	})
	return out, err
}

func named(kind int, identifier string) nostr.Filter {
	return nostr.Filter{Kinds: []int{kind}, Tags: nostr.TagMap{"d": {identifier}}}
}

// announcedRefs returns the repositories of all stored announcements. The value is true if an
// announcement lists this service and has not expired, or if the relay cannot tell.
func (r safeRelay) announcedRefs(ctx context.Context) (out map[graspsync.RepoRef]bool, err error) {
	out = make(map[graspsync.RepoRef]bool)
	err = r.each(ctx, nostr.Filter{Kinds: []int{graspsync.KindAnnouncement}}, func(ev graspsync.Event) bool {
		if a, err := nip34.ParseAnnouncement(ev); err == nil {
			lists, err := r.Lists(a)
			out[a.Ref] = out[a.Ref] || (lists || err != nil) && !hasExpired(ev.Event, time.Now())
		}
		return true
	})
	if errors.Is(err, ErrIncomplete) {
		err = nil
	}
	return out, err
}

const idsAtOnce = 100

func (r safeRelay) lacks(ctx context.Context, ids []graspsync.EventID) (lacking []graspsync.EventID, err error) {
	for some := range slices.Chunk(ids, idsAtOnce) {
		asked, names := make(map[graspsync.EventID]bool, len(some)), make([]string, 0, len(some))
		for _, id := range some {
			asked[id] = true
			names = append(names, id.String())
		}
		err := r.each(ctx, nostr.Filter{IDs: names}, func(ev graspsync.Event) bool {
			delete(asked, ev.ID)
			return len(asked) > 0
		})
		if err != nil {
			return nil, fmt.Errorf("asking for events: %w", err)
		}
		lacking = slices.AppendSeq(lacking, maps.Keys(asked))
	}
	return lacking, nil
}

func (r safeRelay) pulls(ctx context.Context, ref graspsync.RepoRef, f func(*nip34.PullRequest)) error {
	err := r.each(ctx, nostr.Filter{
		Kinds: []int{graspsync.KindPullRequest, graspsync.KindPullRequestUpdate}, Tags: nostr.TagMap{"a": {ref.String()}},
	}, func(ev graspsync.Event) bool {
		if pr, err := nip34.ParsePullRequest(ev); err == nil && slices.Contains(pr.Repos, ref) {
			f(pr)
		}
		return true
	})
	if err != nil {
		return fmt.Errorf("reading pull requests: %w", err)
	}
	return nil
}
