package purgatory

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/nbd-wtf/go-nostr"

	"github.com/graspsync/graspsync/filters"
	"github.com/graspsync/graspsync/nip34"
	"github.com/graspsync/graspsync/purgatory/internal/ration"
	"github.com/graspsync/graspsync/purgatory/internal/stopwatch"
)

// The refs of pull requests are for anybody to have made, of commits that are here, and
// everybody who pushes is told of all of them. Those without a say in a repository have so
// many each, and all together; what they take up is bounded by Config.MaxPullBytes.
const (
	maxPullsOfAuthor = 100
	maxPullsOfRepo   = 5_000
)

// rations says which pull requests have a ref, whatever comes first, the event or its
// data, and whoever makes it. Where there is no room the oldest of an author, or one of whoever has the most,
// gives way: package ration has the rule. The events stay; who pushes for one again may
// have room by then.
type rations struct {
	p      *Purgatory
	lister PullLister // nil: nobody can tell whose refs they are

	mu sync.Mutex
	// guarded by mu
	weights map[filters.RepoRef]weighed
	// displaced is what had a ref and has none any more, but may still be on the disk, in
	// bytes: at most Config.MaxPullBytes, or all that had refs besides. After a restart it
	// is forgotten, and goes when its time has come.
	displaced map[filters.RepoRef]displaced
}

// displaced is what has given way in a repository.
type displaced struct {
	bytes int64
	since time.Time // that is still there
}

// weighed is what the pull requests of a repository were found to take up that have refs,
// when its branches and tags were what a hash says.
type weighed struct {
	of    map[filters.EventID]int64
	state [sha256.Size]byte
	// stale are those of which it must be found again: what they need somebody else had as
	// well, for whom it counted, and who has no ref any more, or may not have been weighed.
	stale map[filters.EventID]struct{}
	again bool // one more has gone since these began to be weighed
}

// begin has all weighed again if one has gone for which anything counted: others may keep
// that. Those that are being weighed again are done with first.
func (w weighed) begin(refs Refs) weighed {
	gone := w.again
	for id, bytes := range w.of {
		_, has := refs.At[nip34.EventRef(id)]
		gone = gone || bytes > 0 && !has
	}
	if w.again = gone; !gone || len(w.stale) > 0 {
		return w
	}
	w.again, w.stale = false, make(map[filters.EventID]struct{}, len(w.of))
	for id := range w.of {
		w.stale[id] = struct{}{}
	}
	return w
}

// stateOf is a hash of what branches and tags are at.
func stateOf(refs Refs) [sha256.Size]byte {
	var ids []string
	for name, at := range refs.At {
		if isState(name) {
			ids = append(ids, at.String())
		}
	}
	slices.Sort(ids)
	return sha256.Sum256([]byte(strings.Join(slices.Compact(ids), " ")))
}

func newRations(p *Purgatory, relay Relay) *rations {
	x := &rations{p: p, weights: make(map[filters.RepoRef]weighed), displaced: make(map[filters.RepoRef]displaced)}
	x.lister, _ = relay.(PullLister)
	return x
}

// asked are pull requests that are to have a ref in a repository that is locked.
type asked struct {
	*repository
	pulls []*nip34.PullRequest
	bytes int64 // that each may bring; -1: it is here, and can be weighed
}

// answered is what becomes of that.
type answered struct {
	over    map[filters.EventID]struct{} // of those that were asked for, and of others
	gone    []RefChange                  // what others had
	leaves  int64                        // bytes that only those needed
	unswept bool                         // there was room but for what has given way before
	weighed weighed
}

// weighShare bounds the time in which it is found out, at a time, what refs take up of
// which that is not known: those that a push has moved, and all after a restart.
const weighShare = time.Second

