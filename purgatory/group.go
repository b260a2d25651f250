package purgatory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/ledger"
	"github.com/graspsync/graspsync/purgatory/internal/stopwatch"
)

// group is what is known of the repositories with one identifier, as far as it concerns
// those that are looked at: a state may concern several of them.
type group struct {
	identifier string
	family     *nip34.Family // who has a say in them
	accepted   map[graspsync.RepoRef]*nip34.Announcement
	waiting    map[graspsync.RepoRef]ledger.Entry // announcements that wait
	all        []*nip34.Announcement              // the newest of each repository
	states     []heldState
	pulls      []heldPull
	relatives  []heldRelative // of those whom others list that wait
	stored     []*nip34.State
	over       []ended             // what does not wait any more
	pins       []graspsync.EventID // of entries that nobody else may end
	late       bool                // what had to be released before a crash counts though its time is over
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

type heldRelative struct {
	entry        ledger.Entry
	announcement *nip34.Announcement
}

type heldPull struct {
	entry ledger.Entry
	pull  *nip34.PullRequest
}

// repository is one repository while it is locked.
type repository struct {
	ref     graspsync.RepoRef
	dir     string
	unlock  func()
	members map[graspsync.PubKey]struct{}
	refs    Refs
	watch   *stopwatch.Watch               // of the look, which may be at others as well
	until   time.Duration                  // of watch: when its share of time is over
	found   map[nip34.ObjectID]struct{}    // what is here, with all that it needs
	missing map[nip34.ObjectID]struct{}    // what was not, of what is of use
	kinds   map[nip34.ObjectID]ObjectKind  // of what is there
	probed  bool                           // git can tell what is there
	gained  bool                           // objects came to it in this look
	came    map[nip34.ObjectID]struct{}    // those that did, from other repositories
	more    bool                           // some did not, for which there may be room when these have refs
	unfit   map[graspsync.EventID]struct{} // states that can't be its refs
	over    map[graspsync.EventID]struct{} // pull requests that may have no ref; nil: none is looked at yet
	// displaced are the refs of pull requests that give way.
	displaced []RefChange
	pushed    map[nip34.RefName]struct{} // refs that pushes have moved while a state waited
	decides   *nip34.State               // what its refs are now, but for these; nil: nobody says
	active    bool                       // its announcement is accepted, or about to be
	failed    error                      // it could not be dealt with; it is looked at again
	trouble   error                      // something else went wrong; it is looked at again
}

// gather reads what is known of a repository. It changes nothing.
func (p *Purgatory) gather(ctx context.Context, ref graspsync.RepoRef, late bool) (*group, error) {
	g, err := p.announced(ctx, ref.Identifier, late)
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	entries := p.ledger.Of(ref)
	p.mu.Unlock()
	r := g.repository(ref)
	err = p.sortAll(ctx, g, slices.DeleteFunc(entries, func(e ledger.Entry) bool {
		return e.Class == ledger.Announcement || (e.Class == ledger.State && !r.isMember(e.Author))
	}))
	return g, err
}

// gatherAll reads what is known of all repositories with an identifier.
func (p *Purgatory) gatherAll(ctx context.Context, identifier string) (*group, error) {
	g, err := p.announced(ctx, identifier, false)
	if err != nil {
		return nil, err
	}
	err = p.sortAll(ctx, g, p.under(g))
	return g, err
}

// announced reads which repositories with an identifier are ours, or may be, and what is
// stored about them.
func (p *Purgatory) announced(ctx context.Context, identifier string, late bool) (*group, error) {
	g := &group{
		identifier: identifier,
		late:       late,
		accepted:   make(map[graspsync.RepoRef]*nip34.Announcement),
		waiting:    make(map[graspsync.RepoRef]ledger.Entry),
	}
	// What waits is read before what is stored: what is released meanwhile is found twice, and
	// not taken for what nobody has announced.
	p.mu.Lock()
	waiting := slices.Concat(p.ledger.Announcements(identifier, false), p.ledger.Relatives(identifier))
	p.mu.Unlock()
	announcements, err := p.relay.Announcements(ctx, identifier)
	if err != nil {
		return nil, fmt.Errorf("reading announcements: %w", err)
	}
	now := time.Now()
	for _, a := range announcements {
		if hasExpired(a.Event, now) {
			continue
		}
		if old := g.accepted[a.Ref]; old == nil || a.Stamp().Newer(old.Stamp()) {
			g.accepted[a.Ref] = a
		}
	}
	for _, a := range g.accepted {
		g.all = append(g.all, a)
	}
	if g.stored, err = p.relay.States(ctx, identifier); err != nil {
		return nil, fmt.Errorf("reading states: %w", err)
	}
	if err = p.sortAll(ctx, g, waiting); err != nil {
		return g, err
	}
	var ours, others []*nip34.Announcement
	for _, a := range g.all {
		if g.accepted[a.Ref] != nil {
			ours = append(ours, a)
		} else {
			others = append(others, a)
		}
	}
	g.family, err = p.family(ctx, identifier, ours, others, g.relatives)
	return g, err
}

// under returns the entries that may concern a repository of a group, each once, but for
// the announcements.
func (p *Purgatory) under(g *group) (out []ledger.Entry) {
	p.mu.Lock()
	defer p.mu.Unlock()
	seen := make(map[graspsync.EventID]struct{})
	for ref := range g.ours() {
		for _, e := range p.ledger.Of(ref) {
			if _, again := seen[e.ID]; !again && e.Class != ledger.Announcement {
				seen[e.ID] = struct{}{}
				out = append(out, e)
			}
		}
	}
	return out
}

// ours returns the repositories whose announcements are accepted, or wait.
func (g *group) ours() map[graspsync.RepoRef]struct{} {
	refs := make(map[graspsync.RepoRef]struct{}, len(g.accepted)+len(g.waiting))
	for ref := range g.accepted {
		refs[ref] = struct{}{}
	}
	for ref := range g.waiting {
		refs[ref] = struct{}{}
	}
	return refs
}

// isOurs reports whether the announcement of a repository is accepted, or waits.
func (g *group) isOurs(ref graspsync.RepoRef) bool {
	_, waits := g.waiting[ref]
	return waits || g.accepted[ref] != nil
}

// sortAll puts entries where they belong, but for those whose waiting is being ended.
func (p *Purgatory) sortAll(ctx context.Context, g *group, entries []ledger.Entry) error {
	p.mu.Lock()
	entries = slices.DeleteFunc(entries, func(e ledger.Entry) bool {
		_, ending := p.ending[e.ID]
		return ending || e.Soft
	})
	p.mu.Unlock()
	for _, e := range entries {
		if err := p.sort(ctx, g, e); err != nil {
			return err
		}
	}
	slices.SortFunc(g.states, func(a, b heldState) int { return older(a.state.Stamp(), b.state.Stamp()) })
	slices.SortFunc(g.pulls, func(a, b heldPull) int { return a.entry.ID.Compare(b.entry.ID) })
	return nil
}

// sort puts an entry where it belongs.
func (p *Purgatory) sort(ctx context.Context, g *group, e ledger.Entry) error {
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
	if hasExpired(e.Event, now) {
		g.over = append(g.over, ended{e, Expired})
		return nil
	}
	if e.Class != ledger.Announcement && !g.late && !now.Before(e.Deadline) && !p.isFetchedFor(e) {
		return nil // its time is over: it is expired by the clock, not by whoever looks first
	}
	switch e.Class {
	case ledger.Announcement:
		g.sortAnnouncement(e)
	case ledger.Relative:
		g.relatives = append(g.relatives, heldRelative{e, e.Announces})
	case ledger.State:
		s, err := nip34.ParseState(e.Event)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(g.stored, func(o *nip34.State) bool {
			return o.Ref == s.Ref && o.Stamp().Newer(s.Stamp())
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

// hasExpired reports whether the time of an event is over that it gives itself (NIP-40).
func hasExpired(ev *nostr.Event, now time.Time) bool {
	if ev == nil {
		return false
	}
	at, expires := nip34.Expiration(ev)
	return expires && now.Unix() >= int64(at)
}

func (g *group) sortAnnouncement(e ledger.Entry) {
	a := e.Announces
	switch served := g.accepted[a.Ref]; {
	case served == nil:
		g.all = append(g.all, a)
	case served.Stamp().Newer(a.Stamp()):
		g.over = append(g.over, ended{e, Replaced})
		return
	}
	g.waiting[a.Ref] = e
}

func (g *group) repository(ref graspsync.RepoRef) *repository {
	return &repository{
		ref: ref, members: g.family.Authority(ref).Members(), active: g.accepted[ref] != nil,
		found: make(map[nip34.ObjectID]struct{}), missing: make(map[nip34.ObjectID]struct{}),
		kinds: make(map[nip34.ObjectID]ObjectKind),
	}
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

func (r *repository) isMember(author graspsync.PubKey) bool {
	_, member := r.members[author]
	return member
}

// older orders versions, the oldest first.
func older(a, b graspsync.Stamp) int {
	switch {
	case b.Newer(a):
		return -1
	case a.Newer(b):
		return 1
	}
	return 0
}

// The lock of a repository is waited for this part of Config.Timeout, since pushes may
// take long; that of another one, which it would have objects from, for leastLockWait.
// What could not be locked is looked at again soon. It is also a look's share of time.
const (
	lockShare     = 60
	leastLockWait = 20 * time.Millisecond
)

// open locks a repository, making it if need be, and reads what is known of it, and its
// refs. What was read before it was locked may be over by now, a state that a push was
// judged by, say. The repository is nil if it is not ours. What waits is not ended by
// others until unpin.
func (p *Purgatory) open(ctx context.Context, ref graspsync.RepoRef, late bool) (*group, *repository, error) {
	for range 3 {
		dir, unlock, err := p.enter(ctx, ref, p.cfg.fixed.Timeout/lockShare)
		absent := errors.Is(err, ErrNoRepository)
		if err != nil && !absent {
			return nil, nil, err
		}
		g, r, err := p.read(ctx, ref, dir, late)
		if err == nil && r != nil && !absent && r.as(g) {
			r.unlock = unlock
			return g, r, nil
		}
		if !absent {
			unlock()
		}
		if err != nil || r == nil {
			return g, nil, err
		}
		format, _ := g.formatOf(r)
		err = p.makeFor(ctx, ref, format, absent)
		p.unpin(g) // not before: its announcement would expire meanwhile, and have it removed
		if err != nil {
			return nil, nil, err
		}
	}
	return nil, nil, fmt.Errorf("locking repository: %w", ErrNoRepository)
}

// makeFor makes a repository that is not there, or an empty one anew.
func (p *Purgatory) makeFor(ctx context.Context, ref graspsync.RepoRef, format nip34.ObjectFormat, absent bool) error {
	if !absent {
		if err := p.remake(ctx, ref, format); err != nil {
			return fmt.Errorf("creating repository anew: %w", err)
		}
		return nil
	}
	if err := p.repos.Create(ctx, ref, format); err != nil {
		return fmt.Errorf("creating repository: %w", err)
	}
	p.step("created")
	return nil
}

// read reads what is known of a repository, and its refs if it is there.
func (p *Purgatory) read(ctx context.Context, ref graspsync.RepoRef, dir string, late bool) (*group, *repository, error) {
	g, err := p.gather(ctx, ref, late)
	if err != nil {
		return nil, nil, err
	}
	p.pin(g, ref)
	r := g.repository(ref)
	if !g.isOurs(ref) {
		return g, nil, nil
	}
	r.pushed = p.pushedTo(ref)
	if dir == "" {
		return g, r, nil
	}
	if r.refs, err = p.git.Refs(ctx, dir); err != nil {
		p.unpin(g)
		return nil, nil, err
	}
	r.dir = dir
	return g, r, nil
}

// as reports whether a repository hashes its objects as it should, or can't any more.
func (r *repository) as(g *group) bool {
	format, known := g.formatOf(r)
	return !known || r.refs.Format == format || len(r.refs.At) > 0
}

// pin keeps what a look has found waiting from being ended by the clock.
func (p *Purgatory) pin(g *group, ref graspsync.RepoRef) {
	p.mu.Lock()
	defer p.mu.Unlock()
	hold := func(id graspsync.EventID) bool { return p.keepFor(g, id) }
	g.states = slices.DeleteFunc(g.states, func(h heldState) bool { return !hold(h.entry.ID) })
	g.pulls = slices.DeleteFunc(g.pulls, func(h heldPull) bool { return !hold(h.entry.ID) })
	if e, waits := g.waiting[ref]; waits && !hold(e.ID) {
		delete(g.waiting, ref)
	}
}

// keepFor keeps one entry from being ended; false if it is being ended already. It is called
// with mu held.
func (p *Purgatory) keepFor(g *group, id graspsync.EventID) bool {
	if _, ending := p.ending[id]; ending {
		return false
	}
	p.pinned[id]++
	g.pins = append(g.pins, id)
	return true
}

// unpin lets go of what pin has kept.
func (p *Purgatory) unpin(g *group) {
	if g == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range g.pins {
		if p.pinned[id]--; p.pinned[id] == 0 {
			delete(p.pinned, id)
		}
	}
	g.pins = nil
}

// remake makes an empty repository anew, unless something is being fetched for it.
func (p *Purgatory) remake(ctx context.Context, ref graspsync.RepoRef, format nip34.ObjectFormat) error {
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
			(newest == nil || s.Stamp().Newer(newest.Stamp())) {
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
