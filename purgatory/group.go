package purgatory

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/ledger"
)

// group is all that is known of the repositories with one identifier: a state may
// concern several of them.
type group struct {
	identifier string
	membership nip34.Membership
	accepted   map[filters.RepoRef]*nip34.Announcement
	waiting    map[filters.RepoRef]ledger.Entry // announcements that wait
	all        []*nip34.Announcement            // the newest of each repository
	states     []heldState
	pulls      []heldPull
	stored     []*nip34.State
	over       []ended                    // what does not wait any more
	repos      []*repository              // ours that anything is to be done about, locked, in order
	cut        bool                       // not all of these, since there are too many
	touched    map[filters.RepoRef]uint64 // that were when it was found out what to look at
	late       bool                       // what had to be released before a crash counts though its time is over
}

// ended is an entry whose waiting has ended by what others did.
type ended struct {
	entry ledger.Entry
	fate  Fate
}

type heldState struct {
	entry ledger.Entry
	state *nip34.State
}

type heldPull struct {
	entry ledger.Entry
	pull  *nip34.PullRequest
}

// repository is one repository while it is locked.
type repository struct {
	ref     filters.RepoRef
	dir     string
	unlock  func()
	members map[filters.PubKey]struct{}
	refs    Refs
	asked   map[nip34.ObjectID]struct{} // what was looked for
	missing map[nip34.ObjectID]struct{} // of that
	pushed  map[nip34.RefName]struct{}  // refs that pushes have moved while a state waited
	decides *nip34.State                // what its refs are now, but for these; nil: nobody says
	active  bool                        // its announcement is accepted, or about to be
	failed  error                       // it could not be dealt with; it stays queued
	trouble error                       // something else went wrong; it is looked at again
}