// judge says which pull requests may have a ref, and whose ref must go for that.
func (x *rations) judge(ctx context.Context, a asked) (answered, error) {
	out := answered{over: make(map[filters.EventID]struct{})}
	a.pulls = slices.DeleteFunc(slices.Clone(a.pulls), func(pr *nip34.PullRequest) bool {
		_, member := a.members[pr.Author]
		_, has := a.refs.At[nip34.EventRef(pr.ID)]
		return member || has
	})
	if len(a.pulls) == 0 {
		return out, nil
	}
	var err error
	if out.weighed, err = x.weigh(ctx, a); err != nil {
		return out, err
	}
	sum, refs := int64(0), len(a.pulls)
	for _, w := range out.weighed.of {
		sum += w
	}
	for name := range a.refs.At {
		if !isState(name) {
			refs++
		}
	}
	if x.waitsForPrune(a, &out, nil) || refs <= maxPullsOfAuthor && sum <= x.p.cfg.MaxPullBytes {
		return out, nil
	}
	if x.lister == nil {
		for _, pr := range a.pulls {
			if refs > maxPullsOfRepo || sum > x.p.cfg.MaxPullBytes {
				out.over[pr.ID] = struct{}{}
			}
		}
		return out, nil
	}
	ids, err := x.choose(ctx, a, &out.weighed)
	if err != nil {
		return out, err
	}
	out.leaves = x.leaving(ctx, a, ids, out.weighed.of)
	if x.waitsForPrune(a, &out, ids) { // what there is too much of goes all the same: that adds nothing
		a.pulls = nil
		if ids, err = x.choose(ctx, a, &out.weighed); err != nil {
			return out, err
		}
		out.leaves = x.leaving(ctx, a, ids, out.weighed.of)
	}
	for _, id := range ids {
		name := nip34.EventRef(id)
		out.over[id] = struct{}{}
		if at, has := a.refs.At[name]; has {
			out.gone = append(out.gone, RefChange{Name: name, Old: at})
		}
	}
	return out, nil
}

// much is of how many bytes that have given way a repository is rid at once.
func (x *rations) much() int64 { return max(x.p.cfg.MaxPullBytes/2, 1) }

// waitsForPrune reports whether pull requests that take up anything must wait until what
// has given way is gone from the disk, and for which others would have to as well, and
// refuses them then: else who pushes again and again could have any number of bytes there.
func (x *rations) waitsForPrune(a asked, out *answered, over []filters.EventID) bool {
	there := x.displacedIn(a.ref).bytes
	most := x.p.cfg.MaxPullBytes
	if there == 0 || there < most && there+out.leaves <= most {
		return false
	}
	x.p.upkeep.displaced(a.ref)
	for _, pr := range a.pulls {
		if out.weighed.of[pr.ID] > 0 || len(over) > 0 {
			out.over[pr.ID] = struct{}{}
			out.unswept = true
		}
	}
	return out.unswept
}

// leaving weighs what only refs need that are to go: what others need as well counted for
// one of them and stays. What there is no time for is as it was.
func (x *rations) leaving(ctx context.Context, a asked, ids []filters.EventID, weights map[filters.EventID]int64) (sum int64) {
	if x.p.git.weigher == nil {
		return 0
	}
	goes := setOf(ids)
	here := make(map[nip34.ObjectID]struct{})
	for name, at := range a.refs.At {
		id, of := eventOf(name)
		if _, going := goes[id]; !of || !going {
			here[at] = struct{}{}
		}
	}
	but := slices.Collect(maps.Keys(here))
	until := min(a.until, a.watch.Worked()+weighShare)
	for _, id := range ids {
		at, has := a.refs.At[nip34.EventRef(id)]
		if _, stays := here[at]; stays || !has {
			continue
		}
		bytes := weights[id]
		if a.watch.Worked() < until {
			err := a.work(ctx, weighShare, func(ctx context.Context) error {
				w, err := x.p.git.weigh(ctx, a.dir, at, but)
				if err == nil {
					bytes = w
				}
				return err
			})
			if err != nil {
				x.p.cfg.Logger.Debug("what gives way could not be weighed", keyRepo, printable(a.ref.String()), keyError, printable(err.Error()))
			}
		}
		sum += bytes
		here[at] = struct{}{}
		but = append(but, at)
	}
	return sum
}

// displacedIn returns what has given way in a repository and may be there still.
func (x *rations) displacedIn(ref filters.RepoRef) displaced {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.displaced[ref]
}

// displace notes that bytes have given way in a repository.
func (x *rations) displace(ref filters.RepoRef, bytes int64) {
	if bytes <= 0 || x.p.git.maintainer == nil || x.p.cfg.NoMaintenance {
		return // nobody would ever say that they are gone
	}
	x.mu.Lock()
	d, known := x.displaced[ref]
	if !known {
		d.since = time.Now()
		if len(x.displaced) >= maxUpkeep {
			for other := range x.displaced { // any: it goes all the same, later
				delete(x.displaced, other)
				break
			}
		}
	}
	d.bytes += bytes
	x.displaced[ref] = d
	x.mu.Unlock()
	if d.bytes >= x.much() {
		x.p.upkeep.displaced(ref)
	}
}

// pruned notes that it was looked for what had given way, was bytes, and that so many of
// what nothing names are left; it returns what is on the disk of what gave way.
func (x *rations) pruned(ref filters.RepoRef, began time.Time, was, unnamed int64) (left int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	d, known := x.displaced[ref]
	if !known {
		return 0 // it has left meanwhile
	}
	left = max(0, d.bytes-was) + min(was, unnamed)
	if x.displaced[ref] = (displaced{left, began}); left == 0 {
		delete(x.displaced, ref)
	}
	return left
}

// forget is for a repository that is not here any more: nobody looks for what gave way there,
// which would count for its owner for good.
func (x *rations) forget(ref filters.RepoRef) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.weights, ref)
	delete(x.displaced, ref)
}

// crowded returns the repositories in which much has given way.
func (x *rations) crowded() (refs []filters.RepoRef) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for ref, d := range x.displaced {
		if d.bytes >= x.much() {
			refs = append(refs, ref)
		}
	}
	return refs
}

// Displaced returns how many bytes had the refs of pull requests in repositories of an
// owner, have none any more, and may still be on the disk until these are maintained.
func (p *Purgatory) Displaced(owner filters.PubKey) (bytes int64) {
	p.rations.mu.Lock()
	defer p.rations.mu.Unlock()
	for ref, d := range p.rations.displaced {
		if ref.Owner == owner {
			bytes += d.bytes
		}
	}
	return bytes
}

// remove removes the ref of an event from a repository that is locked, and counts what
// only that needed.
func (x *rations) remove(ctx context.Context, ref filters.RepoRef, dir string, refs Refs, c RefChange) error {
	bytes := x.weightOf(ctx, ref, dir, refs, c)
	if err := x.p.git.Align(ctx, dir, []RefChange{c}, nip34.RefName{}); err != nil {
		x.p.doubt(ref, journal{}) // one ref is there or not: only locks can be left
		return fmt.Errorf("removing a ref: %w", err)
	}
	x.displace(ref, bytes)
	return nil
}