// gather reads what is known under an identifier. It changes nothing.
func (p *Purgatory) gather(ctx context.Context, identifier string, late bool) (*group, error) {
	g := &group{
		identifier: identifier,
		membership: p.cfg.Membership,
		late:       late,
		accepted:   make(map[filters.RepoRef]*nip34.Announcement),
		waiting:    make(map[filters.RepoRef]ledger.Entry),
	}
	announcements, err := p.relay.Announcements(ctx, identifier)
	if err != nil {
		return nil, fmt.Errorf("reading announcements: %w", err)
	}
	for _, a := range announcements {
		if old := g.accepted[a.Ref]; old == nil || nip34.Newer(a.Version(), old.Version()) {
			g.accepted[a.Ref] = a
		}
	}
	for _, a := range g.accepted {
		g.all = append(g.all, a)
	}
	if g.stored, err = p.relay.States(ctx, identifier); err != nil {
		return nil, fmt.Errorf("reading states: %w", err)
	}
	for _, e := range p.under(g) {
		if err := p.sort(ctx, g, e, late); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(g.states, func(a, b heldState) int { return older(a.state.Version(), b.state.Version()) })
	slices.SortFunc(g.pulls, func(a, b heldPull) int { return a.entry.ID.Compare(b.entry.ID) })
	return g, nil
}

// under returns the entries that may concern a repository of a group, each once.
func (p *Purgatory) under(g *group) (out []ledger.Entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := make(map[filters.EventID]struct{})
	add := func(ref filters.RepoRef) {
		for _, e := range p.ledger.Of(ref) {
			if _, again := seen[e.ID]; !again && !e.Soft {
				seen[e.ID] = struct{}{}
				out = append(out, e)
			}
		}
	}
	for _, e := range p.ledger.Announcements(g.identifier, false) {
		add(e.Repos[0])
	}
	for ref := range g.accepted {
		add(ref)
	}
	return out
}

// sort puts an entry where it belongs.
func (p *Purgatory) sort(ctx context.Context, g *group, e ledger.Entry, late bool) error {
	if e.Event == nil {
		return nil
	}
	deleted, err := p.relay.Deleted(ctx, e.Event)
	if err != nil {
		return fmt.Errorf("asking for deletions: %w", err)
	}
	now := time.Now()
	if deleted {
		g.over = append(g.over, ended{e, Deleted})
		return nil
	}
	if at, expires := nip34.Expiration(e.Event); expires && now.Unix() >= int64(at) {
		g.over = append(g.over, ended{e, Expired}) // NIP-40
		return nil
	}
	if e.Class != ledger.Announcement && !late && !now.Before(e.Deadline) {
		return nil // its time is over: it is expired by the clock, not by whoever looks first
	}
	switch e.Class {
	case ledger.Announcement:
		return g.sortAnnouncement(e)
	case ledger.State:
		s, err := nip34.ParseState(e.Event)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(g.stored, func(o *nip34.State) bool {
			return o.Ref == s.Ref && nip34.Newer(o.Version(), s.Version())
		}) {
			g.over = append(g.over, ended{e, Replaced})
			return nil
		}
		g.states = append(g.states, heldState{e, s})
	case ledger.PullRequest:
		pr, err := nip34.ParsePullRequest(e.Event)
		if err != nil {
			return err
		}
		g.pulls = append(g.pulls, heldPull{e, pr})
	}
	return nil
}

func (g *group) sortAnnouncement(e ledger.Entry) error {
	a, err := nip34.ParseAnnouncement(e.Event)
	if err != nil {
		return err
	}
	switch served := g.accepted[a.Ref]; {
	case served == nil:
		g.all = append(g.all, a)
	case nip34.Newer(served.Version(), a.Version()):
		g.over = append(g.over, ended{e, Replaced})
		return nil
	}
	g.waiting[a.Ref] = e
	return nil
}

// concerned returns the repositories of a group that something is to be done about,
// in order: those that something waits for, those that lack something, and those that
// we were told of. The others cost nothing, however many there are.
func (p *Purgatory) concerned(g *group, check bool) (out []*repository) {
	refs := make(map[filters.RepoRef]struct{}, len(g.accepted)+len(g.waiting))
	for ref := range g.accepted {
		refs[ref] = struct{}{}
	}
	for ref := range g.waiting {
		refs[ref] = struct{}{}
	}
	p.mu.Lock()
	lacking := p.needs[g.identifier]
	touched := make(map[filters.RepoRef]bool)
	for ref := range refs {
		_, a := p.touched[g.identifier][ref]
		_, b := lacking[ref]
		touched[ref] = a || b
	}
	g.touched = maps.Clone(p.touched[g.identifier])
	p.mu.Unlock()
	for ref := range refs {
		touched[ref] = touched[ref] || g.answered(ref)
		r := g.repository(ref)
		_, waits := g.waiting[ref]
		stored := g.newestStored(r) != nil
		if g.waitsFor(r) || (touched[ref] && (waits || stored)) || (check && stored) {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b *repository) int { return a.ref.Compare(b.ref) })
	if most := p.cfg.MaxRepositories; len(out) > most {
		g.cut = true
		p.stats.drop("repositories")
		rand.Shuffle(len(out), func(i, j int) { out[i], out[j] = out[j], out[i] })
		slices.SortStableFunc(out, func(a, b *repository) int { return g.wrote(b) - g.wrote(a) })
		out = out[:most]
		slices.SortFunc(out, func(a, b *repository) int { return a.ref.Compare(b.ref) })
	}
	return out
}

func (g *group) repository(ref filters.RepoRef) *repository {
	return &repository{ref: ref, members: g.membership.Set(ref, g.all), active: g.accepted[ref] != nil}
}

// waitsFor reports whether a state or a pull request waits for a repository.
func (g *group) waitsFor(r *repository) bool {
	return slices.ContainsFunc(g.states, func(h heldState) bool { return r.isMember(h.state.Ref.Owner) }) ||
		slices.ContainsFunc(g.pulls, func(h heldPull) bool { return slices.Contains(h.pull.Repos, r.ref) }) ||
		slices.ContainsFunc(g.over, func(o ended) bool {
			return o.entry.Class == ledger.PullRequest && slices.Contains(o.entry.Repos, r.ref)
		})
}

// wrote is 1 if the owner of a repository wrote a state that waits.
func (g *group) wrote(r *repository) int {
	if slices.ContainsFunc(g.states, func(h heldState) bool { return h.state.Ref == r.ref }) {
		return 1
	}
	return 0
}

func (r *repository) isMember(author filters.PubKey) bool {
	_, member := r.members[author]
	return member
}

// older orders versions, the oldest first.
func older(a, b nip34.Version) int {
	switch {
	case nip34.Newer(b, a):
		return -1
	case nip34.Newer(a, b):
		return 1
	}
	return 0
}

// lock locks repositories, in order, so that nobody waits for each other, and reads
// their refs. One that can't be locked does not hold up the others: their owners need
// not know each other, and a push may take long.
func (p *Purgatory) lock(ctx context.Context, g *group, repos []*repository) {
	end := time.Now().Add(p.cfg.Timeout / lockShare)
	for _, r := range repos {
		r.failed = p.open(ctx, g, r, max(time.Until(end), leastLockWait))
	}
}

// The locks of one look are waited for this part of Config.Timeout in all, and each for
// leastLockWait at least. What could not be locked is looked at again soon.
const (
	lockShare     = 60
	leastLockWait = 20 * time.Millisecond
)

// open locks one repository, making it if need be.
func (p *Purgatory) open(ctx context.Context, g *group, r *repository, patience time.Duration) error {
	format, known := g.formatOf(r)
	for range 2 {
		dir, unlock, err := p.enter(ctx, r.ref, patience)
		switch {
		case errors.Is(err, ErrNoRepository):
			if err := p.repos.Create(ctx, r.ref, format); err != nil {
				return fmt.Errorf("creating repository: %w", err)
			}
			p.step("created")
			continue
		case err != nil:
			return err
		}
		refs, err := p.git.Refs(ctx, dir)
		if err != nil {
			unlock()
			return err
		}
		if known && refs.Format != format && len(refs.At) == 0 {
			unlock()
			if err := p.remake(ctx, r.ref, format); err != nil {
				return fmt.Errorf("creating repository anew: %w", err)
			}
			continue
		}
		r.dir, r.unlock, r.refs = dir, unlock, refs
		return nil
	}
	return fmt.Errorf("locking repository: %w", ErrNoRepository)
}

// remake makes an empty repository anew, unless something is being fetched for it.
func (p *Purgatory) remake(ctx context.Context, ref filters.RepoRef, format nip34.ObjectFormat) error {
	leave, free := p.engine.fetches.take(ref)
	if !free {
		return ErrInUse
	}
	defer leave()
	return p.repos.Create(ctx, ref, format)
}

// formatOf is the object format that a repository should have, by the newest state
// that names any object; false if there is none.
func (g *group) formatOf(r *repository) (format nip34.ObjectFormat, known bool) {
	var newest *nip34.State
	consider := func(s *nip34.State) {
		if r.isMember(s.Ref.Owner) && len(s.Refs) > 0 &&
			(newest == nil || nip34.Newer(s.Version(), newest.Version())) {
			newest = s
		}
	}
	for _, s := range g.stored {
		consider(s)
	}
	for _, s := range g.states {
		consider(s.state)
	}
	if newest != nil {
		for _, id := range newest.Refs {
			return id.Format(), true
		}
	}
	return nip34.SHA1, false
}

func unlock(repos []*repository) {
	for _, r := range repos {
		if r.unlock != nil {
			r.unlock()
			r.unlock = nil
		}
	}
}