// weightOf returns what a ref takes up that is about to go. What can't be weighed is taken
// for much, so that it is looked for.
func (x *rations) weightOf(ctx context.Context, ref filters.RepoRef, dir string, refs Refs, c RefChange) int64 {
	if x.p.git.weigher == nil {
		return 0
	}
	id, _ := eventOf(c.Name)
	x.mu.Lock()
	bytes, known := x.weights[ref].of[id]
	x.mu.Unlock()
	if known {
		return bytes
	}
	var but []nip34.ObjectID
	for name, at := range refs.At {
		if at == c.Old && name != c.Name {
			return 0
		}
		if name != c.Name {
			but = append(but, at)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, weighShare)
	defer cancel()
	bytes, err := x.p.git.weigh(ctx, dir, c.Old, but)
	if err != nil {
		return x.much()
	}
	return bytes
}

// choose returns those that must have no ref, of all that have or want one.
func (x *rations) choose(ctx context.Context, a asked, weights *weighed) ([]filters.EventID, error) {
	known, err := x.list(ctx, a)
	if err != nil {
		return nil, err
	}
	pulls := x.pulls(a, known, weights.of)
	limits := ration.Limits{PerAuthor: maxPullsOfAuthor, All: maxPullsOfRepo, Bytes: x.p.cfg.MaxPullBytes}
	ids := ration.Over(pulls, limits)
	if len(ids) == 0 {
		return nil, nil
	}
	// Some were closed or regarded, and what was merged is needed by a branch by now.
	standings, err := x.p.standings(ctx, a.ref, slices.Collect(maps.Values(known)), a.members)
	if err != nil {
		return nil, err
	}
	for i := range pulls {
		switch standings[pulls[i].ID] {
		case PullClosed:
			pulls[i].Standing = ration.Closed
		case PullRegarded:
			pulls[i].Standing = ration.Regarded
		}
	}
	if err := x.reweigh(ctx, a, pulls, weights); err != nil {
		return nil, err
	}
	return ration.Over(pulls, limits), nil
}

// list returns the pull requests that have or want a ref, as far as they are here, by id.
func (x *rations) list(ctx context.Context, a asked) (map[filters.EventID]*nip34.PullRequest, error) {
	known := make(map[filters.EventID]*nip34.PullRequest)
	for name := range a.refs.At {
		if id, ok := eventOf(name); ok {
			if pr := x.p.PullRequest(id); pr != nil {
				known[id] = pr
			}
		}
	}
	err := x.p.stored(ctx, x.lister, a.ref, func(pr *nip34.PullRequest) {
		if _, has := a.refs.At[nip34.EventRef(pr.ID)]; has {
			known[pr.ID] = pr
		}
	})
	for _, pr := range a.pulls {
		known[pr.ID] = pr
	}
	return known, err
}

// pulls returns what is to be chosen from: all but what those have written who have a say.
// The refs of events that are not here are nobody's.
func (x *rations) pulls(a asked, known map[filters.EventID]*nip34.PullRequest, weights map[filters.EventID]int64) (out []ration.Pull) {
	now := nostr.Now() // nobody is younger than that
	add := func(id filters.EventID) {
		p := ration.Pull{ID: id, Bytes: weights[id]}
		if pr := known[id]; pr != nil {
			if _, member := a.members[pr.Author]; member {
				return
			}
			p.Author, p.At, p.Standing = pr.Author, min(pr.CreatedAt, now), ration.Open
		}
		out = append(out, p)
	}
	for name := range a.refs.At {
		if id, ok := eventOf(name); ok {
			add(id)
		}
	}
	for _, pr := range a.pulls {
		add(pr.ID)
	}
	return out
}

// weigh returns what pull requests take up: those that have a ref, as it was found before,
// and those that want one.
func (x *rations) weigh(ctx context.Context, a asked) (weighed, error) {
	weights := make(map[filters.EventID]int64)
	out := weighed{of: weights, state: stateOf(a.refs), stale: make(map[filters.EventID]struct{})}
	if x.p.git.weigher == nil {
		return out, nil
	}
	var but []nip34.ObjectID
	here := make(map[nip34.ObjectID]struct{})
	needed := func(id nip34.ObjectID) {
		if _, again := here[id]; !again {
			here[id] = struct{}{}
			but = append(but, id)
		}
	}
	var unknown, stale []filters.EventID
	x.mu.Lock()
	past := x.weights[a.ref]
	x.mu.Unlock()
	if past.of != nil {
		past = past.begin(a.refs)
		out.state, out.again = past.state, past.again
	}
	for name, at := range a.refs.At {
		id, ok := eventOf(name)
		w, weighed := past.of[id]
		_, again := past.stale[id]
		switch {
		case ok && !weighed:
			unknown = append(unknown, id)
		case ok && again:
			weights[id] = w // until it is weighed
			stale = append(stale, id)
		case ok:
			weights[id] = w
			needed(at)
		default:
			needed(at)
		}
	}
	until := min(a.until, a.watch.Worked()+weighShare)
	var later []nip34.ObjectID
	for _, id := range append(unknown, stale...) {
		at := a.refs.At[nip34.EventRef(id)]
		if _, has := here[at]; has {
			weights[id] = 0
		} else if a.watch.Worked() < until {
			w, err := x.weighOne(ctx, a, at, but, weighShare)
			if err != nil {
				return out, err
			}
			weights[id] = w
		} else { // what it needs counts for nobody yet
			later = append(later, at)
			if _, weighed := weights[id]; weighed {
				out.stale[id] = struct{}{}
			}
			continue
		}
		needed(at)
	}
	for _, at := range later {
		needed(at)
	}
	for _, pr := range a.pulls {
		if weights[pr.ID] = a.bytes; a.bytes >= 0 {
			continue
		}
		w, err := x.weighOne(ctx, a, pr.Tip, but, a.left()/2)
		if err != nil {
			return out, err
		}
		weights[pr.ID] = w
		if len(later) > 0 {
			out.stale[pr.ID] = struct{}{}
		}
		needed(pr.Tip)
	}
	return out, nil
}

// weighOne weighs what a commit needs and others don't. What takes too long to be weighed
// has no room: else objects would be made that do.
func (x *rations) weighOne(ctx context.Context, a asked, tip nip34.ObjectID, but []nip34.ObjectID, most time.Duration) (w int64, err error) {
	err = a.work(ctx, most, func(ctx context.Context) (err error) {
		w, err = x.p.git.weigh(ctx, a.dir, tip, but)
		return err
	})
	if errors.Is(err, errLong) {
		return x.p.cfg.MaxPullBytes + 1, nil
	}
	return w, err
}

// reweigh weighs anew what has a ref, if branches or tags have changed since: what was
// merged takes up nothing any more. What there is no time for is as it was.
func (x *rations) reweigh(ctx context.Context, a asked, pulls []ration.Pull, w *weighed) error {
	state := stateOf(a.refs)
	if x.p.git.weigher == nil || w.state == state {
		return nil
	}
	var but []nip34.ObjectID
	for name, at := range a.refs.At {
		if isState(name) {
			but = append(but, at)
		}
	}
	slices.SortFunc(pulls, func(a, b ration.Pull) int { return cmp.Or(cmp.Compare(a.At, b.At), a.ID.Compare(b.ID)) })
	until := min(a.until, a.watch.Worked()+weighShare)
	for i := range pulls {
		p := &pulls[i]
		at, has := a.refs.At[nip34.EventRef(p.ID)]
		if !has || p.Bytes == 0 {
			continue
		}
		if a.watch.Worked() >= until {
			return nil
		}
		var err error
		if p.Bytes, err = x.weighOne(ctx, a, at, but, weighShare); err != nil {
			return err
		}
		w.of[p.ID] = p.Bytes
		but = append(but, at)
	}
	w.state = state
	return nil
}

// note remembers what refs take up that there are now, and counts what has none.
func (x *rations) note(a asked, out answered) {
	for id := range out.over {
		switch _, had := a.refs.At[nip34.EventRef(id)]; {
		case had: // what counted for it others may need
			x.p.stats.drop("pull_displaced")
		case out.unswept:
			x.p.stats.drop("pull_unswept")
		default:
			x.p.stats.drop("pull_refs")
			delete(out.weighed.of, id)
		}
	}
	if len(out.gone) > 0 {
		x.displace(a.ref, out.leaves)
	}
	if a.bytes >= 0 { // what a push brings is weighed when it is here
		for _, pr := range a.pulls {
			if _, has := a.refs.At[nip34.EventRef(pr.ID)]; !has {
				delete(out.weighed.of, pr.ID)
			}
		}
	}
	if out.weighed.of == nil {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.weights, a.ref)
	for ref := range x.weights { // any
		if len(x.weights) < maxWalked {
			break
		}
		delete(x.weights, ref)
	}
	x.weights[a.ref] = out.weighed
}

// ration finds out which pull requests may have no ref: they wait until there is room; and
// which others give theirs.
func (p *Purgatory) ration(ctx context.Context, g *group, r *repository) error {
	var pulls []*nip34.PullRequest
	for _, h := range g.pulls {
		if slices.Contains(h.pull.Repos, r.ref) && r.has(h.pull.Tip) {
			pulls = append(pulls, h.pull)
		}
	}
	a := asked{r, pulls, -1}
	out, err := p.rations.judge(ctx, a)
	if errors.Is(err, ErrCrowded) { // it is no fault of the repository's that they wait
		r.trouble = errors.Join(r.trouble, fmt.Errorf("pull request: %w", err))
		r.over = make(map[filters.EventID]struct{})
		for _, pr := range pulls {
			r.over[pr.ID] = struct{}{}
		}
		return nil
	}
	if err != nil {
		return err
	}
	p.rations.note(a, out)
	r.over, r.displaced = out.over, out.gone
	return nil
}

// hasRoom reports whether a pull request could have a ref that brings so much.
func (p *Purgatory) hasRoom(ctx context.Context, r *repository, pr *nip34.PullRequest, bytes int64) (bool, error) {
	out, err := p.rations.judge(ctx, asked{r, []*nip34.PullRequest{pr}, bytes})
	_, over := out.over[pr.ID]
	return !over, err
}

// ask says what some pull requests ask for that are to be in a repository, with the lock of
// it, and bring so many bytes together.
func (p *Purgatory) ask(ctx context.Context, ref filters.RepoRef, dir string, pulls []*nip34.PullRequest, bytes int64) (asked, error) {
	g, err := p.announced(ctx, ref.Identifier, false)
	if err != nil {
		return asked{}, err
	}
	r := g.repository(ref)
	r.dir, r.until, r.watch = dir, pullsShare, stopwatch.New(pullsShare, ErrCrowded)
	r.refs, err = p.git.Refs(ctx, dir)
	return asked{r, pulls, bytes / int64(len(pulls))}, err
}

// hasRoomFor reports whether anything that was fetched for a repository may be in it, with
// the lock of it: all is of use but what only pull requests name that may have no ref. soon
// says that there is none only until what has given way is gone.
func (p *Purgatory) hasRoomFor(ctx context.Context, ref filters.RepoRef, dir string, want []nip34.ObjectID, bytes int64) (room, soon bool, err error) {
	p.mu.Lock()
	states := p.needs[ref.Identifier][ref].states
	entries := p.ledger.Of(ref)
	p.mu.Unlock()
	if slices.ContainsFunc(want, func(id nip34.ObjectID) bool { return slices.Contains(states, id) }) {
		return true, false, nil
	}
	var pulls []*nip34.PullRequest
	for _, e := range entries {
		if pr := p.PullRequest(e.ID); pr != nil && slices.Contains(want, pr.Tip) {
			pulls = append(pulls, pr)
		}
	}
	if len(pulls) == 0 {
		return true, false, nil
	}
	a, err := p.ask(ctx, ref, dir, pulls, bytes)
	if err != nil {
		return false, false, err
	}
	out, err := p.rations.judge(ctx, a)
	room = slices.ContainsFunc(pulls, func(pr *nip34.PullRequest) bool {
		_, over := out.over[pr.ID]
		return !over
	})
	return room, out.unswept, err
}

// Ration says which of some pull requests a push may not make the refs of, that brings so
// many bytes for them, and why; for the others it makes room. It must be called when git
// is about to make them, with the lock of the repository, which is in dir.
func (p *Purgatory) Ration(ctx context.Context, ref filters.RepoRef, dir string, pulls []*nip34.PullRequest, bytes int64) (map[filters.EventID]string, error) {
	if len(pulls) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, p.cfg.Timeout)
	defer cancel()
	a, err := p.ask(ctx, ref, dir, pulls, bytes)
	if err != nil {
		return nil, err
	}
	out, err := p.rations.judge(ctx, a)
	if err != nil {
		return nil, err
	}
	if len(out.gone) > 0 {
		if err := p.git.Align(ctx, dir, out.gone, nip34.RefName{}); err != nil {
			p.doubt(ref, journal{}) // refs are there or not: only locks can be left
			return nil, fmt.Errorf("removing refs: %w", err)
		}
	}
	p.rations.note(a, out)
	refused := make(map[filters.EventID]string)
	for _, pr := range pulls {
		if _, over := out.over[pr.ID]; over {
			refused[pr.ID] = reasonPulls
		}
	}
	return refused, nil
}
